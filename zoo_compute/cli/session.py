"""Choice of market and account: option, environment, saved login, or a local devnet."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from zoo_compute.base.errors import ConfigError
from zoo_compute.terminal.output import quiet_retries

if TYPE_CHECKING:
    from zoo_compute.client.client import Client

ApiUrl = Annotated[str | None, typer.Option("--api-url", envvar="ZOO_API_URL", help="Use this market's base URL.")]


def open_client(api_url: str | None) -> "Client":
    """Return a client for the given address, the saved login, or a devnet in ``.devnet``.

    Keys come from the environment, or from a login for the same address, or from the devnet's user.

    Raises:
        ConfigError: none of these exists.
    """
    from zoo_compute.chain.wallet import Wallet
    from zoo_compute.client.client import API_KEY_VARIABLE, Client
    from zoo_compute.devnet.state import DEFAULT_DIRECTORY, StateDirectory

    quiet_retries()
    has_key = Wallet.from_environment() is not None or API_KEY_VARIABLE in os.environ
    login = None if api_url is not None and has_key else load_login()
    if login is not None and (api_url is None or login["api_url"].rstrip("/") == api_url.rstrip("/")):
        return Client(login["api_url"], api_key=None if has_key else login["api_key"])
    if api_url is not None:
        return Client(api_url)
    if DEFAULT_DIRECTORY.exists():
        from zoo_compute.devnet import control

        info = control.info(StateDirectory(DEFAULT_DIRECTORY))
        own = Wallet.from_environment()
        return Client(info["api_url"], wallet=own or Wallet(info["accounts"]["user"]["private_key"]))
    raise ConfigError(
        "market-unknown",
        "no market is selected",
        remedy="Give --api-url, set ZOO_API_URL, run: zoo-compute auth login, or start one: zoo-compute devnet up",
    )


def login_file() -> Path:
    """Return the file of ``auth login``."""
    import platformdirs

    return platformdirs.user_config_path("zoo-compute") / "login.json"


def load_login() -> dict[str, Any] | None:
    """Return the saved address and API key. Raises ConfigError for a damaged file."""
    path = login_file()
    if not path.exists():
        return None
    try:
        document = json.loads(path.read_text())
        return {"api_url": str(document["api_url"]), "api_key": str(document["api_key"])}
    except (OSError, ValueError, KeyError, TypeError) as error:
        remedy = "Remove it, and run: zoo-compute auth login"
        raise ConfigError("login-damaged", f"{path} is damaged: {error}", remedy=remedy) from error


def save_login(api_url: str, api_key: str) -> Path:
    """Save an API key, readable by this user only. Return the file."""
    path = login_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w") as file:
        json.dump({"api_url": api_url, "api_key": api_key}, file)
    return path
