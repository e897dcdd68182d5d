"""``zoo-compute balance``: the balance in the escrow that orders draw from."""

from typing import Annotated

import typer

from zoo_compute.base.amounts import format_zen
from zoo_compute.cli.session import ApiUrl, open_client
from zoo_compute.terminal.output import JsonFlag, JsonOfSent, Yes, confirm, in_zen, print_facts, print_json

app = typer.Typer(
    name="balance", help="Show, add to and withdraw the balance that your orders draw from.", no_args_is_help=True
)


@app.command()
def show(api_url: ApiUrl = None, as_json: JsonFlag = False) -> None:
    """Show the balance, the wallet and the deposits that are not final or failed."""
    with open_client(api_url) as client:
        found = client.balance()
    if as_json:
        print_json(found)
        return
    facts = in_zen(found.model_dump(exclude={"deposits", "permit"}))
    for one in found.deposits:
        if one.status != "final":
            facts[f"deposit {one.id}"] = f"{format_zen(one.amount_wei)} ZEN, {one.reason or one.status}"
    print_facts({name.replace("_", " "): value for name, value in facts.items()})


@app.command()
def deposit(
    amount: Annotated[str, typer.Argument(help="Amount in ZEN.", metavar="ZEN")],
    yes: Yes = False,
    api_url: ApiUrl = None,
    as_json: JsonOfSent = False,
) -> None:
    """Move ZEN from the wallet into the balance, and wait until it is on chain."""
    from zoo_compute.base.amounts import parse_zen

    wei = parse_zen(amount)
    with open_client(api_url) as client:
        found = client.balance()
        plan = {
            "from the wallet": f"{format_zen(wei)} of {format_zen(found.wallet_wei)} ZEN",
            "balance afterwards": f"{format_zen(found.balance_wei + wei)} ZEN",
        }
        confirm(plan, "Deposit?", yes=yes or as_json)
        done = client.deposit(wei)
    _print(wei, done.tx, as_json)


@app.command()
def withdraw(
    amount: Annotated[
        str | None, typer.Argument(help="Amount in ZEN; default: all that no pending order takes.", metavar="ZEN")
    ] = None,
    yes: Yes = False,
    api_url: ApiUrl = None,
    as_json: JsonOfSent = False,
) -> None:
    """Move ZEN from the balance to the wallet. Needs native tokens for gas."""
    from zoo_compute.base.amounts import parse_zen

    with open_client(api_url) as client:
        found = client.balance()
        wei = found.available_wei if amount is None else parse_zen(amount)
        plan = {
            "to the wallet": f"{format_zen(wei)} of {format_zen(found.balance_wei)} ZEN",
            "taken by pending orders": f"{format_zen(found.pending_wei)} ZEN",
        }
        confirm(plan, "Withdraw?", yes=yes or as_json)
        wei, tx = client.withdraw(wei)
    _print(wei, tx, as_json)


def _print(wei: int, tx: str | None, as_json: bool) -> None:
    if as_json:
        print_json({"amount_wei": str(wei), "tx": tx})
    else:
        print_facts({"moved": f"{format_zen(wei)} ZEN", "tx": tx})
