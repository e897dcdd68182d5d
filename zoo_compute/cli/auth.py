"""``zoo-compute auth``: sign in once and keep an API key; list and revoke keys."""

import socket
from typing import Annotated

import typer

from zoo_compute.cli.output import JsonFlag, note, print_json, print_table
from zoo_compute.cli.session import ApiUrl, open_client, save_login
from zoo_compute.errors import ConfigError

app = typer.Typer(help="Sign in, and manage API keys.", no_args_is_help=True)


@app.command()
def login(
    api_url: Annotated[str, typer.Option("--api-url", envvar="ZOO_API_URL", help="Base URL of the market.")],
    name: Annotated[str | None, typer.Option(help="How the key is called; default: this machine's name.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Sign in with the wallet of ZOO_PRIVATE_KEY or ZOO_KEYSTORE, and keep an API key for later commands."""
    with open_client(api_url) as client:
        if client.wallet is None:
            raise ConfigError(
                "wallet-missing", "signing in needs a wallet", remedy="Set ZOO_PRIVATE_KEY or ZOO_KEYSTORE."
            )
        key = client.connection.post("/v1/me/keys", {"name": name or socket.gethostname()[:64]})
        path = save_login(api_url, key["key"])
        if as_json:
            print_json({"address": client.wallet.address, "key_id": key["id"], "expires_at": key["expires_at"]})
        else:
            note(f"signed in as {client.wallet.address}; the API key is in {path} until {key['expires_at']}")


@app.command()
def keys(api_url: ApiUrl = None, as_json: JsonFlag = False) -> None:
    """List your API keys."""
    with open_client(api_url) as client:
        found = client.connection.get("/v1/me/keys")
    if as_json:
        print_json(found)
    else:
        columns = ["id", "name", "prefix", "expires_at"]
        print_table(columns, [[key[column] for column in columns] for key in found])


@app.command()
def revoke(key_id: int, api_url: ApiUrl = None) -> None:
    """End an API key at once."""
    with open_client(api_url) as client:
        client.connection.call("DELETE", f"/v1/me/keys/{key_id}", repeatable=True)
    note(f"key {key_id} is revoked")
