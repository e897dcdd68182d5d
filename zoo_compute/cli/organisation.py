"""``zoo-compute org``: organisations with shared spending caps."""

from typing import Annotated, Any

import typer

from zoo_compute.cli.caps import PerDay, PerJob, Total, caps_body, caps_text
from zoo_compute.cli.session import ApiUrl, open_client
from zoo_compute.terminal.output import JsonFlag, print_facts, print_result, print_rows, print_table, report_done

app = typer.Typer(name="org", help="Share spending caps with others.", no_args_is_help=True)
OrganisationId = Annotated[int, typer.Argument(help="Id from `org list`.")]
Address = Annotated[str, typer.Argument(help="Wallet that has signed in at least once.")]
Role = Annotated[str, typer.Option(help="Set the role: viewer, member, admin or owner.")]


@app.command()
def create(
    name: str,
    per_job: PerJob = None,
    per_day: PerDay = None,
    total: Total = None,
    api_url: ApiUrl = None,
    as_json: JsonFlag = False,
) -> None:
    """Create an organisation that you own."""
    body = {"name": name, "spending": caps_body(per_job, per_day, total)}
    with open_client(api_url) as client:
        print_result(client.connection.post("/v1/organisations", body), _show, as_json=as_json)


@app.command("list")
def list_organisations(api_url: ApiUrl = None, as_json: JsonFlag = False) -> None:
    """List your organisations."""
    with open_client(api_url) as client:
        found = client.connection.get("/v1/organisations")
    rows = ([row["id"], row["name"], len(row["members"]), caps_text(row["spending"])] for row in found)
    print_rows(found, ("id", "name", "members", "caps (ZEN)"), rows, as_json=as_json)


@app.command()
def show(organisation: OrganisationId, api_url: ApiUrl = None, as_json: JsonFlag = False) -> None:
    """Show an organisation: caps, their use, members."""
    with open_client(api_url) as client:
        print_result(client.connection.get(f"/v1/organisations/{organisation}"), _show, as_json=as_json)


@app.command("set")
def change(
    organisation: OrganisationId,
    name: Annotated[str | None, typer.Option(help="Set a new name.")] = None,
    per_job: PerJob = None,
    per_day: PerDay = None,
    total: Total = None,
    api_url: ApiUrl = None,
    as_json: JsonFlag = False,
) -> None:
    """Rename an organisation, or replace all its caps (one cap given removes the others)."""
    caps = caps_body(per_job, per_day, total)
    body = {key: value for key, value in {"name": name, "spending": caps or None}.items() if value is not None}
    with open_client(api_url) as client:
        changed = client.connection.call("PATCH", f"/v1/organisations/{organisation}", repeatable=True, json=body)
    print_result(changed, _show, as_json=as_json)


@app.command()
def member(
    organisation: OrganisationId,
    address: Address,
    role: Role = "member",
    per_job: PerJob = None,
    per_day: PerDay = None,
    total: Total = None,
    api_url: ApiUrl = None,
    as_json: JsonFlag = False,
) -> None:
    """Add a member, or change its role and caps."""
    body = {"role": role, "spending": caps_body(per_job, per_day, total)}
    with open_client(api_url) as client:
        path = f"/v1/organisations/{organisation}/members/{address}"
        client.connection.call("PUT", path, repeatable=True, json=body)
    facts = {"organisation": organisation, "address": address, "role": role, "spending": body["spending"]}
    report_done(f"{address} is {role} of organisation {organisation}", facts, as_json=as_json)


@app.command()
def remove(organisation: OrganisationId, address: Address, api_url: ApiUrl = None, as_json: JsonFlag = False) -> None:
    """Remove a member, or leave."""
    with open_client(api_url) as client:
        path = f"/v1/organisations/{organisation}/members/{address}"
        client.connection.call("DELETE", path, repeatable=True)
    facts = {"organisation": organisation, "address": address, "removed": True}
    report_done(f"{address} is removed from organisation {organisation}", facts, as_json=as_json)


def _show(found: dict[str, Any]) -> None:
    print_facts({"id": found["id"], "name": found["name"], "caps (ZEN)": caps_text(found["spending"])})
    rows = [[row["address"], row["role"], caps_text(row["spending"])] for row in found["members"]]
    print_table(("member", "role", "caps (ZEN)"), rows)
