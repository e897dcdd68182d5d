"""``zoo-compute auction``: prices, and recomputed auction rounds."""

from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer

from zoo_compute.cli.session import ApiUrl, open_client
from zoo_compute.terminal.output import JsonFlag, print_facts, print_json, print_note, print_rows, print_table, zen

app = typer.Typer(name="auction", help="Show prices, and recompute auction rounds.", no_args_is_help=True)
Book = Annotated[str, typer.Argument(help="Tier and zone, such as bronze.eu-west.", metavar="BOOK")]
_FORMATS = ["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%S%z"]
Start = Annotated[
    datetime | None, typer.Option("--from", formats=_FORMATS, help="Start, UTC; default: a day before the end.")
]
End = Annotated[datetime | None, typer.Option("--to", formats=_FORMATS, help="End, UTC; default: now.")]


@app.command()
def books(api_url: ApiUrl = None, as_json: JsonFlag = False) -> None:
    """List all order books with their last prices."""
    with open_client(api_url) as client:
        found = client.connection.get("/v1/auctions")
    columns = ("book", "newest round", "status", "last ZEN per GPU-hour")
    names = ("book", "newest_round", "status")
    rows = ((*(book[name] for name in names), zen(book["last_price_wei_per_gpu_hour"])) for book in found)
    print_rows(found, columns, rows, as_json=as_json)


@app.command()
def rounds(
    book: Book,
    after: Annotated[int | None, typer.Option(min=0, help="List rounds older than this number only.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=200, help="List at most so many rounds.")] = 50,
    api_url: ApiUrl = None,
    as_json: JsonFlag = False,
) -> None:
    """List the auction rounds of an order book, newest first."""
    parameters = {"limit": limit} | ({} if after is None else {"after": after})
    with open_client(api_url) as client:
        found = client.connection.get(f"/v1/auctions/{book}/rounds", parameters)
    columns = ("number", "status", "rule", "ZEN per GPU-hour", "cleared at")
    rows = (
        (item["number"], item["status"], item["rule"], zen(item["price_wei_per_gpu_hour"]), item["cleared_at"])
        for item in found["items"]
    )
    print_rows(found, columns, rows, as_json=as_json)


@app.command()
def history(
    book: Book,
    start: Start = None,
    end: End = None,
    bucket: Annotated[str, typer.Option(help="Set the interval: 1m, 5m, 15m, 1h, 6h or 1d.")] = "1h",
    api_url: ApiUrl = None,
    as_json: JsonFlag = False,
) -> None:
    """Show prices, volume, depth and time to fill over time."""
    parameters = {"bucket": bucket}
    parameters |= {name: _utc(at).isoformat() for name, at in (("from", start), ("to", end)) if at is not None}
    with open_client(api_url) as client:
        found = client.connection.get(f"/v1/auctions/{book}/history", parameters)
    hour_us = timedelta(hours=1) // timedelta(microseconds=1)
    columns = ("from", "rounds", "last ZEN", "mean ZEN", "low", "high", "GPU-hours", "bids", "asks", "fill p50", "p90")
    rows = (
        (
            point["start"],
            point["rounds"],
            *(zen(point[f"{name}_wei"]) for name in ("last", "mean", "low", "high")),
            f"{int(point['volume_us']) / hour_us:.2f}",
            point["bid_nodes"],
            point["ask_nodes"],
            *(f"{point[name] / 1000:.1f} s" for name in ("fill_p50_ms", "fill_p90_ms")),
        )
        for point in found["points"]
    )
    print_rows(found, columns, rows, as_json=as_json)


@app.command()
def replay(
    book: Book,
    number: Annotated[int, typer.Argument(min=0, help="The round.", metavar="ROUND")],
    rpc_url: Annotated[str | None, typer.Option("--rpc", help="Compare the seed's block with this RPC's.")] = None,
    api_url: ApiUrl = None,
    as_json: JsonFlag = False,
) -> None:
    """Recompute an auction round from published data. Exit code 6 if anything differs."""
    from zoo_compute.audit import auction
    from zoo_compute.base.errors import Mismatch

    with open_client(api_url) as client:
        document = client.connection.get(f"/v1/auctions/{book}/rounds/{number}")
    seed_block = document.get("seed_block")
    block_hash = auction.hash_of_block(rpc_url, seed_block) if rpc_url and seed_block is not None else None
    done = auction.replay(document, block_hash)
    if as_json:
        print_json(_report(done, block_hash))
    else:
        _show(done, block_hash)
    if done.findings:
        raise Mismatch(
            "auction-mismatch",
            f"round {number} of {book} differs from its replay in {len(done.findings)} points",
            remedy="Report them to the market. If only the block's hash differs, there may have been a reorg.",
        )
    print_note("replayed: the market cleared this round by its rule")


def _report(done: Any, block_hash: str | None) -> dict[str, Any]:
    return {
        "book": done.published.book,
        "round": done.published.number,
        "agrees": not done.findings,
        "rule": done.computed.rule,
        "price_wei_per_gpu_hour": None if done.computed.price is None else str(done.computed.price),
        "lot": done.computed.needs_tie_break,
        "block_checked": block_hash is not None,
        "fills": done.computed.fills,
        "differences": [asdict(finding) for finding in done.findings],
    }


def _show(done: Any, block_hash: str | None) -> None:
    checked = (
        "compared with the chain"
        if block_hash
        else "not compared with the chain"
        if done.computed.needs_tie_break
        else "-"
    )
    print_facts(
        {
            "book": done.published.book,
            "round": done.published.number,
            "rule": done.computed.rule,
            "price": f"{zen(done.computed.price)} ZEN per GPU-hour",
            "orders": f"{len(done.published.orders.bids)} bids, {len(done.published.orders.asks)} asks",
            "random tie-break": "used" if done.computed.needs_tie_break else "not needed",
            "seed's block": checked,
        }
    )
    differing = {finding.where for finding in done.findings}
    placed = {match.bid: match.placed for match in done.published.matches}
    rows = [
        (bid, len(asks), placed.get(bid), "differs" if f"fill of {bid}" in differing else "same")
        for bid, asks in done.computed.fills.items()
    ]
    print_table(("bid", "nodes", "placed", "replay"), rows)
    for finding in done.findings:
        print_note(f"differs: {finding.where}: expected {finding.expected}, found {finding.found}  [{finding.code}]")


def _utc(at: datetime) -> datetime:
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at
