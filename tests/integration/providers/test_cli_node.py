"""A node's uptime commitment and rewards by CLI, against the real API and chain."""

from datetime import datetime

from kit.api.clients import Cli
from kit.chain.deployed_chain import PAYER, PROVIDER
from kit.payments.rewards_fixtures import DAYS_BASE, STAKE, RewardsWorld

from market.providers.models import Provider
from zoo_compute.base.amounts import format_zen
from zoo_compute.base.errors import ExitCode


def test_uptime_commitment_is_on_chain(provider: Cli, market: RewardsWorld) -> None:
    before = market.now()
    made = provider.json("node", "commit", "--days", 30)
    until = datetime.fromisoformat(made["committed_until"])
    assert 30 * 86_400 <= (until - before).total_seconds() < 30 * 86_400 + 60
    receipt = market.chain.anvil.rpc("eth_getTransactionReceipt", made["tx"])
    assert (receipt["status"], receipt["from"]) == ("0x1", PROVIDER.address.lower())
    market.index()
    market.pass_day()
    market.beat_all(first=0)
    market.pass_day()
    market.posted()
    assert market.chain.views.at_risk(PROVIDER.address) == STAKE * 95 // 100  # the promise is what the market reads
    assert "committed_until" in provider("node", "commit", "--days", 60, "--yes")
    shorter = provider("node", "commit", "--days", 1, "--yes", code=ExitCode.FAILED)  # than what was promised
    assert "transaction-refused" in shorter
    assert "confirmation-missing" in provider("node", "commit", "--days", 90, code=ExitCode.USAGE)
    provider("node", "commit", "--days", 0, code=ExitCode.USAGE)


def test_node_status_names_problem_and_remedy(provider: Cli, market: RewardsWorld) -> None:
    assert provider.json("node", "status")["problems"] == []
    market.change(Provider, PROVIDER.address, hardware={"processes": 2, "network_removed": False})
    [problem] = provider.json("node", "status")["problems"]
    assert problem["code"] == "network_not_removed"
    assert "machine's loopback" in problem["detail"]
    assert "kernel.apparmor_restrict_unprivileged_userns=0" in problem["remedy"]
    assert "network_not_removed" in provider("node", "status")


def test_rewards_are_shown_and_claimed_to_another_wallet(provider: Cli, market: RewardsWorld) -> None:
    assert provider.json("node", "rewards")["claimable"] is None
    market.pass_day()
    market.earn_day()
    amount = f"{format_zen(DAYS_BASE)} ZEN"
    found = provider.json("node", "rewards")
    assert (found["claimable"], found["pending"]["amount_wei"]) == (None, str(DAYS_BASE))
    assert f"{amount}, from" in provider("node", "rewards")
    assert "nothing-to-send" in provider("node", "rewards", "--to", PAYER.address, code=ExitCode.USAGE)

    market.pass_day()
    shown = provider("node", "rewards")
    assert "claimable" in shown
    assert shown.count(amount) == 2  # as claimable, and as earned for uptime that day
    before = market.chain.views.balance_of(PAYER.address)
    claimed = provider.json("node", "rewards", "--claim", "--to", PAYER.address)
    assert claimed["claimed_now"]["amount_wei"] == str(DAYS_BASE)
    assert market.chain.views.balance_of(PAYER.address) - before == DAYS_BASE
    market.check()
    again = provider.json("node", "rewards", "--claim")
    assert (again["claimed_now"], again["claimable"], again["claimed_wei"]) == (None, None, str(DAYS_BASE))
