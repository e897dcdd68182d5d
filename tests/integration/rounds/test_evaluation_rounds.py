"""Rounds, pauses and purges while verifiers evaluate; what a false first loss cannot reach."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from kit.errors import raising
from kit.verification.evaluations import (
    RECORDS,
    answer,
    asked,
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
from market.training.aggregation import service as aggregation
from market.training.aggregation.rollback import continued_checkpoint
from market.training.checkpoints import repository as checkpoints_repository
from market.training.checkpoints.models import Checkpoint
from market.training.checkpoints.service import ModelLoss
from market.training.evaluation import service as evaluation
from market.training.leases import service as leases
from market.training.leases.errors import LeaseLost
from market.training.retention import service as retention
from market.training.units import repository as units_repository
from market.training.units.models import Unit
from training_gym.spec.errors import PayloadError


@pytest.fixture(name="verifiers", autouse=True)
def four_verifiers(world: VerificationWorld) -> list[str]:
    return [world.verifier() for _ in range(4)]


@pytest.fixture
def job_id(world: VerificationWorld) -> str:
    return trained(world, validation_samples=2)


def falsely_low(world: VerificationWorld, loss: float) -> tuple[str, list[str]]:
    """Return a job after one round, whose first ``loss`` two verifiers stated, and its nodes."""
    job_id = trained(world, rounds=9, first_loss=None)
    nodes = [unit.provider for unit in world.units(job_id)]
    world.close_round(job_id)
    validate(world, job_id)
    answer(world, pulled(world), record_of(loss), record_of(loss))
    validate(world, job_id)
    second = Checkpoint.job_id == job_id, Checkpoint.round == 1
    world.execute(update(Checkpoint).where(*second).values(validation_loss="5.500000"))  # random payloads may raise it
    return job_id, nodes


def rolled_back_to(world: VerificationWorld, job_id: str) -> list[int | None]:
    query = select(Checkpoint.rolled_back_to).where(Checkpoint.job_id == job_id).order_by(Checkpoint.round)
    return world.all(query)


def test_false_first_loss_attracts_no_rollback(world: VerificationWorld) -> None:
    job_id, nodes = falsely_low(world, 39.5)
    world.diverge(nodes)
    for _ in range(2):  # the first corrects the first model's loss
        world.aggregate(job_id)
    assert (loss_of(world, job_id, 0)[0], rolled_back_to(world, job_id)) == ("5.548400", [None, None, 1])
    assert not any(world.all(select(Checkpoint.is_stated).where(Checkpoint.job_id == job_id)))


def test_false_first_loss_attracts_no_lost_step(world: VerificationWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    job_id, nodes = falsely_low(world, 39.5)
    world.deliver_all(nodes)
    monkeypatch.setattr(aggregation, "_build_checkpoint", raising(PayloadError("payload", "payload", "not finite")))
    for _ in range(2):
        world.aggregate(job_id)
    assert rolled_back_to(world, job_id) == [None, None, 1]


def test_false_first_loss_starts_no_extension(world: VerificationWorld) -> None:
    job_id, _ = falsely_low(world, 0.5)
    with world.database.transaction() as session:
        checkpoints = checkpoints_repository.checkpoints(session, job_id)
        units = units_repository.units_of_round(session, job_id, 1)
        assert continued_checkpoint(session.get_one(Job, job_id), checkpoints, units).round == 1


def six_nodes(world: VerificationWorld, rounds: int, delay: int) -> tuple[str, list[str]]:
    """Return a large job on six nodes, and the nodes."""
    nodes, document = [world.node() for _ in range(6)], large_document(world, rounds)
    document["training_config"]["round_delay"] = delay
    job_id = world.running(nodes, document=document)
    know_first_loss(world, job_id, "5.548400")
    return job_id, nodes


def test_late_unit_makes_no_other_model(world: VerificationWorld) -> None:
    job_id, nodes = six_nodes(world, rounds=2, delay=0)
    world.deliver_all(nodes[:5])
    late = world.work(nodes[5])
    late.commit()
    world.start_round(job_id, ago=world.settings.round_deadline_seconds + 1)
    world.end_round(job_id)
    validate(world, job_id)
    world.deliver_all(nodes[:5])
    first = asked(world, job_id)
    world.dispatch(job_id)
    assert [one for one in world.holders(job_id) if one is not None] == [nodes[5]]  # it has yet to upload
    late.deliver()
    answer(world, first, RECORDS[0], RECORDS[0])
    assert (len(first), asked(world, job_id), world.read(job_id).status) == (2, {}, "verifying")


def test_late_overlapped_unit_makes_no_other_model(world: VerificationWorld) -> None:
    job_id, nodes = six_nodes(world, rounds=1, delay=1)
    world.deliver_all(nodes[:4])
    late = [world.work(node) for node in nodes[4:]]
    ago = world.settings.round_deadline_seconds + 1
    world.start_round(job_id, ago=ago)
    world.execute(update(Unit).where(Unit.job_id == job_id).values(created_at=utc_now() - timedelta(seconds=ago)))
    first = asked(world, job_id)
    for one in late:
        one.commit()
    answer(world, first, RECORDS[0], RECORDS[0])
    assert (len(first), asked(world, job_id), world.read(job_id).status) == (2, {}, "verifying")


def test_rejection_after_freed_nodes_fails_no_job(world: VerificationWorld, job_id: str) -> None:
    nodes = [unit.provider for unit in world.units(job_id)]
    asked(world, job_id)
    world.dispatch(job_id)
    world.running(nodes)  # another job takes them
    world.start_round(job_id, ago=world.settings.round_timeout_seconds + 1)
    world.change(Unit, world.units(job_id)[0].id, status="rejected")
    world.dispatch(job_id)
    assert (world.read(job_id).status, world.read(job_id).reason) == ("running", None)


def test_paused_job_frees_nodes_during_evaluation(world: VerificationWorld, job_id: str) -> None:
    world.change(Job, job_id, paused_at=utc_now())
    assert asked(world, job_id)
    world.dispatch(job_id)
    assert world.holders(job_id) == [None, None]


def test_spare_of_last_round_is_not_held(world: VerificationWorld) -> None:
    nodes = [world.node() for _ in range(4)]
    job_id = world.running(nodes, document=large_document(world, 1, validation_samples=2))
    know_first_loss(world, job_id, "5.548400")
    world.deliver_all(nodes[:3])
    world.start_round(job_id, ago=world.settings.round_deadline_seconds - 5)  # too late for another unit
    lost = world.work(nodes[3])
    world.call(leases.fail, lost.lease.id, nodes[3], lost.lease.token, "out_of_memory", "")
    spare = world.node()
    world.dispatch(job_id)
    assert spare not in world.holders(job_id)
    assert asked(world, job_id)
    world.dispatch(job_id)
    assert world.holders(job_id) == [None] * 4


def test_evaluation_ends_with_markets_own(world: VerificationWorld, verifiers: list[str]) -> None:
    """One of two fails, and no third is left: the other works on in vain."""
    world.execute(update(Provider).where(Provider.address.in_(verifiers[2:])).values(status="leaving"))
    job_id = trained(world, rounds=2, first_loss=None)
    validate(world, job_id)
    (silent, failed), (other, working) = pulled(world).items()
    world.call(leases.fail, failed.id, silent, failed.token, "out_of_memory", "")
    validate(world, job_id)
    assert loss_of(world, job_id, 0)[0] == "5.548400"
    with pytest.raises(LeaseLost, match=r"expired \(evaluated\)"):
        answer(world, {other: working}, RECORDS[0])
    assert counts(world, other) == (0, 0, 0)


def test_loss_of_units_is_not_replaced(world: VerificationWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    job_id = trained(world, rounds=2, first_loss=None)

    def slow(*_: object) -> ModelLoss:
        know_first_loss(world, job_id, "5.100000")
        return ModelLoss("5.200000", "0.010000", 9)

    monkeypatch.setattr(evaluation, "receipt_loss", slow)
    validate(world, job_id)
    assert loss_of(world, job_id, 0)[0] == "5.100000"


def test_unused_models_manifest_is_released_last(
    world: VerificationWorld, job_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interrupted purge reads its list of files again."""
    cid = next(iter(asked(world, job_id).values())).task["checkpoint_cid"]
    with world.database.transaction() as session:
        leases.cancel_now(session, session.get_one(Job, job_id), "a test")
    world.change(Job, job_id, status="settled", settled_at=utc_now() - timedelta(days=9))
    released: list[set[str]] = []
    monkeypatch.setattr(retention, "unpin_unneeded", lambda *given: released.append(given[-1]))
    assert retention.purge_expired(world.database, world.storage, timedelta(days=8), utc_now()) == 1
    assert (len(released[0]) >= 3, cid in released[0], released[1:]) == (True, False, [{cid}])


def test_continuation_counts_first_loss_of_jobs_before(world: VerificationWorld) -> None:
    """Its own first loss is low, so fresh moments could raise it by a spike."""

    def checkpoints_of(job_id: str) -> list[Checkpoint]:
        with world.database.transaction() as session:
            return checkpoints_repository.checkpoints(session, job_id)

    nodes = [world.node() for _ in range(4)]
    first = world.running(nodes, document=world.spec.to_dict())
    world.train_round(first, nodes)

    trained = checkpoints_of(first)[1]

    def origin(**changes: Any) -> tuple[str, str | None]:
        job_id = world.job(document=replace(world.spec, **changes).to_dict())
        world.dispatch(job_id)
        [made] = checkpoints_of(job_id)
        return made.cid, made.origin_loss

    validate(world, first)
    loss = checkpoints_of(first)[0].validation_loss
    assert loss is not None
    cid, found = origin(start_checkpoint=trained.cid, start_round=1)
    assert found == loss
    assert origin(start_checkpoint=cid, start_round=1)[1] == loss
    assert origin(start_model=trained.model_cid)[1] == loss
    longer = replace(world.spec.model, sequence_length=9, max_position_embeddings=9)
    assert [origin()[1], origin(start_model=trained.model_cid, model=longer)[1]] == [None, None]
    document = replace(world.spec.model, hidden_size=7)
    world.change(Job, first, spec=replace(world.spec, model=document).to_dict())
    assert origin(start_model=trained.model_cid)[1] is None  # a setting that is refused now
    world.change(Job, first, spec=world.spec.to_dict())
    with world.database.transaction() as session:
        checkpoints_repository.checkpoints(session, first)[0].is_stated = True
    assert origin(start_model=trained.model_cid)[1] is None
