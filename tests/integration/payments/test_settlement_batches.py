"""Settlement on a real chain: continuous pay, many jobs in a batch, crashes, refusals."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from kit.errors import raising
from kit.jobs.jobs_fixtures import at_once
from kit.killed import Killed
from kit.payments.settlement_fixtures import (  # noqa: F401  (fixtures)
    PROVIDERS,
    UNIT_PAY,
    SettlementWorld,
    deployment_with_a_day,
    hours,
    settling_market,
)
from kit.profile import examples
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from market.chain.errors import RpcUnavailable
from market.chain.transactions.sender import Sender
from market.domain.lifecycle import IntentStatus, JobStatus, UnitStatus
from market.jobs.models import Job
from market.payments.settlement import service as settlement

FIRST, SECOND, THIRD = PROVIDERS[:3]


def test_disputed_unit_delays_only_end_of_its_job(market: SettlementWorld) -> None:
    job = market.job(rounds=2)
    disputed, _ = market.work(job, 0, FIRST, SECOND)
    market.decide(disputed, UnitStatus.DISPUTED)
    market.work(job, 1, FIRST, THIRD)
    market.change(Job, job, status=JobStatus.VERIFYING)
    market.settled(after=hours(2))
    paid = market.read(job)
    assert (paid.status, paid.paid_wei, paid.refund_wei) == (JobStatus.VERIFYING, 3 * UNIT_PAY, 0)
    market.settled(after=hours(4))
    assert len(market.batches()) == 1

    market.decide(disputed, UnitStatus.VERIFIED)  # the dispute was rejected
    market.end(job)
    market.settled(after=hours(6))
    market.check(job)
    assert market.read(job).paid_wei == 4 * UNIT_PAY
    market.pass_challenge_period()
    assert list(market.claim_all().values()) == [2 * UNIT_PAY, UNIT_PAY, UNIT_PAY, 0]


def test_running_job_is_paid_continuously_then_refunded(market: SettlementWorld) -> None:
    job = market.job()
    market.work(job, 0, FIRST, SECOND)
    market.settle()
    assert market.batches() == []  # the interval has not passed
    market.settled(after=hours(2))
    running = market.read(job)
    assert (running.status, running.paid_wei, running.refund_wei) == (JobStatus.RUNNING, 2 * UNIT_PAY, 0)
    market.pass_challenge_period()
    assert list(market.claim_all().values()) == [UNIT_PAY, UNIT_PAY, 0, 0]

    market.work(job, 1, FIRST, THIRD)
    market.settled(after=hours(0.5))
    assert len(market.batches()) == 1
    market.end(job)
    market.settled()
    [[first], [last]] = market.lines()
    assert (first["fromRound"], first["toRound"], first["units"], first["last"]) == ("0", "1", "2", False)
    assert (last["fromRound"], last["toRound"], last["units"], last["last"]) == ("1", "2", "2", True)
    market.pass_challenge_period()
    assert list(market.claim_all().values()) == [UNIT_PAY, 0, UNIT_PAY, 0]
    market.check(job)


def test_ended_job_settles_with_waiting_units_of_others(market: SettlementWorld) -> None:
    over, running, empty = market.job(), market.job(), market.job()
    market.work(over, 0, FIRST, SECOND)
    market.work(running, 0, FIRST)
    market.end(over)
    market.end(empty)
    market.settled()
    assert [sorted(line["jobId"] for line in lines) for lines in market.lines()] == [sorted([over, running]), [empty]]
    market.check(over, empty)
    assert market.read(running).paid_wei == UNIT_PAY
    market.pass_challenge_period()
    assert list(market.claim_all().values()) == [2 * UNIT_PAY, UNIT_PAY, 0, 0]
    market.end(running)
    market.settled()
    market.check(over, running, empty)


def test_round_is_paid_after_all_earlier_decisions(market: SettlementWorld) -> None:
    job = market.job()
    _, slow = market.work(job, 0, FIRST, SECOND, status=UnitStatus.CHECKING)
    market.work(job, 1, FIRST, SECOND)
    market.decide(slow - 1, UnitStatus.VERIFIED)
    market.settled(after=hours(2))
    assert market.batches() == []
    market.decide(slow, UnitStatus.REJECTED)
    market.settled(after=hours(2))
    assert [[line["units"] for line in lines] for lines in market.lines()] == [["3"]]
    market.end(job)
    market.settled()
    market.check(job)


@pytest.mark.long
def test_many_waiting_units_make_batches_within_limits(market: SettlementWorld) -> None:
    ids = [market.job() for _ in range(3)]
    for job in ids:
        market.work(job, 0, FIRST, SECOND)
        market.work(job, 1, FIRST, SECOND)
    market.settings = market.settings.model_copy(
        update={"settlement_units": 12, "settlement_max_units": 8, "settlement_max_jobs": 2}
    )
    market.settled()
    assert [len(lines) for lines in market.lines()] == [2, 1]
    market.settings = market.settings.model_copy(update={"settlement_max_units": 3, "settlement_units": 2})
    for job in ids:
        market.work(job, 2, FIRST, SECOND)
        market.work(job, 3, FIRST, SECOND)
    market.settled()  # whole rounds only, one of each job
    assert [len(lines) for lines in market.lines()] == [2, 1, 1, 1, 1]
    for job in ids:
        market.end(job)
    for _ in range(2):
        market.settled()
    market.check(*ids)


@pytest.mark.parametrize("where", ["publish", "write", "queue"])
def test_crash_during_batch_leaves_nothing(
    market: SettlementWorld, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    job = market.ended_job(FIRST, SECOND)
    target = {"publish": "_publish", "write": "_claims", "queue": "queue_intent"}[where]
    with monkeypatch.context() as patch:
        patch.setattr(settlement, target, raising(Killed))
        with pytest.raises(Killed):
            market.settle()
    assert market.batches() == []
    assert all(unit.settlement_id is None for unit in market.units(job))
    market.settled()
    market.check(job)


@pytest.mark.parametrize("step", ["_sign", "_broadcast"])
def test_crash_of_sender_pays_once(market: SettlementWorld, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    job = market.ended_job(FIRST, SECOND)
    market.settle()
    planned = market.lines()
    with monkeypatch.context() as patch:
        patch.setattr(Sender, step, raising(Killed))
        with pytest.raises(Killed):
            market.send()
    market.settle()  # nothing more is due while the batch is on its way
    market.send()
    market.finalise()
    assert market.lines() == planned
    assert market.batch_count() == 1
    market.check(job)


def test_lost_answer_and_second_worker_pay_once(market: SettlementWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    job = market.ended_job(FIRST, SECOND)
    assert at_once([market.settle, market.settle]) == [None, None]
    sent = type(market.chain.client()).send_raw

    def lost(self: Any, raw: bytes) -> None:
        sent(self, raw)
        raise RpcUnavailable("the answer was lost")

    with monkeypatch.context() as patch:
        patch.setattr(type(market.chain.client()), "send_raw", lost)
        with pytest.raises(RpcUnavailable):
            market.send()
    market.finalise()
    market.settled()
    assert market.batch_count() == 1
    market.check(job)


def test_database_keeps_each_verified_unit_in_one_batch(market: SettlementWorld) -> None:
    job, other = market.job(), market.job()
    [paid] = market.work(job, 0, FIRST)
    [unpaid] = market.work(other, 0, SECOND, status=UnitStatus.CHECKING)
    market.end(job)
    market.settled()
    [batch] = market.batches()

    for tampering in (f"settlement_id = NULL WHERE id = {paid}", f"status = 'rejected' WHERE id = {paid}"):
        with pytest.raises(IntegrityError):
            market.execute(text(f"UPDATE units SET {tampering}"))
    with pytest.raises(IntegrityError):
        market.execute(text(f"UPDATE units SET settlement_id = {batch.id} WHERE id = {unpaid}"))


def test_job_refused_by_contract_does_not_block_pay(market: SettlementWorld) -> None:
    good, bad = market.job(), market.job()
    for job in (good, bad):
        market.work(job, 0, FIRST)
        market.end(job)
    market.change(Job, bad, clearing_price_wei=5 * 10**18)  # above its payer's maximum
    market.settled()
    [batch] = market.batches()
    assert (batch.void_reason, market.intent(batch).status) == (settlement.REFUSED, IntentStatus.REVERTED)
    market.settled()
    market.check(good)
    assert market.read(bad).status == JobStatus.SETTLING
    market.change(Job, bad, clearing_price_wei=36 * 10**17)
    market.settle()
    assert len(market.batches()) == 3
    market.settled(after=hours(31 / 3600))
    market.check(good, bad)


def veto_one(market: SettlementWorld, which: int) -> None:
    standing = [b for b in market.batches() if b.batch_id is not None and b.void_reason is None]
    if standing:
        market.veto(standing[which % len(standing)])
        market.finalise()


moves = st.lists(
    st.tuples(st.sampled_from(["work", "reject", "settle", "send", "veto", "end"]), st.integers(0, 1)), max_size=10
)


@hypothesis_settings(
    max_examples=examples(3, long=16),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    database=None,
)
@given(moves)
def test_every_wei_is_paid_once_or_refunded(market: SettlementWorld, order: list[tuple[str, int]]) -> None:
    ids = [market.job(), market.job()]
    ended: set[str] = set()
    later = 0.0

    def end(job: str) -> None:
        if job not in ended and market.read(job).status == JobStatus.RUNNING:
            ended.add(job)
            market.end(job)

    for move, which in order:
        job = ids[which]
        round_ = market.read(job).current_round
        later += 2
        if move in ("work", "reject") and job not in ended and round_ < 4:
            status = UnitStatus.VERIFIED if move == "work" else UnitStatus.REJECTED
            market.work(job, round_, FIRST, SECOND, status=status)
        elif move == "settle":
            market.settle(after=hours(later))
        elif move == "send":
            market.send()
            market.finalise()
        elif move == "veto":
            veto_one(market, which)
        elif move == "end":
            end(job)
    for job in ids:
        end(job)
    for turn in range(8):
        if any(market.read(job).status != JobStatus.SETTLED for job in ids):
            market.settled(after=hours(later + 48 * turn))
    market.check(*ids)
