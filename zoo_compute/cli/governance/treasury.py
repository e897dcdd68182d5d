"""``zoo-compute treasury``: funds, and payments through the timelock."""

from typing import Annotated

import typer

from zoo_compute.base.amounts import format_zen
from zoo_compute.cli.governance.flow import (
    ExportTo,
    NoWait,
    Sender,
    governance_chain,
    perform,
    prepare,
)
from zoo_compute.cli.governance.operations import cancel, execute, print_operations
from zoo_compute.cli.session import ApiUrl, open_client
from zoo_compute.terminal.output import JsonFlag, JsonOfSent, Yes, print_facts, print_json

app = typer.Typer(name="treasury", help="Show the treasury, and pay from it by the timelock.", no_args_is_help=True)
GRANTS = "community-grants"


@app.command()
def show(api_url: ApiUrl = None, as_json: JsonFlag = False) -> None:
    """Show balance, funds, and the timelock's pending operations."""
    with open_client(api_url) as client:
        found = client.connection.get("/v1/treasury")
        pending = client.connection.get("/v1/governance/operations", {"pending": True})["items"]
    if as_json:
        print_json(found | {"operations": pending})
        return
    facts = {name: f"{format_zen(int(found[f'{name}_wei']))} ZEN" for name in ("balance", "received")}
    for share in found["shares"]:
        name = share["destination"].replace("_", " ")
        available, spent = (format_zen(int(share[f"{part}_wei"])) for part in ("available", "spent"))
        facts[name] = f"{available} ZEN available, {spent} ZEN spent ({share['share_bps'] / 100:g} % of receipts)"
    print_facts(facts)
    print_operations(pending)


@app.command()
def propose(
    to: Annotated[str, typer.Option(help="Pay this account.", metavar="ADDRESS")],
    amount: Annotated[str, typer.Option(help="Amount in ZEN.", metavar="ZEN")],
    purpose: Annotated[str, typer.Option(help="CID of the document that states the purpose, or its text.")],
    fund: Annotated[
        str, typer.Option(help="Pay from community-grants, protocol-development or security-audits.")
    ] = GRANTS,
    sender: Sender = None,
    export: ExportTo = None,
    yes: Yes = False,
    no_wait: NoWait = False,
    api_url: ApiUrl = None,
    as_json: JsonOfSent = False,
) -> None:
    """Propose a payment in the timelock. It can be executed after the timelock's delay."""
    with open_client(api_url) as client:
        chain = governance_chain(client)
        if fund == GRANTS:
            prepared = prepare(chain, "treasury.grant", {"recipient": to, "amount": amount, "purpose": purpose})
        else:
            given = {"destination": fund.replace("-", " "), "to": to, "amount": amount, "purpose": purpose}
            prepared = prepare(chain, "treasury.spend", given)
        perform(client, chain, prepared, sender=sender, export=export, yes=yes, no_wait=no_wait, as_json=as_json)


app.command()(execute)
app.command()(cancel)
