"""Uptime and its penalties, executed on a real chain."""

from datetime import timedelta

import httpx
from kit.chain.deployed_chain import OTHER, PROVIDER, wallet
from kit.payments.rewards_fixtures import NODES, STAKE, RewardsWorld, ninety_percent
from sqlalchemy import select, update

from market.chain.models import TxIntent
from market.domain import lifecycle as domain_lifecycle
from market.domain.lifecycle import ProviderStatus
from market.domain.network import DEVNET
from market.domain.nodes.uptime import ALL_MINUTES, minute_of
from market.payments.rewards import repository as rewards
from market.providers import lifecycle
from market.providers import service as providers
from market.providers.models import DowntimePenalty, EvaluatedEpoch, HeartbeatHour, Provider, ProviderEpoch
from market.providers.record import reliability
from market.providers.record import repository as record_repository
from zoo_protocol.hashing import canonical_json


def test_downtime_in_committed_period_is_slashed_once(market: RewardsWorld, api: httpx.Client) -> None:
    market.commit(PROVIDER)
    market.pass_day()
    day = market.day
    market.beat_all(first=ninety_percent(), second=ninety_percent())  # the second one committed to nothing
    market.pass_day()
    market.judge()
    market.judge()
    [penalty] = market.all(select(DowntimePenalty))
    assert (penalty.provider, penalty.epoch) == (PROVIDER.address, day)
    document = market.storage.get(penalty.evidence_cid, max_bytes=2**16)
    assert canonical_json({"due_minutes": 1440})[1:-1] in document
    assert canonical_json({"up_minutes": 1296})[1:-1] in document
    market.posted()
    market.judge()
    market.finalise()
    [penalty] = market.all(select(DowntimePenalty))
    assert penalty.amount_wei == STAKE * 5 // 100
    assert market.chain.views.at_risk(PROVIDER.address) == STAKE * 95 // 100
    assert len(market.all(select(TxIntent).where(TxIntent.kind == "slash"))) == 1
    assert market.node(PROVIDER).status == ProviderStatus.JAILED
    reliability.review(market.database, DEVNET, market.now())
    assert market.node(PROVIDER).reliability_bps == 8_000 * 9 // 10 // 2  # uptime of 90 %, one fresh slash
    [record] = market.all(
        select(ProviderEpoch).where(ProviderEpoch.provider == PROVIDER.address, ProviderEpoch.epoch == day)
    )
    assert (record.committed_up_minutes, record.committed_minutes) == (1296, 1440)
    [shown] = [row for row in api.get(f"/v1/providers/{PROVIDER.address}/epochs").json() if row["epoch"] == day]
    assert (shown["uptime_bps"], shown["penalty"]["amount_wei"]) == (9_000, str(STAKE * 5 // 100))
    assert api.get(f"/v1/providers/{PROVIDER.address}").json()["reliability_bps"] == 3_600
    [earned] = market.call(rewards.earnings_of, PROVIDER.address, None, 10)
    assert earned.base_wei == STAKE * 1296 * 2_000 // (10_000 * 365 * 1440)
    market.check()

    market.beat_all(first=0)  # jailed, nothing is expected of it
    market.pass_day()
    market.judge()
    assert len(market.all(select(DowntimePenalty))) == 1


def test_market_outage_lowers_no_uptime(market: RewardsWorld) -> None:
    market.commit(PROVIDER)
    outage = ALL_MINUTES & ~(((1 << 360) - 1) << 300)
    market.pass_day()
    market.beat_all(first=outage, second=outage, third=outage)  # three of four are silent for six hours
    market.pass_day()
    market.beat_all(first=1, second=1, third=1, fourth=1)  # nearly all of the day
    market.pass_day()
    market.judge()
    assert market.all(select(DowntimePenalty)) == []
    judged = market.all(select(EvaluatedEpoch).order_by(EvaluatedEpoch.epoch))
    assert [(row.usual_nodes, row.counted_minutes) for row in judged] == [(4, 1080), (4, 1)]
    assert market.all(select(HeartbeatHour)) == []
    reliability.review(market.database, DEVNET, market.now())
    assert {market.node(node).reliability_bps for node in NODES} == {8_000}


def test_wallets_without_stake_make_no_outage(market: RewardsWorld) -> None:
    """Wallets without stake are free, so many of them could turn any day into an outage."""
    market.commit(PROVIDER)
    unstaked = [wallet(20 + number) for number in range(8)]
    market.register(unstaked)
    market.pass_day()
    market.beat_all()
    for node in unstaked:
        market.beat(node, stake=0)
    market.pass_day()
    day = market.day
    market.beat_all(first=ninety_percent())
    market.pass_day()
    market.judge()
    assert [(row.provider, row.epoch) for row in market.all(select(DowntimePenalty))] == [(PROVIDER.address, day)]


def test_unreliable_provider_is_demoted_until_benchmark_or_recovery(market: RewardsWorld) -> None:
    address, now = PROVIDER.address, market.now()

    def lose(units: int) -> None:
        for _ in range(units):
            market.call(reliability.record_lost_unit, address, now)
        reliability.review(market.database, DEVNET, now)

    lose(7)
    assert market.node(PROVIDER).status == ProviderStatus.ACTIVE
    lose(2)
    found = market.node(PROVIDER)
    assert (found.status, found.reason, found.reliability_bps < 4_000) == (ProviderStatus.DEMOTED, "unreliable", True)
    with market.database.transaction() as session:
        found = providers.require(session, address, lock=True)
        found.forgiven_bps = found.reliability_bps  # as a passed benchmark does
        lifecycle.advance(session, found, domain_lifecycle.ProviderEvent.BENCHMARK_PASSED, reason="benchmark_passed")
        lifecycle.review_stake(session, DEVNET, found)
    lose(0)
    assert market.node(PROVIDER).status == ProviderStatus.ACTIVE
    lose(1)
    assert market.node(PROVIDER).status == ProviderStatus.DEMOTED
    later = now + timedelta(days=60)
    market.call(reliability.record_served_bytes, address, 0, later)
    reliability.review(market.database, DEVNET, later)
    assert market.node(PROVIDER).status == ProviderStatus.ACTIVE
    assert market.node(PROVIDER).reason == "stake_sufficient"


def test_heartbeats_share_hourly_row_with_minimum_stake(market: RewardsWorld) -> None:
    at = market.now().replace(minute=5, second=0)
    with market.database.transaction() as session:
        for minutes in (0, 0, 3):
            hour, bit = minute_of((at + timedelta(minutes=minutes)).timestamp())
            record_repository.mark_minute(session, PROVIDER.address, hour, bit)
        session.execute(update(Provider).where(Provider.address == PROVIDER.address).values(status="benchmarked"))
        record_repository.mark_minute(session, PROVIDER.address, hour, 1 << 20)
        record_repository.mark_minute(session, OTHER.address, hour, 1)
    found = {row.provider: (row.minutes, row.stake_wei) for row in market.all(select(HeartbeatHour))}
    assert found == {PROVIDER.address: (1 << 5 | 1 << 8 | 1 << 20, 0), OTHER.address: (1, STAKE)}
