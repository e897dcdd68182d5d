"""Keys, organisations and webhooks from the command line, against the real API."""

import httpx
import pytest
from kit.api.clients import Cli, sign_in

from zoo_compute.base.errors import ExitCode


def test_cli_shows_network_parameters(cli: Cli) -> None:
    assert cli.json("network")["fee_bps"] == 500
    assert "tier bronze" in cli("network")


def test_cli_explains_sign_in_when_signed_out(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ZOO_PRIVATE_KEY", raising=False)
    monkeypatch.setenv("ZOO_API_KEY", "zck_ended")
    output = cli("auth", "keys", code=ExitCode.REFUSED)
    assert "[not-authenticated]" in output
    assert "zoo-compute auth login" in output


def test_cli_creates_api_key_for_script(cli: Cli) -> None:
    made = cli.json("auth", "create-key", "nightly", "--scope", "jobs:write", "--per-day", "2.5", "--days", 7)
    assert made["scopes"] == ["jobs:write"]
    assert made["spending"]["per_day_wei"] == "2500000000000000000"
    assert made["key"].startswith(made["prefix"])
    again = cli.json("auth", "rotate-key", made["id"])
    assert again["key"] != made["key"]
    shown = cli("auth", "keys")
    assert "2.5 a day (used 0 today, 0 in all)" in shown
    assert made["key"] not in shown
    assert cli.json("auth", "revoke", again["id"]) == {"id": again["id"], "revoked": True}
    assert "amount-malformed" in cli("auth", "create-key", "x", "--per-job", "much", code=ExitCode.USAGE)
    assert "jobs:write" in cli("auth", "create-key", "x", "--scope", "everything", code=ExitCode.REFUSED)


def test_organisation_lists_its_members(cli: Cli, api: httpx.Client) -> None:
    other = sign_in(api).wallet.address
    made = cli.json("org", "create", "Zoo Labs", "--per-job", 10, "--total", 100)
    added = cli.json("org", "member", made["id"], other, "--role", "admin", "--per-day", "1")
    assert (added["address"], added["role"], added["spending"]) == (other, "admin", {"per_day_wei": str(10**18)})
    changed = cli.json("org", "set", made["id"], "--name", "Zoo")
    assert (changed["name"], changed["spending"]["total_wei"]) == ("Zoo", str(100 * 10**18))
    [found] = cli.json("org", "list")
    assert {member["address"]: member["role"] for member in found["members"]}[other] == "admin"
    assert "1 a day" in cli("org", "show", made["id"])
    assert cli.json("org", "remove", made["id"], other)["removed"] is True
    assert other not in cli("org", "show", made["id"])
    assert "organisation-not-found" in cli("org", "show", 10**6, code=ExitCode.REFUSED)


def test_cli_manages_webhook(cli: Cli) -> None:
    made = cli.json("webhook", "create", "https://93.184.215.14/zoo", "--event", "status", "--event", "slash")
    assert made["secret"].startswith("whsec_")
    assert cli.json("webhook", "rotate", made["id"])["secret"] != made["secret"]
    assert cli.json("webhook", "turn", made["id"], "false") == {"id": made["id"], "enabled": False}
    listed = cli("webhook", "list")
    assert "slash status" in listed
    assert "off" in listed
    assert cli.json("webhook", "deliveries", made["id"])["items"] == []
    assert "delivery-not-found" in cli("webhook", "replay", made["id"], 1, code=ExitCode.REFUSED)
    assert cli.json("webhook", "delete", made["id"]) == {"id": made["id"], "deleted": True}
    assert cli.json("webhook", "list") == []
    for url in ("http://127.0.0.1/hook", "https://93.184.215.14:99999/hook"):
        assert "webhook" in cli("webhook", "create", url, code=ExitCode.REFUSED)
