"""Auction rounds: order selection, random tie-break, no trade twice or late."""

from collections.abc import Sequence
from datetime import timedelta

import pytest
from kit.jobs.auction_rounds import Blocks, clear_when_due, thick
from kit.jobs.jobs_fixtures import ENVIRONMENT, ZEN, World, at_once
from sqlalchemy import case, select, update

from market.accounts.service import Principal
from market.auctions import clearing
from market.auctions.models import AuctionRound
from market.chain.errors import RpcUnavailable
from market.domain.lifecycle import JobStatus, ProviderStatus
from market.domain.network import DEVNET
from market.jobs.models import Job, Slot
from market.orders import amendments
from market.platform.db.session import database_now
from market.providers import repository as providers
from market.providers.models import AskRow, Provider
from market.training.leases import service as leases
from market.training.matching import book

RESERVE = DEVNET.tier("bronze").reserve_price_wei
OTHER_CLASS = "0x" + "0f" * 32


class SilentBlocks(Blocks):
    def head_number(self) -> int:
        raise RpcUnavailable("no answer")


def rounds(world: World, **where: object) -> Sequence[AuctionRound]:
    return world.all(select(AuctionRound).filter_by(**where).order_by(AuctionRound.id))


def statuses(world: World, jobs: Sequence[str]) -> list[str]:
    return [world.read(job).status for job in jobs]


def test_round_without_tie_break_clears_and_next_opens(world: World) -> None:
    job_id = world.job(nodes=2)
    nodes = [world.node(price=price * ZEN // 10) for price in (23, 20, 24)]  # 24 with the fee exceeds the reserve
    assert clearing.clear_due(world.database, world.settings, DEVNET) == 0  # opens the books
    assert clearing.clear_due(world.database, world.settings, DEVNET) == 0  # not due
    assert clear_when_due(world) == 1
    job = world.read(job_id)
    assert (job.status, job.clearing_price_wei, job.environment_class) == ("running", RESERVE, ENVIRONMENT)
    assert world.call(leases.busy_providers) == set(nodes[:2])
    assert ("jobs.dispatch", (job_id,)) in world.wakes.seen
    done, following = rounds(world)
    assert (done.status, done.reason, done.rule, done.seed_block) == ("cleared", "traded", "posted", None)
    assert (following.number, following.status, following.book) == (1, "open", {})


def test_tie_break_block_is_named_when_orders_close(world: World) -> None:
    jobs, nodes = thick(world)
    blocks = Blocks()
    assert clear_when_due(world) == 0
    closed = rounds(world, number=0)[0]
    assert (closed.status, closed.seed_block, closed.price_wei) == ("closed", None, None)
    assert "auctions.draw" in world.wakes.names()
    assert len(rounds(world, status="open")) == 1  # the next secret is committed to already
    assert clearing.draw_due(world.database, world.settings, DEVNET, blocks) == 0
    named = rounds(world, number=0)[0].seed_block
    assert named == blocks.head + DEVNET.seed_delay_blocks
    for head in (100, named):  # not there yet, then without a block on top
        blocks.head = head
        assert clearing.draw_due(world.database, world.settings, DEVNET, blocks) == 0
        assert statuses(world, jobs) == ["matching"] * 5
    late = world.job(nodes=1)
    blocks.head = named + 1
    assert clearing.draw_due(world.database, world.settings, DEVNET, blocks) == 4
    done = rounds(world, number=0)[0]
    assert (done.status, done.price_wei, done.seed_block_hash) == ("cleared", 4 * ZEN, blocks.block_hash(named))
    assert statuses(world, [*jobs, late]).count("running") == 4
    assert world.read(late).status == "matching"
    assert len(world.call(leases.busy_providers) & set(nodes)) == 4
    assert clearing.draw_due(world.database, world.settings, DEVNET, blocks) == 0


def test_tie_break_waits_without_loss_while_chain_silent(world: World) -> None:
    jobs, _nodes = thick(world)
    clear_when_due(world)
    with pytest.raises(RpcUnavailable):
        clearing.draw_due(world.database, world.settings, DEVNET, SilentBlocks())
    assert clear_when_due(world) == 0  # the same orders enter no second round until then
    assert [auction.status for auction in rounds(world)] == ["closed", "open"]
    assert statuses(world, jobs) == ["matching"] * 5


def draw(world: World) -> int:
    blocks = Blocks()
    clearing.draw_due(world.database, world.settings, DEVNET, blocks)
    blocks.head += 10
    return clearing.draw_due(world.database, world.settings, DEVNET, blocks)


def test_job_ended_after_close_leaves_node_free(world: World) -> None:
    jobs, _nodes = thick(world)
    clear_when_due(world)
    cancelled, overdue = jobs[0], jobs[1]
    with world.database.transaction() as session:
        principal = Principal(world.read(cancelled).payer, False, 1, "session")
        amendments.cancel(session, principal, cancelled)
        session.execute(update(Job).where(Job.id == overdue).values(wait_until=database_now(session)))
    assert draw(world) == 2
    assert statuses(world, jobs[:2]) == ["cancelled", "matching"]
    done = rounds(world, number=0)[0]
    assert sorted(match["placed"] for match in done.matches) == [False, False, True, True]
    assert len(world.call(leases.busy_providers)) == 2
    assert book.expire_due(world.database, world.call(database_now)) == 1
    assert world.read(overdue).status == JobStatus.EXPIRED


def test_job_lowered_after_close_is_not_overcharged(world: World) -> None:
    jobs, _nodes = thick(world)
    clear_when_due(world)
    payer = Principal(world.read(jobs[0]).payer, False, 1, "session")
    world.call(amendments.amend, payer, jobs[0], RESERVE, None)
    assert draw(world) == 3
    assert statuses(world, jobs) == ["matching", "running", "running", "running", "matching"]
    assert rounds(world, number=0)[0].price_wei == 4 * ZEN


def test_ask_binds_after_close_except_for_jailed_node(world: World) -> None:
    jobs, nodes = thick(world)
    clear_when_due(world)
    world.execute(
        update(AskRow).where(AskRow.provider != nodes[0]).values(status="cancelled"),
        update(Provider).where(Provider.address == nodes[0]).values(status=ProviderStatus.JAILED),
    )
    placed = draw(world)
    assert nodes[0] not in world.call(leases.busy_providers)
    sold = [ask for match in rounds(world, number=0)[0].matches for ask in match["asks"]]
    owners = rounds(world, number=0)[0].owners["asks"]
    assert placed == (3 if nodes[0] in {owners[ask] for ask in sold} else 4)
    assert statuses(world, jobs).count("running") == placed


def let_close_first(world: World, zone: str) -> None:
    first = case((AuctionRound.zone == zone, "0x" + "00" * 32), else_="0x" + "ff" * 32)
    world.execute(update(AuctionRound).where(AuctionRound.status == "open").values(secret=first))


def test_job_enters_one_clearing_and_every_accepted_zone(world: World) -> None:
    everywhere = [world.job(nodes=1) for _ in range(5)]
    for zone in ("eu", "us"):
        for _ in range(5):
            world.node(region=zone)
    clearing.clear_due(world.database, world.settings, DEVNET)
    let_close_first(world, "us")
    clear_when_due(world)
    closed = rounds(world, status="closed")
    assert [auction.zone for auction in closed] == ["us"]  # the jobs are held there
    assert set(closed[0].owners["bids"].values()) == set(everywhere)
    assert draw(world) == 4
    let_close_first(world, "eu")
    assert clear_when_due(world) == 1  # the fifth, in the other zone
    assert statuses(world, everywhere) == ["running"] * 5
    assert {auction.zone: len(auction.matches) for auction in rounds(world, status="cleared")} == {"us": 4, "eu": 1}


def test_job_runs_only_in_accepted_zones(world: World) -> None:
    here = world.job(nodes=1, requirements={"regions": ["us"]})
    elsewhere = world.job(nodes=1, requirements={"excluded_regions": ["eu"]})
    world.node(region="eu")
    assert clear_when_due(world) == 0
    nodes = {world.node(region="us") for _ in range(2)}
    assert clear_when_due(world) == 2
    assert statuses(world, [here, elsewhere]) == ["running", "running"]
    assert world.call(leases.busy_providers) == nodes


def test_expired_order_enters_no_clearing(world: World) -> None:
    late, node = world.job(nodes=1), world.node()
    world.change(Job, late, wait_until=world.call(database_now))
    assert clear_when_due(world) == 0
    timely = world.job(nodes=1)
    world.call(lambda session: session.execute(update(AskRow).values(valid_until=database_now(session))))
    assert clear_when_due(world) == 0
    assert statuses(world, [late, timely]) == ["matching", "matching"]
    world.call(lambda session: providers.expire_asks(session, database_now(session)))
    assert [ask.status for ask in world.call(providers.asks_of, node)] == ["expired"]


def test_node_holding_replica_is_not_sold_again(world: World) -> None:
    both = [world.job(nodes=2) for _ in range(2)]
    for _ in range(3):
        world.node()
    assert clear_when_due(world) == 1
    assert sorted(statuses(world, both)) == ["matching", "running"]
    assert clear_when_due(world) == 0
    world.node()
    assert clear_when_due(world) == 1
    assert statuses(world, both) == ["running", "running"]


def test_job_nodes_share_one_environment(world: World) -> None:
    job_id = world.job(nodes=2)
    world.node()
    world.node(environment=OTHER_CLASS)
    assert clear_when_due(world) == 0
    assert world.read(job_id).status == "matching"
    world.node(environment=OTHER_CLASS)
    assert clear_when_due(world) == 1
    assert world.read(job_id).environment_class == OTHER_CLASS


def test_many_workers_at_once_match_every_job_once(world: World) -> None:
    jobs, nodes = thick(world)
    clear_when_due(world)
    blocks = Blocks()
    clearing.draw_due(world.database, world.settings, DEVNET, blocks)
    blocks.head += 10

    def work() -> None:
        clearing.draw_due(world.database, world.settings, DEVNET, blocks)
        clear_when_due(world)

    assert at_once([work] * 6) == [None] * 6
    draw(world)
    clear_when_due(world)  # the thread that came second may have left the fifth to the next round
    draw(world)
    slots = world.all(select(Slot))
    assert sorted(slot.job_id for slot in slots) == sorted(jobs)  # the fifth found the fifth node at the reserve
    assert {slot.provider for slot in slots} == set(nodes)


def raise_ask(world: World, node: str, age: timedelta) -> None:
    placed = world.call(database_now) - age
    world.execute(update(AskRow).where(AskRow.provider == node).values(min_price_wei=9 * ZEN, created_at=placed))


def test_node_raising_ask_serves_notice_at_old_price(world: World) -> None:
    raised, steady = nodes = [world.node() for _ in range(2)]
    job_id = world.running(nodes, rounds=3)
    spare = world.node()
    notice = timedelta(seconds=world.settings.price_notice_seconds)
    raise_ask(world, raised, notice - timedelta(minutes=1))
    world.train_round(job_id, nodes)
    assert world.holders(job_id) == nodes
    raise_ask(world, raised, notice + timedelta(minutes=1))
    world.dispatch(job_id)  # in the middle of a round nothing changes: its unit is out
    assert world.holders(job_id) == nodes
    world.train_round(job_id, nodes)
    assert world.holders(job_id) == [spare, steady]
    assert world.read(job_id).current_round == 2
    assert world.read(job_id).clearing_price_wei == 5 * ZEN // 2
