"""``zoo-compute auth``: sign-in and API keys."""

import socket
from typing import Annotated, Any

import typer

from zoo_compute.cli.caps import PerDay, PerJob, Total, caps_body, caps_text
from zoo_compute.cli.session import ApiUrl, open_client, save_login
from zoo_compute.terminal.output import JsonFlag, print_facts, print_records, print_result, report_done

app = typer.Typer(name="auth", help="Sign in, and manage API keys.", no_args_is_help=True)


@app.command()
def login(
    api_url: Annotated[str, typer.Option("--api-url", envvar="ZOO_API_URL", help="Base URL of the market.")],
    name: Annotated[str | None, typer.Option(help="Name the key; default: this machine's name.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Sign in with ZOO_PRIVATE_KEY or ZOO_KEYSTORE, and save an API key for later commands."""
    with open_client(api_url) as client:
        address = client.signing_wallet("signing in").address
        key = client.connection.post("/v1/me/keys", {"name": name or socket.gethostname()[:64]})
        path = save_login(api_url, key["key"])
    facts = {"address": address, "key_id": key["id"], "expires_at": key["expires_at"]}
    report_done(f"signed in as {address}; the API key is in {path} until {key['expires_at']}", facts, as_json=as_json)


@app.command()
def create_key(
    name: str,
    scope: Annotated[
        list[str] | None, typer.Option(help="Allow a scope, such as jobs:write; may be repeated. Default: all.")
    ] = None,
    days: Annotated[int, typer.Option(help="Expire after so many days.")] = 90,
    per_job: PerJob = None,
    per_day: PerDay = None,
    total: Total = None,
    api_url: ApiUrl = None,
    as_json: JsonFlag = False,
) -> None:
    """Create an API key, for example for a script, and show it once."""
    caps = caps_body(per_job, per_day, total)
    body = {"name": name, "expires_in_days": days} | ({"scopes": scope} if scope else {})
    with open_client(api_url) as client:
        key = client.connection.post("/v1/me/keys", body | ({"spending": caps} if caps else {}))
    print_result(key, _show_key, as_json=as_json)


@app.command()
def rotate_key(
    key_id: int,
    overlap_hours: Annotated[int, typer.Option(help="Keep the old secret valid for so many hours.")] = 24,
    api_url: ApiUrl = None,
    as_json: JsonFlag = False,
) -> None:
    """Replace a key's secret, and show the new one once."""
    with open_client(api_url) as client:
        key = client.connection.post(f"/v1/me/keys/{key_id}/rotate", {"overlap_hours": overlap_hours})
    print_result(key, _show_key, as_json=as_json)


@app.command()
def keys(api_url: ApiUrl = None, as_json: JsonFlag = False) -> None:
    """List your API keys."""
    with open_client(api_url) as client:
        print_result(client.connection.get("/v1/me/keys"), _show_keys, as_json=as_json)


@app.command()
def revoke(key_id: int, api_url: ApiUrl = None, as_json: JsonFlag = False) -> None:
    """Revoke an API key at once."""
    with open_client(api_url) as client:
        client.connection.call("DELETE", f"/v1/me/keys/{key_id}", repeatable=True)
    report_done(f"key {key_id} is revoked", {"id": key_id, "revoked": True}, as_json=as_json)


def _show_key(key: dict[str, Any]) -> None:
    print_facts({name: key[name] for name in ("id", "name", "key", "expires_at")} | _permissions(key))


def _show_keys(keys: list[dict[str, Any]]) -> None:
    names = ("id", "name", "prefix", "scopes", "caps (ZEN)", "expires_at")
    print_records(names, [key | _permissions(key) for key in keys])


def _permissions(key: dict[str, Any]) -> dict[str, str]:
    return {"scopes": " ".join(key["scopes"]), "caps (ZEN)": caps_text(key["spending"])}
