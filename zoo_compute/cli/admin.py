"""``zoo-compute admin``: checks for operators of a market."""

import typer

from zoo_compute.base.amounts import format_zen
from zoo_compute.base.errors import Mismatch
from zoo_compute.cli.session import ApiUrl, open_client
from zoo_compute.terminal.output import JsonFlag, print_facts, print_json, print_records

app = typer.Typer(name="admin", help="Check a market as its operator.", no_args_is_help=True)


@app.callback()
def admin() -> None:
    """Check a market as its operator."""


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
