"""Keys, organisations and webhooks from the command line, against the real API."""

import httpx
from api_support import Cli, sign_in

from zoo_compute.errors import ExitCode


def test_a_key_for_a_script(cli: Cli) -> None:
    made = cli.json("auth", "create-key", "nightly", "--scope", "jobs:write", "--per-day", "2.5", "--days", 7)
    assert made["scopes"] == ["jobs:write"]
    assert made["spending"]["per_day_wei"] == "2500000000000000000"
    assert made["key"].startswith(made["prefix"])
    again = cli.json("auth", "rotate-key", made["id"])
    assert again["key"] != made["key"]
    shown = cli("auth", "keys")
    assert "2.5 a day (used 0 today, 0 in all)" in shown
    assert made["key"] not in shown
    assert "amount-malformed" in cli("auth", "create-key", "x", "--per-job", "much", code=ExitCode.USAGE)
    assert "jobs:write" in cli("auth", "create-key", "x", "--scope", "everything", code=ExitCode.REFUSED)


def test_an_organisation_and_its_members(cli: Cli, api: httpx.Client) -> None:
    other = sign_in(api).wallet.address
    made = cli.json("org", "create", "Zoo Labs", "--per-job", 10, "--total", 100)
    cli("org", "member", made["id"], other, "--role", "admin", "--per-day", "1")
    changed = cli.json("org", "set", made["id"], "--name", "Zoo")
    assert (changed["name"], changed["spending"]["total_wei"]) == ("Zoo", str(100 * 10**18))
    [found] = cli.json("org", "list")
    assert {member["address"]: member["role"] for member in found["members"]}[other] == "admin"
    assert "1 a day" in cli("org", "show", made["id"])
    cli("org", "remove", made["id"], other)
    assert other not in cli("org", "show", made["id"])
    assert "organisation-not-found" in cli("org", "show", 10**6, code=ExitCode.REFUSED)


def test_a_webhook(cli: Cli) -> None:
    made = cli.json("webhook", "create", "https://93.184.215.14/zoo", "--event", "status", "--event", "slash")
    assert made["secret"].startswith("whsec_")
    assert cli.json("webhook", "rotate", made["id"])["secret"] != made["secret"]
    cli("webhook", "turn", made["id"], "false")
    listed = cli("webhook", "list")
    assert "slash status" in listed
    assert "off" in listed
    assert cli.json("webhook", "deliveries", made["id"])["items"] == []
    assert "delivery-not-found" in cli("webhook", "replay", made["id"], 1, code=ExitCode.REFUSED)
    cli("webhook", "delete", made["id"])
    assert cli.json("webhook", "list") == []
    refused = cli("webhook", "create", "http://127.0.0.1/hook", code=ExitCode.REFUSED)
    assert "webhook" in refused
