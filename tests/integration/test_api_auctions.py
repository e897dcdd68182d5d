"""Books that clear: jobs matched with nodes, and clearings that anybody can repeat."""

from datetime import datetime

import httpx
import pytest
from api_support import refusal
from jobs_world import ENVIRONMENT, ZEN, World
from sqlalchemy import update

from market.auctions import service
from market.auctions.models import AuctionRound
from market.db.base import utc_now
from market.domain.auction import AskOrder, BidOrder, clear
from market.domain.network import DEVNET
from market.settings import Settings
from market.storage.service import Storage
from zoo_protocol.hashing import from_hex, sha256, to_hex

RESERVE = DEVNET.tier("bronze").reserve_price_wei
OTHER_CLASS = "0x" + "0f" * 32


@pytest.fixture
def world(settings: Settings) -> World:
    return World(settings.database_url, Storage(settings.ipfs_api), settings)


def clear_when_due(world: World) -> int:
    """Open the books if need be, let the present round become due, and clear."""
    matched = service.clear_due(world.database, world.settings, DEVNET, utc_now())
    with world.database.transaction() as session:
        session.execute(update(AuctionRound).values(closes_at=utc_now()))
    return matched + service.clear_due(world.database, world.settings, DEVNET, utc_now())


def test_a_job_and_free_nodes_meet_at_the_reserve_and_the_round_can_be_repeated(
    world: World, api: httpx.Client
) -> None:
    job_id = world.job(nodes=2)
    nodes = [world.node(price=price * ZEN // 10) for price in (23, 20, 24)]  # 24 with the fee exceeds the reserve
    assert service.clear_due(world.database, world.settings, DEVNET, utc_now()) == 0  # opens the books
    latest = "/v1/auctions/bronze/rounds/latest"
    sealed = api.get(latest).json()
    assert (sealed["status"], sealed["seed"], sealed["book"], sealed["matches"]) == ("open", None, None, [])
    assert service.clear_due(world.database, world.settings, DEVNET, utc_now()) == 0  # not due
    assert clear_when_due(world) == 1

    job = world.read(job_id)
    assert (job.status, job.clearing_price_wei, job.environment_class) == ("running", RESERVE, ENVIRONMENT)
    slots = world.rows(lambda session: service.jobs.busy_providers(session))
    assert slots == set(nodes[:2])
    assert ("jobs.dispatch", (job_id,)) in world.wakes.seen

    round_ = api.get(f"/v1/auctions/bronze/rounds/{sealed['number']}").json()
    assert round_["seed_hash"] == sealed["seed_hash"] == to_hex(sha256(from_hex(round_["seed"])))
    assert (round_["status"], round_["rule"]) == ("cleared", "posted")
    assert round_["price_wei_per_gpu_hour"] == str(RESERVE)
    book = round_["book"]
    again = clear(
        [
            BidOrder(bid["id"], bid["nodes"], int(bid["limit_price_wei"]), datetime.fromisoformat(bid["time"]))
            for bid in book["bids"]
        ],
        [AskOrder(ask["id"], int(ask["min_price_wei"]), datetime.fromisoformat(ask["time"])) for ask in book["asks"]],
        int(book["reserve_price_wei"]),
        book["fee_bps"],
        from_hex(round_["seed"]),
    )
    assert [{"bid": bid, "asks": list(asks), "placed": True} for bid, asks in again.fills.items()] == round_["matches"]
    assert api.get(latest).json()["number"] == sealed["number"] + 1


def test_nodes_that_hold_a_slot_are_not_sold_again(world: World) -> None:
    first, second = world.job(nodes=2), world.job(nodes=2)
    for _ in range(3):
        world.node()
    assert clear_when_due(world) == 1
    assert {world.read(first).status, world.read(second).status} == {"running", "matching"}
    assert clear_when_due(world) == 0
    world.node()
    assert clear_when_due(world) == 1
    assert world.read(second).status == "running"


def test_all_nodes_of_a_job_are_of_one_environment(world: World) -> None:
    job_id = world.job(nodes=2)
    world.node()
    world.node(environment=OTHER_CLASS)
    assert clear_when_due(world) == 0
    assert world.read(job_id).status == "matching"
    world.node(environment=OTHER_CLASS)
    assert clear_when_due(world) == 1
    assert world.read(job_id).environment_class == OTHER_CLASS


def test_a_round_in_which_nobody_can_trade_stays_open(world: World, api: httpx.Client) -> None:
    world.job(nodes=1)
    world.node(price=100 * ZEN)
    assert clear_when_due(world) == 0
    before = api.get("/v1/auctions/bronze/rounds/latest").json()
    assert service.clear_due(world.database, world.settings, DEVNET, utc_now()) == 0
    assert api.get("/v1/auctions/bronze/rounds/latest").json() == before
    assert (before["number"], before["status"]) == (0, "open")


def test_unknown_tiers_and_rounds_are_refused(api: httpx.Client) -> None:
    refusal(api.get("/v1/auctions/platinum/rounds/0"), 422, "unknown-tier")
    refusal(api.get("/v1/auctions/bronze/rounds/0"), 404, "auction-round-not-found")
    refusal(api.get("/v1/auctions/bronze/rounds/x"), 422, "invalid-request")
