"""Stake in and out, a slash, and a reward epoch in a browser, on a chain whose clock moves."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.browser.console import Console
from kit.chain.anvil import AnvilProcess
from kit.chain.deployed_chain import OPERATOR, PAYER, PROVIDER, Chain, deploy_own
from kit.records import account, provider
from playwright.sync_api import Locator, Page, expect

from market.chain.contracts.codec import Deployment
from market.domain.network import DEVNET, ZEN
from market.governance.chain_events import HANDLERS


@pytest.fixture
def chain(anvil: AnvilProcess, deployment: Deployment, tmp_path: Path) -> Iterator[Chain]:
    """Contracts of this test; the chain's clock is reverted."""
    mark = anvil.snapshot()
    yield deploy_own(anvil, tmp_path, DEVNET)
    anvil.revert(mark)


def pass_time(console: Console, seconds: int) -> None:
    console.chain.anvil.rpc("evm_increaseTime", seconds)
    console.chain.anvil.mine(3)
    console.chain.index(console.services.database, {key: [handler] for key, handler in HANDLERS.items()})


def box_of(page: Page, button: str) -> Locator:
    page.get_by_role("button", name=button, exact=True).click()
    box = page.locator("#act")
    expect(box).to_contain_text("The simulation", timeout=30_000)
    return box


def sign(page: Page, button: str) -> None:
    box = box_of(page, button)
    expect(box).to_contain_text("The simulation passes.", timeout=30_000)
    box.get_by_role("button", name="Sign in the wallet").click()
    expect(box.get_by_role("status")).to_contain_text("Mined", timeout=30_000)


def test_stake_is_withdrawn_after_unbonding(console: Console) -> None:
    with console.services.database.transaction() as session:
        session.add(account(PROVIDER.address))
        session.flush()
        session.add(provider(PROVIDER.address))
    page = console.open()
    console.sign_in(page, PROVIDER.address)
    page.goto("/console/my/node")
    views = console.chain.views
    before = views.balance_of(PROVIDER.address)
    page.get_by_label("Allow, ZEN", exact=True).fill("5")
    sign(page, "1. Allow")
    page.get_by_label("Stake, ZEN", exact=True).fill("5")
    sign(page, "2. Stake")
    page.get_by_label("Unbond, ZEN", exact=True).fill("2")
    sign(page, "Unbond")
    assert (views.stake_of(PROVIDER.address), views.balance_of(PROVIDER.address)) == (3 * ZEN, before - 5 * ZEN)
    expect(box_of(page, "Withdraw what is unbonded")).to_contain_text("The simulation fails", timeout=30_000)
    pass_time(console, DEVNET.unbonding_seconds)
    page.reload()
    sign(page, "Withdraw what is unbonded")
    assert views.balance_of(PROVIDER.address) == before - 3 * ZEN


def test_foreign_epoch_is_shown_and_vetoed(console: Console) -> None:
    chain = console.chain
    chain.send(PAYER, "ZenToken", "transfer", chain.deployment.address("Rewards"), 1_000 * ZEN)
    pass_time(console, DEVNET.reward_epoch_seconds)
    chain.send(OPERATOR, "Rewards", "postEpoch", b"\x01" * 32, 0, ZEN, 0)
    pass_time(console, 1)
    page = console.open()
    console.sign_in(page)
    page.goto("/console/guardian")
    epoch = page.locator("section[aria-labelledby=epoch-1]")
    expect(epoch).to_contain_text("The market has no record of an epoch with this root.")
    expect(page.get_by_role("region", name="Alarms")).to_contain_text("Reward epoch 1 pays 1 ZEN")
    epoch.get_by_role("link", name="Veto epoch 1").click()
    box = box_of(page, "Prepare")
    expect(box).to_contain_text("The simulation passes.")
    box.get_by_label("Type rewards.veto to confirm").fill("rewards.veto")
    box.get_by_role("button", name="Sign in the wallet").click()
    expect(box.get_by_role("status")).to_contain_text("Mined")
    pass_time(console, 1)
    expect(box.get_by_role("status")).to_contain_text("Final")
    page.goto("/console/guardian")
    expect(page.locator("section[aria-labelledby=epoch-1]")).to_contain_text("Vetoed by")
