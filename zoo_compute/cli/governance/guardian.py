"""``zoo-compute guardian``: payouts under their countdown, vetoes, and pauses of intake."""

import time
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from zoo_compute.base.amounts import format_zen
from zoo_compute.base.errors import ConfigError, Mismatch
from zoo_compute.cli.governance.flow import ExportTo, NoWait, Sender, governance_chain, perform, prepare
from zoo_compute.cli.session import ApiUrl, open_client
from zoo_compute.terminal.output import JsonFlag, JsonOfSent, Yes, print_json, print_table

if TYPE_CHECKING:
    from zoo_compute.chain.governance import ChallengedPayout

app = typer.Typer(name="guardian", help="Watch payouts, veto them, and pause intake.", no_args_is_help=True)
_SHOWN_PAYEES = 3
Stakes = Annotated[bool, typer.Option("--stakes", help="Select new stakes, not deposits and new jobs.")]


@app.command()
def watch(
    follow: Annotated[
        int | None, typer.Option(help="Repeat after this many seconds, until interrupted.", min=1, metavar="SECONDS")
    ] = None,
    api_url: ApiUrl = None,
    as_json: JsonFlag = False,
) -> None:
    """Show payouts under their countdown. Exit code 6 if one is not in the market's record.

    The chain names batches and amounts. The market's record names the payees.
    """
    with open_client(api_url) as client:
        chain = governance_chain(client)
        while True:
            recorded = client.connection.get("/v1/governance/payouts")
            known = {(one["kind"], one["number"]): one for one in recorded}
            found = [_compared(one, known.get((one.kind, one.number))) for one in chain.challenged_payouts()]
            _print(found, as_json=as_json)
            if follow is None:
                break
            time.sleep(follow)
    wrong = [f"{one['kind']} {one['number']}" for one in found if not one["agrees"]]
    if wrong:
        raise Mismatch(
            "payout-differs",
            f"not as in the market's record: {', '.join(wrong)}",
            remedy="A payout that is not final yet is not in the record: repeat this. Otherwise veto it.",
        )


@app.command()
def veto(
    batch: Annotated[int | None, typer.Option(help="Veto this settlement batch.", min=1, metavar="NUMBER")] = None,
    epoch: Annotated[bool, typer.Option("--epoch", help="Veto the pending reward epoch.")] = False,
    sender: Sender = None,
    export: ExportTo = None,
    yes: Yes = False,
    no_wait: NoWait = False,
    api_url: ApiUrl = None,
    as_json: JsonOfSent = False,
) -> None:
    """Veto a settlement batch or the pending reward epoch, before its countdown ends."""
    if (batch is None) != epoch:
        raise ConfigError(
            "veto-ambiguous", "expected either --batch or --epoch", remedy="Run: zoo-compute guardian watch"
        )
    with open_client(api_url) as client:
        chain = governance_chain(client)
        if batch is None:
            prepared = prepare(chain, "rewards.veto", {})
        else:
            prepared = prepare(chain, "escrow.veto", chain.veto_arguments(batch))
        perform(client, chain, prepared, sender=sender, export=export, yes=yes, no_wait=no_wait, as_json=as_json)


@app.command()
def pause(
    stakes: Stakes = False,
    sender: Sender = None,
    export: ExportTo = None,
    yes: Yes = False,
    no_wait: NoWait = False,
    api_url: ApiUrl = None,
    as_json: JsonOfSent = False,
) -> None:
    """Pause deposits and new jobs (or new stakes) for at most 72 hours."""
    with open_client(api_url) as client:
        chain = governance_chain(client)
        prepared = prepare(chain, "staking.pause" if stakes else "escrow.pause", {})
        perform(client, chain, prepared, sender=sender, export=export, yes=yes, no_wait=no_wait, as_json=as_json)


@app.command()
def unpause(
    stakes: Stakes = False,
    sender: Sender = None,
    export: ExportTo = None,
    yes: Yes = False,
    no_wait: NoWait = False,
    api_url: ApiUrl = None,
    as_json: JsonOfSent = False,
) -> None:
    """End a pause early."""
    with open_client(api_url) as client:
        chain = governance_chain(client)
        prepared = prepare(chain, "staking.unpause" if stakes else "escrow.unpause", {})
        perform(client, chain, prepared, sender=sender, export=export, yes=yes, no_wait=no_wait, as_json=as_json)


def _compared(payout: "ChallengedPayout", record: dict[str, Any] | None) -> dict[str, Any]:
    """Return a payout of the chain with the differences from the market's record."""
    if record is None:
        differences = ["The market's record does not list it."]
    elif record["root"] != payout.root:
        differences = ["The market's record has other contents."]
    else:
        differences = list(record["differences"])
        if payout.net_wei is not None and int(record["net_wei"]) != payout.net_wei:
            differences.append(f"The market's record has {record['net_wei']} wei, the chain {payout.net_wei} wei.")
    net = payout.net_wei if payout.net_wei is not None else int(record["net_wei"]) if record else None
    return {
        "kind": payout.kind,
        "number": payout.number,
        "root": payout.root,
        "claimable_at": datetime.fromtimestamp(payout.claimable_at, UTC).isoformat(),
        "seconds_left": max(0, payout.claimable_at - int(time.time())),
        "net_wei": None if net is None else str(net),
        "lines": [{**asdict(line), "paid_wei": str(line.paid_wei)} for line in payout.lines],
        "payees": record["payees"] if record else [],
        "payee_count": record["payee_count"] if record else None,
        "agrees": not differences,
        "differences": differences,
    }


def _print(found: list[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    rows = []
    for one in found:
        payees = [f"{payee['account']} {format_zen(int(payee['amount_wei']))}" for payee in one["payees"]]
        more = (one["payee_count"] or 0) - _SHOWN_PAYEES
        shown = "; ".join(payees[:_SHOWN_PAYEES]) + (f"; {more} more" if more > 0 else "")
        net = "-" if one["net_wei"] is None else f"{format_zen(int(one['net_wei']))} ZEN"
        verdict = "as recorded" if one["agrees"] else " ".join(one["differences"])
        rows.append([f"{one['kind']} {one['number']}", one["claimable_at"], net, shown or "-", verdict])
    print_table(("payout", "claimable from", "amount", "payees", "market's record"), rows)
