"""Settlement on a real chain: vetoed pay comes later, once; contested units wait."""

import pytest
import structlog
from kit.payments.settlement_fixtures import (  # noqa: F401  (fixtures)
    PROVIDERS,
    UNIT_PAY,
    SettlementWorld,
    deployment_with_a_day,
    hours,
    settling_market,
)

from market.chain.contracts.codec import ChainEvent
from market.domain.lifecycle import DISPUTE_STATUSES, DisputeStatus, JobStatus, UnitStatus
from market.payments.settlement import contested_units
from market.payments.settlement import service as settlement
from market.training.units.models import Unit
from zoo_protocol.payments.job_record import unit_leaf

FIRST, SECOND = PROVIDERS[:2]


def _dispute(market: SettlementWorld, unit: Unit, name: str, **args: object) -> None:
    key = unit_leaf(unit.job_id, unit.round, unit.slot, unit.provider, unit.trace_root or "", unit.payload_hash or "")
    event = ChainEvent("Disputes", name, {"unitId": "0x" + key.hex(), **args}, "0x", 1, "0x", 0, 0)
    handler = {"UnitWithheld": contested_units.on_unit_withheld, "DisputeEnded": contested_units.on_dispute_ended}[name]
    market.call(handler, event)


def test_vetoed_batch_is_resettled_per_job_once(market: SettlementWorld) -> None:
    over, running = market.job(), market.job()
    market.work(over, 0, FIRST, SECOND)
    market.work(running, 0, FIRST)
    market.end(over)
    market.settled()
    [vetoed] = market.batches()
    assert all(unit.settled_at for unit in [*market.units(over), *market.units(running)])  # their providers' history
    with structlog.testing.capture_logs() as logs:
        market.veto(vetoed)
        market.finalise()
    assert [log["event"] for log in logs if log["log_level"] == "error"] == ["settlement_vetoed"]
    assert {(unit.settlement_reason, unit.settled_at) for unit in market.units(over)} == {(settlement.VETOED, None)}
    assert (market.read(over).status, market.read(over).paid_wei) == (JobStatus.SETTLING, 0)
    assert market.read(running).status == JobStatus.RUNNING
    assert market.call(settlement.void_batches) == {settlement.VETOED: 1, settlement.REFUSED: 0}

    market.settled()
    assert [[line["jobId"] for line in lines] for lines in market.lines()][1:] == [[over], [running]]
    market.end(running)
    market.settled()
    market.pass_challenge_period()
    assert list(market.claim_all().values()) == [2 * UNIT_PAY, UNIT_PAY, 0, 0]
    market.check(over, running)


def test_veto_of_first_batch_is_repaired_by_third(market: SettlementWorld) -> None:
    job = market.job()
    market.work(job, 0, FIRST, SECOND)
    market.settled(after=hours(2))
    market.work(job, 1, FIRST, SECOND)
    market.end(job)
    market.settled()
    market.veto(market.batches()[0])
    market.finalise()
    assert (market.read(job).status, market.read(job).paid_wei) == (JobStatus.SETTLING, 2 * UNIT_PAY)
    market.settled()
    [line] = market.lines()[2]
    assert (line["fromRound"], line["toRound"], line["units"]) == ("2", "3", "2")
    market.check(job)


@pytest.mark.long
def test_repeated_veto_is_answered_with_growing_delay(market: SettlementWorld) -> None:
    job = market.ended_job(FIRST)
    for times, wait in ((1, hours(0)), (2, hours(0)), (3, hours(31 / 3600))):
        market.settled(after=wait)
        assert len(market.batches()) == times
        market.veto(market.batches()[-1])
        market.finalise()
    market.settle(after=hours(80 / 3600))
    assert len(market.batches()) == 3
    market.settled(after=hours(91 / 3600))
    market.check(job)


@pytest.mark.parametrize(
    ("outcome", "is_paid"),
    [
        (DisputeStatus.PROVIDER_LOST, False),
        (DisputeStatus.CHALLENGER_LOST, True),
        (DisputeStatus.UNDECIDED, False),
    ],
)
def test_contested_unit_of_vetoed_batch_awaits_dispute(
    market: SettlementWorld, outcome: DisputeStatus, is_paid: bool
) -> None:
    job = market.ended_job(FIRST, SECOND)
    market.settled()
    _dispute(market, market.units(job)[0], "UnitWithheld")
    market.veto(market.batches()[0])
    market.finalise()
    market.settled()
    [line] = market.lines()[1]
    assert (line["units"], line["last"]) == ("1", False)
    market.settled()
    assert len(market.batches()) == 2
    _dispute(market, market.units(job)[0], "DisputeEnded", outcome=DISPUTE_STATUSES.index(outcome))
    market.settled()
    unit = market.units(job)[0]
    expected = (UnitStatus.VERIFIED, None) if is_paid else (UnitStatus.REJECTED, contested_units.LOST)
    assert (unit.status, unit.reason) == expected
    market.check(job)
