"""False, late and useless evaluations by verifiers undo no training."""

import math
from datetime import timedelta

import pytest
from kit.verification.evaluations import (
    RECORDS,
    answer,
    asked,
    by_market,
    counts,
    know_first_loss,
    large_document,
    loss_of,
    pulled,
    record_of,
    trained,
    validate,
)
from kit.verification.verification_fixtures import VerificationWorld, verification_world  # noqa: F401  (fixture)
from sqlalchemy import select, update

from market.jobs.models import Job
from market.platform.db.base import utc_now
from market.providers.models import Provider
from market.training.checkpoints.models import Checkpoint
from market.training.evaluation import service as evaluation
from market.training.leases import service as leases
from market.training.retention import service as retention
from market.training.units.models import Unit
from training_gym.spec.manifests import MAX_MANIFEST_BYTES
from training_gym.units.checkpoint import CheckpointManifest

OTHER_CLASS = "0x" + "ab" * 32


@pytest.fixture(name="verifiers", autouse=True)
def four_verifiers(world: VerificationWorld) -> list[str]:
    return [world.verifier() for _ in range(4)]


@pytest.fixture
def job_id(world: VerificationWorld) -> str:
    return trained(world, validation_samples=2)


def rolled_back(world: VerificationWorld, job_id: str) -> list[int]:
    query = select(Checkpoint.round).where(Checkpoint.job_id == job_id, Checkpoint.rolled_back_to.is_not(None))
    return world.all(query)


def test_false_final_loss_undoes_no_training(world: VerificationWorld) -> None:
    job_id = trained(world, first_loss=None)
    validate(world, job_id)
    answer(world, pulled(world), RECORDS[2], RECORDS[2])
    validate(world, job_id)
    answer(world, asked(world, job_id), record_of(400.0), record_of(400.0))
    for _ in range(2):  # the first corrects the first model's loss
        world.aggregate(job_id)
    assert not rolled_back(world, job_id)
    assert loss_of(world, job_id, 1) == by_market(world, job_id)
    assert world.read(job_id).status == "verifying"


@pytest.mark.parametrize(("false", "stated"), [(0.5, "0.093607"), (math.inf, "999999.000000")])
def test_false_first_loss_undoes_no_training(world: VerificationWorld, false: float, stated: str) -> None:
    job_id = trained(world, rounds=9, first_loss=None)
    nodes = [unit.provider for unit in world.units(job_id)]
    validate(world, job_id)
    answer(world, pulled(world), record_of(false), record_of(false))
    validate(world, job_id)
    assert loss_of(world, job_id, 0)[0] == stated
    for delivering in ([], nodes):
        world.deliver_all(delivering)
        for _ in range(2):  # one of four calls corrects the loss
            world.close_round(job_id)
        validate(world, job_id)
    assert loss_of(world, job_id, 0)[0] == "5.548400"
    assert world.read(job_id).current_round == 2
    assert not rolled_back(world, job_id)


def test_only_round_awaits_first_model_too(world: VerificationWorld) -> None:
    job_id = trained(world, first_loss=None, validation_samples=2)
    first = world.checkpoint(job_id, 0)
    found = asked(world, job_id)
    while found:
        assert world.read(job_id).status == "running"
        for verifier, lease in found.items():
            answer(world, {verifier: lease}, RECORDS[2 if lease.task["checkpoint_cid"] == first else 0])
        found = asked(world, job_id)
    assert world.read(job_id).status == "verifying"
    assert [loss_of(world, job_id, round_)[0] for round_ in (0, 1)] == ["5.531107", "4.531107"]


def test_invented_class_is_never_asked(world: VerificationWorld, verifiers: list[str], job_id: str) -> None:
    world.execute(update(Provider).where(Provider.address.in_(verifiers[1:])).values(environment_class=OTHER_CLASS))
    assert not asked(world, job_id)
    assert loss_of(world, job_id, 1) == by_market(world, job_id)


def test_accepted_class_is_asked_after_jobs_own(world: VerificationWorld, verifiers: list[str], job_id: str) -> None:
    listed = f"{OTHER_CLASS},{world.read(job_id).environment_class}"
    world.settings = world.settings.model_copy(update={"environment_classes": listed})
    world.execute(update(Provider).where(Provider.address.in_(verifiers[1:])).values(environment_class=OTHER_CLASS))
    assert asked(world, job_id).keys() < set(verifiers[1:])


def test_demoted_verifier_is_asked_last(world: VerificationWorld, verifiers: list[str], job_id: str) -> None:
    world.execute(update(Provider).where(Provider.address.in_(verifiers[1:])).values(reliability_bps=3_999))
    assert verifiers[0] in asked(world, job_id)


@pytest.mark.parametrize("samples", [0, 2])
@pytest.mark.parametrize("ended", [False, True])
def test_unmatched_job_is_not_evaluated(world: VerificationWorld, samples: int, ended: bool) -> None:
    job_id = world.job(nodes=3, document=large_document(world, 2, validation_samples=samples))
    world.dispatch(job_id)
    assert loss_of(world, job_id, 0) == (None, None)
    if ended:
        with world.database.transaction() as session:
            leases.cancel_now(session, session.get_one(Job, job_id), "a test")
    assert evaluation.jobs_to_validate(world.database) == []


def test_rejection_during_evaluation_fails_no_job(world: VerificationWorld, job_id: str) -> None:
    asked(world, job_id)
    world.start_round(job_id, ago=world.settings.round_timeout_seconds + 1)
    world.change(Unit, world.units(job_id)[0].id, status="rejected")
    world.dispatch(job_id)
    assert world.read(job_id).status == "running"


def test_nodes_are_free_during_evaluation(world: VerificationWorld, job_id: str) -> None:
    found = asked(world, job_id)
    world.dispatch(job_id)
    assert world.holders(job_id) == [None, None]
    answer(world, found, RECORDS[0], RECORDS[0])
    world.aggregate(job_id)
    assert world.read(job_id).status == "verifying"


def test_late_units_make_no_other_model(world: VerificationWorld, verifiers: list[str]) -> None:
    nodes = [world.node() for _ in range(6)]
    job_id = world.running(nodes, document=large_document(world, 1, validation_samples=2))
    know_first_loss(world, job_id, "5.548400")
    world.deliver_all(nodes[:4])
    late = [world.work(node) for node in nodes[4:]]
    for one in late:
        one.commit()
    world.start_round(job_id, ago=world.settings.round_deadline_seconds + 1)
    first = asked(world, job_id)
    for one in late:
        one.deliver()
    answer(world, first, RECORDS[0], RECORDS[0])
    assert not asked(world, job_id)
    assert world.read(job_id).status == "verifying"
    assert {counts(world, verifier)[0] for verifier in first} == {1}
    assert [unit.exclusion_reason for unit in world.units(job_id)][4:] == ["late", "late"]


def test_known_first_loss_is_not_awaited(world: VerificationWorld, verifiers: list[str]) -> None:
    world.execute(update(Provider).where(Provider.address.in_(verifiers[2:])).values(status="leaving"))
    job_id = trained(world, first_loss=None)
    validate(world, job_id)
    (silent, failed), (other, answered) = pulled(world).items()
    world.call(leases.fail, failed.id, silent, failed.token, "out_of_memory", "")
    answer(world, {other: answered}, RECORDS[0])
    validate(world, job_id)  # too few are left
    assert loss_of(world, job_id, 0)[0] is not None
    world.execute(update(Provider).where(Provider.address.in_(verifiers[2:])).values(status="active"))
    first = world.checkpoint(job_id, 0)
    assert all(lease.task["checkpoint_cid"] != first for lease in asked(world, job_id).values())


def test_files_of_unused_model_are_released(world: VerificationWorld, job_id: str) -> None:
    cid = next(iter(asked(world, job_id).values())).task["checkpoint_cid"]
    with world.database.transaction() as session:
        leases.cancel_now(session, session.get_one(Job, job_id), "a test")
    model = CheckpointManifest.from_bytes(world.storage.get(cid, max_bytes=MAX_MANIFEST_BYTES)).model
    assert world.storage.is_pinned(cid)
    [first] = world.all(select(Checkpoint).where(Checkpoint.job_id == job_id))
    world.change(Checkpoint, first.id, file_cids=[*first.file_cids, model])  # as if training had changed nothing
    world.change(Job, job_id, status="settled", settled_at=utc_now() - timedelta(days=9))
    assert retention.purge_expired(world.database, world.storage, timedelta(days=8), utc_now()) == 1
    assert not world.storage.is_pinned(cid)
    assert world.storage.is_pinned(model)
