"""``zoo-compute admin``: checks, parameters, acts and the audit log of a market."""

from typing import Annotated

import typer

from zoo_compute.base.amounts import format_zen
from zoo_compute.base.errors import Mismatch
from zoo_compute.cli.governance.flow import (
    ExportTo,
    NoWait,
    Sender,
    governance_chain,
    pairs,
    perform,
    prepare,
)
from zoo_compute.cli.governance.operations import cancel, execute
from zoo_compute.cli.session import ApiUrl, open_client
from zoo_compute.terminal.output import (
    JsonFlag,
    JsonOfSent,
    Yes,
    print_facts,
    print_json,
    print_records,
    print_rows,
    report_done,
)

app = typer.Typer(name="admin", help="Check and govern a market as its operator or admin.", no_args_is_help=True)


@app.command()
def reconcile(api_url: ApiUrl = None, as_json: JsonFlag = False) -> None:
    """Show the market's last comparison of ledger and chain. Exit code 6 if they differ."""
    with open_client(api_url) as client:
        found = client.connection.get("/v1/ledger/reconciliation")
    if as_json:
        print_json(found)
    else:
        names = ("agrees", "compared_at", "block_number", "block_hash", "checked", "difference_wei")
        stray = {name: found[f"unattributed_{name}_wei"] for name in ("escrow", "stake")}
        print_facts(
            {name: found[name] for name in names}
            | {f"stray in {name}": f"{format_zen(int(wei))} ZEN" for name, wei in stray.items()}
        )
        if found["differences"]:
            print_records(("name", "ledger_wei", "chain_wei"), found["differences"])
    if not found["agrees"]:
        raise Mismatch(
            "ledger-differs",
            f"ledger and chain differ by {found['difference_wei']} wei at block {found['block_number']}",
            remedy="Pause new jobs and compare the listed accounts. See the operator guide.",
        )


@app.command()
def acts(as_json: JsonFlag = False) -> None:
    """List all acts: what each does, the role it needs, its delay and its arguments."""
    from zoo_protocol.acts.table import ACTS

    rows = [
        {
            "act": act.key,
            "title": act.title,
            "contract": act.contract,
            "role": act.role,
            "delay": act.delay.value,
            "arguments": {one.name: one.expected for one in act.parameters},
        }
        for act in ACTS.values()
    ]
    columns = ("act", "title", "role", "delay", "arguments")
    shown = [[row["act"], row["title"], row["role"], row["delay"], " ".join(row["arguments"])] for row in rows]  # type: ignore[arg-type]
    print_rows(rows, columns, shown, as_json=as_json)


@app.command()
def act(
    key: Annotated[str, typer.Argument(help="Key of the act, from `admin acts`.", metavar="ACT")],
    arguments: Annotated[list[str] | None, typer.Argument(help="Arguments.", metavar="NAME=VALUE")] = None,
    sender: Sender = None,
    export: ExportTo = None,
    yes: Yes = False,
    no_wait: NoWait = False,
    api_url: ApiUrl = None,
    as_json: JsonOfSent = False,
) -> None:
    """Send an act with your wallet, or propose it in the timelock if its role is the timelock's."""
    given = pairs(arguments or [])
    with open_client(api_url) as client:
        chain = governance_chain(client)
        prepared = prepare(chain, key, given)
        perform(client, chain, prepared, sender=sender, export=export, yes=yes, no_wait=no_wait, as_json=as_json)


@app.command()
def release(
    provider: Annotated[str, typer.Argument(help="Account in jail.", metavar="ADDRESS")],
    sender: Sender = None,
    export: ExportTo = None,
    yes: Yes = False,
    no_wait: NoWait = False,
    api_url: ApiUrl = None,
    as_json: JsonOfSent = False,
) -> None:
    """Propose the release of a provider from jail in the timelock."""
    with open_client(api_url) as client:
        chain = governance_chain(client)
        prepared = prepare(chain, "staking.release", {"provider": provider})
        perform(client, chain, prepared, sender=sender, export=export, yes=yes, no_wait=no_wait, as_json=as_json)


app.command()(execute)
app.command()(cancel)


@app.command()
def parameters(api_url: ApiUrl = None, as_json: JsonFlag = False) -> None:
    """Show the contracts' parameters, and the changes that wait in the timelock."""
    from zoo_protocol.acts.table import OFFENCES, TIERS

    with open_client(api_url) as client:
        found = governance_chain(client).parameters()
        pending = client.connection.get("/v1/governance/operations", {"pending": True})["items"]
    if as_json:
        print_json({"parameters": {name: str(value) for name, value in found.items()}, "pending": pending})
        return
    facts = {
        "fee": f"{found['fee_bps'] / 100:g} % of pay",
        "yearly uptime reward": f"{found['rewards_bps'] / 100:g} % of stake",
        "timelock": f"{found['timelock_seconds']} s",
    }
    for tier, name in TIERS:
        facts[f"minimum stake {name}"] = f"{format_zen(found[f'minimum_stake_{tier}_wei'])} ZEN"
    for offence, name in OFFENCES:
        share = found[f"penalty_{offence}_dispute_share_bps"] / 100
        facts[f"penalty {name}"] = f"{found[f'penalty_{offence}_bps'] / 100:g} % (dispute's share {share:g} %)"
    print_facts(facts)
    for one in pending:
        print_facts({f"{one['status']}, executable from {one['ready_at']}": " ".join(one["words"])})


@app.command()
def audit(
    actor: Annotated[str | None, typer.Option(help="Select an actor: an address, or market.")] = None,
    kind: Annotated[str | None, typer.Option(help="Select a kind of subject, such as job.")] = None,
    subject: Annotated[str | None, typer.Option(help="Select the id of a subject.")] = None,
    search: Annotated[str | None, typer.Option(help="Find a text in event, reason or data.")] = None,
    limit: Annotated[int, typer.Option(help="Show at most this many.", min=1, metavar="COUNT")] = 50,
    api_url: ApiUrl = None,
    as_json: JsonFlag = False,
) -> None:
    """Show the audit log, newest first. Needs the role admin and a wallet."""
    from itertools import islice

    asked = {"actor": actor, "kind": kind, "subject": subject, "search": search, "limit": min(limit, 200)}
    given = {name: value for name, value in asked.items() if value is not None}
    with open_client(api_url) as client:
        found = list(islice(client.connection.pages("/v1/audit", "items", "next_after", given), limit))
    columns = ("id", "created_at", "subject_kind", "subject_id", "event", "from_status", "to_status", "reason", "actor")
    print_rows(found, columns, [[one[name] for name in columns] for one in found], as_json=as_json)


@app.command()
def alarms(api_url: ApiUrl = None, as_json: JsonFlag = False) -> None:
    """Show governance events that were neither sent from here nor acknowledged."""
    with open_client(api_url) as client:
        found = client.connection.get("/v1/governance/alarms")
    columns = ("id", "at", "words", "tx_hash")
    print_rows(found, columns, [[one[name] for name in columns] for one in found], as_json=as_json)


@app.command()
def acknowledge(
    event_id: Annotated[int, typer.Argument(help="Id of the event.", metavar="EVENT")],
    api_url: ApiUrl = None,
    as_json: JsonFlag = False,
) -> None:
    """End an alarm. Needs the role admin and a wallet."""
    with open_client(api_url) as client:
        client.connection.post(f"/v1/governance/events/{event_id}/acknowledge", repeatable=True)
    report_done(f"event {event_id} is acknowledged", {"id": event_id, "acknowledged": True}, as_json=as_json)
