"""Batches under challenge: compared with the market's record, vetoed from the chain."""

from kit.chain.deployed_chain import ADMIN, OPERATOR
from kit.chain.settling import settlement
from kit.payments.settlement_fixtures import (  # noqa: F401  (fixtures)
    PROVIDERS,
    UNIT_PAY,
    SettlementWorld,
    deployment_with_a_day,
    settling_market,
)

from market.domain.network import DEVNET
from market.governance import acts, service
from market.governance.schemas import EventView, PayoutView
from market.platform.db.base import utc_now

FIRST, SECOND = PROVIDERS[:2]


def payouts(market: SettlementWorld) -> list[PayoutView]:
    return market.call(service.payouts_under_challenge, utc_now())


def alarms(market: SettlementWorld) -> list[EventView]:
    contracts = market.call(service.contracts_of, market.chain.deployment, DEVNET)
    return market.call(service.alarms, contracts)


def test_own_batch_agrees_with_record(market: SettlementWorld) -> None:
    job = market.ended_job(FIRST, SECOND)
    market.settled()
    [shown] = payouts(market)
    assert (shown.kind, shown.number, shown.agrees, shown.differences) == ("batch", 1, True, [])
    assert {payee.account: payee.amount_wei for payee in shown.payees} == {
        FIRST.address: UNIT_PAY,
        SECOND.address: UNIT_PAY,
    }
    assert [(line.job_id, line.units, line.paid_wei) for line in shown.lines] == [(job, 2, 2 * UNIT_PAY)]
    assert shown.net_wei == 2 * UNIT_PAY
    assert alarms(market) == []


def test_foreign_batch_raises_alarm_and_is_vetoed(market: SettlementWorld) -> None:
    job = market.job()
    _, function, arguments = settlement(job)
    market.chain.send(OPERATOR, "JobEscrow", function, *arguments)
    market.index()
    [shown] = payouts(market)
    assert (shown.agrees, shown.payees) == (False, [])
    assert shown.differences == ["The market has no record of a batch with this root."]
    assert [line.job_id for line in shown.lines] == [job]
    [alarm] = alarms(market)
    assert alarm.kind == "foreign_batch"

    contracts = market.call(service.contracts_of, market.chain.deployment, DEVNET)
    batch = market.call(service.batch_of, shown.number)
    veto = acts.prepare_batch_veto(market.chain.views, contracts, ADMIN.address, batch)
    assert veto.simulation.passes
    assert veto.confirmation == "escrow.veto"
    market.chain.anvil.send({"from": ADMIN.address, "to": veto.transaction.to, "data": veto.transaction.data})
    market.index()
    [vetoed] = payouts(market)
    assert vetoed.vetoed_tx is not None
    refused = acts.prepare_batch_veto(market.chain.views, contracts, ADMIN.address, batch)
    assert str(refused.simulation.refusal).startswith("No batch under challenge has these contents.")
