"""Verifiers evaluate a job's first and final model: agreement, pay, and the market instead."""

from datetime import timedelta
from typing import Any

import pytest
from kit.verification.evaluations import (
    RECORDS,
    SPLIT_SAMPLES,
    answer,
    asked,
    by_market,
    counts,
    loss_of,
    pulled,
    record_of,
    trained,
    validate,
)
from kit.verification.verification_fixtures import VerificationWorld, verification_world  # noqa: F401  (fixture)
from sqlalchemy import select, update

from market.domain.money import unit_price
from market.domain.network import DEVNET
from market.jobs.models import Job
from market.orders import amendments
from market.orders.reports.match_diagnostics import diagnose_unmatched_job
from market.platform.db.base import utc_now
from market.providers.models import Provider
from market.training.leases import expiry
from market.training.leases import service as leases
from market.training.leases.errors import ResultRefused
from market.training.leases.models import Lease
from market.training.leases.schemas import CompleteEvaluation, LeaseView
from training_gym.evaluate.sums import LossSums
from training_gym.spec.config import TrainingSpec
from training_gym.spec.costs import flops_per_evaluation, flops_per_unit

ROUNDS: Any = None  # of auctions; a running job waits for none
OTHER_CLASS = "0x" + "ab" * 32


@pytest.fixture
def job_id(world: VerificationWorld) -> str:
    return trained(world, validation_samples=2)


@pytest.fixture
def verifiers(world: VerificationWorld) -> list[str]:
    return [world.verifier() for _ in range(4)]


def final_loss(world: VerificationWorld, job_id: str) -> tuple[str | None, int | None]:
    return loss_of(world, job_id, 1)


def test_two_equal_records_end_job_and_are_paid(world: VerificationWorld, job_id: str, verifiers: list[str]) -> None:
    first = asked(world, job_id)
    assert len(first) == 2
    world.aggregate(job_id)  # nothing changes while they work
    assert not asked(world, job_id)
    assert world.read(job_id).status == "running"
    world.dispatch(job_id)  # frees the nodes
    with world.database.transaction() as session:
        why = diagnose_unmatched_job(session, world.settings, world.network, world.read(job_id), ROUNDS)
    assert [finding.code for finding in why.findings] == ["matched", "being_evaluated"]
    paid = answer(world, first, RECORDS[0], RECORDS[0])
    world.aggregate(job_id)
    assert world.read(job_id).status == "verifying"
    assert final_loss(world, job_id) == ("4.531107", SPLIT_SAMPLES)

    job = world.read(job_id)
    spec = TrainingSpec.from_dict(job.spec)
    price = unit_price(job.clearing_price_wei or 0, job.unit_weight_us)
    share = price * SPLIT_SAMPLES * flops_per_evaluation(spec) // flops_per_unit(spec)
    assert 0 < share < price // 25
    assert [counts(world, one) for one in paid] == [(1, 0, share)] * 2
    assert {counts(world, one) for one in set(verifiers) - set(paid)} == {(0, 0, 0)}


def test_third_record_decides_and_wrong_one_counts(world: VerificationWorld, job_id: str, verifiers: list[str]) -> None:
    first, wrong = answer(world, asked(world, job_id), RECORDS[0], RECORDS[1])
    third = answer(world, asked(world, job_id), RECORDS[0])
    assert third[0] in set(verifiers) - {first, wrong}
    world.aggregate(job_id)
    assert final_loss(world, job_id) == ("4.531107", SPLIT_SAMPLES)
    assert [counts(world, one)[:2] for one in (first, wrong, *third)] == [(1, 0), (0, 1), (1, 0)]


def test_market_evaluates_without_agreement_of_four(
    world: VerificationWorld, job_id: str, verifiers: list[str]
) -> None:
    answer(world, asked(world, job_id), *RECORDS[:2])
    answer(world, asked(world, job_id), RECORDS[2])
    answer(world, asked(world, job_id), RECORDS[3])
    world.aggregate(job_id)
    assert final_loss(world, job_id) == by_market(world, job_id)
    assert {counts(world, one) for one in verifiers} == {(0, 0, 0)}


def test_expired_and_overdue_evaluations_are_asked_again(
    world: VerificationWorld, job_id: str, verifiers: list[str]
) -> None:
    first = asked(world, job_id)
    [silent, slow] = first.values()
    world.age(silent.id)
    assert expiry.expire_due(world.database, utc_now()) == 1
    [late] = asked(world, job_id).values()
    assert expiry.expire_replays(world.database, timedelta(seconds=600), utc_now()) == 0
    world.execute(update(Lease).where(Lease.id == slow.id).values(created_at=utc_now() - timedelta(minutes=15)))
    assert expiry.expire_replays(world.database, timedelta(seconds=600), utc_now()) == 1
    last = asked(world, job_id)
    world.complete(late, late_holder(world, late), CompleteEvaluation(token=late.token, record=RECORDS[0]))
    answer(world, last, RECORDS[0])
    world.aggregate(job_id)
    assert final_loss(world, job_id) == ("4.531107", SPLIT_SAMPLES)


def late_holder(world: VerificationWorld, lease: LeaseView) -> str:
    return str(world.one(select(Lease.holder).where(Lease.id == lease.id)))


def test_busy_verifiers_are_asked_again_until_replays_end(world: VerificationWorld, job_id: str) -> None:
    verifiers = [world.verifier() for _ in range(2)]
    world.aggregate(job_id)
    for _ in range(5):
        offered = world.all(select(Lease).where(Lease.kind == "evaluate", Lease.status == "offered"))
        assert sorted(one.holder for one in offered) == sorted(verifiers)
        for lease in offered:
            world.age(lease.id)
        expiry.expire_due(world.database, utc_now())
        world.aggregate(job_id)
    assert world.read(job_id).status == "running"
    long_ago = utc_now() - timedelta(seconds=world.settings.replay_seconds + 1)
    world.execute(update(Lease).where(Lease.kind == "evaluate").values(created_at=long_ago, expires_at=long_ago))
    expiry.expire_due(world.database, utc_now())
    world.aggregate(job_id)
    assert final_loss(world, job_id) == by_market(world, job_id)


@pytest.mark.parametrize("case", ["one left", "other classes", "one owner", "the payer's", "small job"])
def test_market_evaluates_without_two_verifiers(world: VerificationWorld, case: str) -> None:
    job_id = trained(world)
    verifiers = [world.verifier(environment=OTHER_CLASS) if case == "other classes" else world.verifier()]
    verifiers += [] if case == "one left" else [world.verifier()]
    if case == "small job":
        spec = world.read(job_id).spec
        training = {**spec["training_config"], "batch_size": 256}
        world.change(Job, job_id, spec={**spec, "training_config": training})
    if case in ("one owner", "the payer's"):
        owned = verifiers if case == "one owner" else verifiers[:1]
        world.execute(update(Provider).where(Provider.address.in_(owned)).values(owner="somebody"))
    if case == "the payer's":
        world.change(Job, job_id, payer=verifiers[0])
    assert not asked(world, job_id)
    assert final_loss(world, job_id) == by_market(world, job_id)


@pytest.mark.parametrize("samples", [0, 2])
def test_verifiers_evaluate_first_model_of_few_units(
    world: VerificationWorld, verifiers: list[str], samples: int
) -> None:
    job_id = trained(world, rounds=2, first_loss=None, validation_samples=samples)
    assert not asked(world, job_id)  # the round is not the last
    for _ in range(2):
        validate(world, job_id)
    first = pulled(world)
    assert len(first) == 2
    assert loss_of(world, job_id, 0) == (None, None)
    paid = answer(world, first, RECORDS[0], RECORDS[0])
    validate(world, job_id)
    assert loss_of(world, job_id, 0) == ("4.531107", SPLIT_SAMPLES)
    assert [counts(world, one)[:2] for one in paid] == [(1, 0)] * 2


@pytest.mark.parametrize("samples", [1, 64, SPLIT_SAMPLES - 1, SPLIT_SAMPLES + 1, 256, 16_384])
def test_record_of_other_samples_is_refused(
    world: VerificationWorld, job_id: str, verifiers: list[str], samples: int
) -> None:
    check_refused(world, job_id, record_of(36.0, samples))


@pytest.mark.parametrize("record", [LossSums.of([36.0] * 2, [9, 9]).to_bytes().decode(), "36", "", "nan"])
def test_malformed_record_is_refused(world: VerificationWorld, job_id: str, verifiers: list[str], record: str) -> None:
    check_refused(world, job_id, record)


def check_refused(world: VerificationWorld, job_id: str, record: str) -> None:
    verifier, lease = next(iter(asked(world, job_id).items()))
    with pytest.raises(ResultRefused) as refused:
        world.complete(lease, verifier, CompleteEvaluation(token=lease.token, record=record))
    assert (refused.value.field, refused.value.extra["reason"]) == ("record", "evaluation_malformed")
    assert asked(world, job_id).keys().isdisjoint([verifier])


def test_cancelled_job_ends_its_evaluations(world: VerificationWorld, job_id: str, verifiers: list[str]) -> None:
    [(verifier, lease), _] = asked(world, job_id).items()
    with world.database.transaction() as session:
        leases.cancel_now(session, session.get_one(Job, job_id), "a test")
    assert world.get(Lease, lease.id).status == "expired"
    world.aggregate(job_id)
    assert (world.read(job_id).current_round, counts(world, verifier)) == (0, (0, 0, 0))


def test_evaluated_job_is_not_cancelled_before_refund(
    world: VerificationWorld, job_id: str, verifiers: list[str]
) -> None:
    due = timedelta(seconds=DEVNET.longest_training_seconds)
    world.change(Job, job_id, wait_until=utc_now() - due)
    leases_asked = asked(world, job_id)
    assert amendments.end_before_refund(world.database, DEVNET, utc_now()) == 0
    answer(world, leases_asked, RECORDS[0], RECORDS[0])
    assert amendments.end_before_refund(world.database, DEVNET, utc_now()) == 0
    world.aggregate(job_id)
    assert (world.read(job_id).status, final_loss(world, job_id)[0]) == ("verifying", "4.531107")


def test_job_evaluated_for_a_day_is_cancelled(world: VerificationWorld, job_id: str, verifiers: list[str]) -> None:
    due = timedelta(seconds=DEVNET.longest_training_seconds)
    world.change(Job, job_id, wait_until=utc_now() - due)
    asked(world, job_id)
    assert amendments.end_before_refund(world.database, DEVNET, utc_now() + timedelta(days=1, minutes=1)) == 1
    assert (world.read(job_id).status, world.read(job_id).reason) == ("cancelled", "escrow_ends")
