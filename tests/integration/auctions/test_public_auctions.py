"""Public auction data: nothing before clearing, then all that a replay needs."""

import json
from collections.abc import Iterator
from datetime import datetime, timedelta

import httpx
import pytest
from eth_account import Account
from kit.api.clients import Cli, refusal, sign_in
from kit.chain.anvil import CHAIN_ID, AnvilProcess
from kit.jobs.jobs_fixtures import ENVIRONMENT, ZEN, World
from sqlalchemy import update

from market.auctions import clearing
from market.auctions.models import AuctionRound
from market.chain.contracts.codec import Deployment
from market.chain.rpc.client import ChainClient
from market.chain.views import ChainViews
from market.domain.network import DEVNET
from market.jobs.models import Job
from market.platform.db.base import utc_now
from zoo_compute.base.errors import ExitCode
from zoo_protocol.auction import book_hash, commitment
from zoo_protocol.contracts import CONTRACTS
from zoo_protocol.hashing import from_hex, to_hex

RESERVE = DEVNET.tier("bronze").reserve_price_wei
BOOK = "/v1/auctions/bronze.eu"
SECRET_LIMIT = 3_141_592_653_589_793_238


@pytest.fixture
def own_chain() -> Iterator[AnvilProcess]:
    with AnvilProcess() as process:
        yield process


def close(world: World) -> int:
    clearing.clear_due(world.database, world.settings, DEVNET)
    world.execute(update(AuctionRound).values(closes_at=utc_now()))
    return clearing.clear_due(world.database, world.settings, DEVNET)


def everything_public(api: httpx.Client) -> str:
    paths = ["/v1/auctions", f"{BOOK}/rounds", f"{BOOK}/rounds/latest", f"{BOOK}/rounds/0", f"{BOOK}/history"]
    return "".join(api.get(path).text for path in [*paths, "/v1/providers", "/metrics", "/console"])


def test_tie_break_round_is_sealed_then_replayable(
    world: World, api: httpx.Client, own_chain: AnvilProcess, cli: Cli
) -> None:
    jobs = [world.job(nodes=1, max_price=SECRET_LIMIT + rank) for rank in range(5)]
    nodes = [world.node(price=SECRET_LIMIT // 2 + rank) for rank in range(5)]
    chain = ChainViews(
        ChainClient(own_chain.url, CHAIN_ID),
        Deployment("devnet", CHAIN_ID, 0, {name: str(Account.create().address) for name in CONTRACTS}),
    )
    sealed = [str(SECRET_LIMIT)[:12], str(SECRET_LIMIT // 2)[:12], *jobs]

    def nothing_leaks() -> None:
        seen = everything_public(api)
        assert not [text for text in sealed if text in seen]

    clearing.clear_due(world.database, world.settings, DEVNET)
    opened = api.get(f"{BOOK}/rounds/latest").json()
    assert (opened["status"], opened["secret"], opened["orders"], opened["matches"]) == ("open", None, None, [])
    nothing_leaks()
    assert close(world) == 0
    clearing.draw_due(world.database, world.settings, DEVNET, chain)
    closed = api.get(f"{BOOK}/rounds/0").json()
    assert (closed["status"], closed["secret"], closed["orders"], closed["bid_nodes"]) == ("closed", None, None, None)
    assert closed["seed_block"] > chain.head_number()
    nothing_leaks()
    refused = cli("auction", "replay", "bronze.eu", "0", "--json", code=ExitCode.MISMATCH)
    assert json.loads(refused)["error"]["code"] == "round-not-cleared"

    own_chain.mine(DEVNET.seed_delay_blocks + 1)
    assert clearing.draw_due(world.database, world.settings, DEVNET, chain) == 4
    round_ = api.get(f"{BOOK}/rounds/0").json()
    assert (round_["status"], round_["rule"]) == ("cleared", "sbba")
    assert to_hex(commitment(from_hex(round_["secret"]))) == round_["commitment"] == opened["commitment"]
    assert to_hex(book_hash(round_["orders"])) == round_["book_hash"] == closed["book_hash"]
    assert (round_["seed_block"], round_["price_wei_per_gpu_hour"]) == (closed["seed_block"], str(SECRET_LIMIT))
    names = {order["id"] for side in ("bids", "asks") for order in round_["orders"][side]}
    assert len(names) == 10
    assert not names & {*jobs, *nodes}

    report = cli.json("auction", "replay", "bronze.eu", "0", "--rpc", own_chain.url)
    assert (report["agrees"], report["lot"], report["block_checked"]) == (True, True, True)
    assert report["fills"] == {match["bid"]: match["asks"] for match in round_["matches"]}
    with AnvilProcess() as other:  # another chain has another block at that height
        other.rpc("evm_increaseTime", 3600)  # begun in the same second, it would have the same blocks
        other.mine(closed["seed_block"] + 1)
        differs = cli("auction", "replay", "bronze.eu", "0", "--rpc", other.url, code=ExitCode.MISMATCH)
    assert "seed_block_hash" in differs
    assert "not compared with the chain" in cli("auction", "replay", "bronze.eu", "0")

    payer = world.wallets[world.read(jobs[4]).payer]
    own = sign_in(api, payer).get(f"{BOOK}/rounds/0/orders").json()
    assert (list(own["bids"].values()), own["asks"]) == ([jobs[4]], {})
    assert set(own["bids"]) < names
    node = sign_in(api, world.wallets[nodes[0]]).get(f"{BOOK}/rounds/0/orders").json()
    assert (node["bids"], list(node["asks"].values())) == ({}, [nodes[0]])
    refusal(api.get(f"{BOOK}/rounds/0/orders"), 401, "not-authenticated")


def test_posted_round_needs_no_block_and_reveals_tampering(world: World, api: httpx.Client, cli: Cli) -> None:
    world.job(nodes=2)
    for _ in range(3):
        world.node()
    assert close(world) == 1
    round_ = api.get(f"{BOOK}/rounds/0").json()
    found = (round_["rule"], round_["seed_block"], round_["orders"]["environment_class"])
    assert found == ("posted", None, ENVIRONMENT)
    assert "not needed" in cli("auction", "replay", "bronze.eu", "0", "--rpc", "http://127.0.0.1:1")
    matches = [match | {"asks": match["asks"][:1]} for match in round_["matches"]]
    world.execute(update(AuctionRound).where(AuctionRound.number == 0).values(matches=matches))
    cli("auction", "replay", "bronze.eu", "0", "--json", code=ExitCode.MISMATCH)
    differences = [item["where"] for item in json.loads(cli.stdout)["differences"]]
    assert differences == [f"fill of {matches[0]['bid']}", "sellers"]


def test_rounds_are_listed_newest_first_in_pages(world: World, api: httpx.Client, cli: Cli) -> None:
    for _ in range(3):
        world.job(nodes=1)
        world.node()
        assert close(world) == 1
    first = api.get(f"{BOOK}/rounds", params={"limit": 2}).json()
    assert [item["number"] for item in first["items"]] == [3, 2]
    second = api.get(f"{BOOK}/rounds", params={"limit": 2, "after": first["next_after"]}).json()
    assert ([item["number"] for item in second["items"]], second["next_after"]) == ([1, 0], 0)
    assert api.get(f"{BOOK}/rounds", params={"after": 0}).json() == {"items": [], "next_after": None}
    assert "orders" not in second["items"][0]
    assert [book["book"] for book in api.get("/v1/auctions").json()] == ["bronze.eu"]
    listed = cli("auction", "rounds", "bronze.eu", "--limit", "2").splitlines()
    assert [line.split("\t")[0] for line in listed] == ["number", "3", "2"]
    assert cli("auction", "books").splitlines()[1].split("\t") == ["bronze.eu", "3", "open", "2.5"]


def traded(world: World, at: datetime, wait: timedelta) -> None:
    job_id = world.job(nodes=1)
    world.node()
    world.execute(update(Job).where(Job.id == job_id).values(funded_at=utc_now() - wait))
    assert close(world) == 1
    world.execute(
        update(AuctionRound).where(AuctionRound.id == world.read(job_id).auction_round_id).values(cleared_at=at)
    )


def test_history_lists_prices_volumes_depths_and_waits(world: World, api: httpx.Client, cli: Cli) -> None:
    noon = datetime.fromisoformat("2026-01-02T12:00:00+00:00")
    for minutes, wait in ((5, 100), (50, 300), (70, 500)):
        traded(world, noon + timedelta(minutes=minutes), timedelta(seconds=wait))
    priced = {"price_wei": 4 * ZEN, "volume_us": 3 * 72_000_000}
    world.execute(update(AuctionRound).where(AuctionRound.number == 1).values(priced))
    world.node()
    span = {"from": "2026-01-02T12:00:00Z", "to": "2026-01-02T18:00:00Z", "bucket": "1h"}
    history = api.get(f"{BOOK}/history", params=span).json()
    assert [point["start"] for point in history["points"]] == ["2026-01-02T12:00:00Z", "2026-01-02T13:00:00Z"]
    first, second = history["points"]
    assert (first["rounds"], first["last_wei"], first["low_wei"]) == (2, str(4 * ZEN), str(RESERVE))
    assert int(first["mean_wei"]) == (RESERVE + 3 * 4 * ZEN) // 4  # weighted by volume
    assert first["volume_us"] == str(4 * 72_000_000)
    assert (first["bid_nodes"], first["ask_nodes"]) == (1, 1)
    assert 100_000 <= first["fill_p50_ms"] < 250_000
    assert 300_000 <= first["fill_p90_ms"] < 450_000
    assert (second["rounds"], second["high_wei"]) == (1, str(RESERVE))
    finer = api.get(f"{BOOK}/history", params=span | {"bucket": "15m"}).json()["points"]
    assert [point["start"][11:16] for point in finer] == ["12:00", "12:45", "13:00"]
    assert api.get(f"{BOOK}/history").json()["points"] == []
    span_shown = ("--from", "2026-01-02", "--to", "2026-01-03T00:00:00", "--bucket", "1h")
    shown = cli("auction", "history", "bronze.eu", *span_shown)
    assert shown.splitlines()[1].split("\t")[:4] == ["2026-01-02T12:00:00Z", "2", "4", "3.625"]

    refusal(api.get(f"{BOOK}/history", params=span | {"bucket": "2h"}), 422, "invalid-request")
    refusal(api.get(f"{BOOK}/history", params={"from": "2026-01-02T12:00:00"}), 422, "invalid-request")
    refusal(api.get(f"{BOOK}/history", params=span | {"to": span["from"]}), 422, "history-span-invalid")
    long = {"from": "2024-01-01T00:00:00Z", "to": "2026-01-01T00:00:00Z", "bucket": "1m"}
    refusal(api.get(f"{BOOK}/history", params=long), 422, "history-span-invalid")
    refusal(api.get(f"{BOOK}/history", params={"from": "0001-01-01T00:00:00+14:00"}), 422, "invalid-request")


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("platinum.eu/rounds/0", 404, "auction-book-not-found"),
        ("bronze.eu/rounds/0", 404, "auction-round-not-found"),
        ("bronze.eu/rounds/latest", 404, "auction-round-not-found"),
        ("bronze.eu/rounds/x", 422, "invalid-request"),
        ("bronze/rounds/0", 422, "invalid-request"),
    ],
)
def test_missing_round_is_named(api: httpx.Client, path: str, status: int, code: str) -> None:
    refusal(api.get(f"/v1/auctions/{path}"), status, code)


def test_cleared_round_reveals_only_existence_of_open_one(world: World, api: httpx.Client) -> None:
    world.job(nodes=1, max_price=RESERVE - 1)  # never trades
    world.node()
    assert close(world) == 0
    latest = api.get(f"{BOOK}/rounds/latest").json()
    assert (latest["number"], latest["status"], latest["bid_nodes"]) == (0, "open", None)
    assert clearing.clear_due(world.database, world.settings, DEVNET) == 0
    assert api.get(f"{BOOK}/rounds/latest").json() == latest
