"""A slashed verifier in a browser: in jail with evidence, released, active again."""

import re
from collections.abc import Iterator

import pytest
from kit.browser import acts
from kit.browser.accessibility import violations
from kit.browser.console import Console
from kit.chain.deployed_chain import PROVIDER, Chain
from kit.chain.on_chain import OnChain
from kit.jobs.jobs_fixtures import World
from kit.records import account, verifier
from playwright.sync_api import Page, expect
from sqlalchemy import select

from market.console import live as live_parts
from market.domain.network import DEVNET, ZEN
from market.domain.verification.dispute_routes import DecidedBy
from market.governance.models import TimelockOperation
from market.platform.storage.client import Storage
from market.providers import lifecycle
from market.settings import Settings
from market.training.units import service as units
from market.verification.penalties.models import Slash
from market.verification.penalties.service import record_penalty
from zoo_compute.chain.settlements import ChainReader, Slashed
from zoo_protocol.hashing import sha256, to_hex

NODE, OFFENCE = PROVIDER.address, "wrong_replay"
STAKE_WEI, PENALTY_BPS = 1_000 * ZEN + 7, 2_000


class JailWorld(OnChain):
    """A market next to its chain, with one staked verifier."""

    def __init__(self, world: World, chain: Chain) -> None:
        super().__init__(world.database)
        self.world, self.chain = world, chain

    def slash(self) -> Slashed:
        """Let the market slash the verifier for a false replay; return the penalty on chain."""
        job_id = self.world.running([self.world.node()])
        [unit] = self.world.units(job_id)
        document = b'{"kind": "evidence"}'
        evidence = to_hex(sha256(document))
        with self.database.transaction() as session:
            slash = Slash(
                job_id=job_id,
                unit_id=unit.id,
                provider=NODE,
                offence=OFFENCE,
                evidence=evidence,
                evidence_cid=self.world.storage.put(document, max_bytes=100).cid,
                path=DecidedBy.OPERATOR,
            )
            record_penalty(session, units.unit_facts(session, unit.id), slash)
            lifecycle.jail(session, NODE, OFFENCE)
        self.finalise()
        return ChainReader(self.chain.anvil.url, self.chain.deployment.contracts).slash(evidence, OFFENCE)

    def pass_delay(self) -> None:
        self.chain.anvil.rpc("evm_increaseTime", DEVNET.timelock_seconds)
        self.index()


@pytest.fixture
def market(
    console: Console, database_url: str, storage: Storage, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> Iterator[JailWorld]:
    monkeypatch.setattr(live_parts, "TICK_SECONDS", 0.3)
    world = World(database_url, storage, settings)
    found = JailWorld(world, console.chain)
    found.add(account(NODE), verifier(NODE))
    console.chain.stake(PROVIDER, STAKE_WEI)
    found.index()
    yield found
    world.database.dispose()


def open_node(page: Page, path: str) -> Page:
    """Open a page of the node in another tab."""
    found = page.context.new_page()
    found.goto(f"/console/{path}")
    expect(found.locator("#live > p .badge").nth(1)).to_have_text("active")
    return found


def test_slashed_verifier_is_released_and_active_again(console: Console, market: JailWorld) -> None:
    page, own = console.open(), console.open()
    console.sign_in(page)
    console.sign_in(own, NODE)
    record, mine = open_node(page, f"providers/{NODE}"), open_node(own, "my/node")
    slashed = market.slash()
    assert slashed.amount == STAKE_WEI * PENALTY_BPS // 10_000
    for node in (record, mine):
        expect(node.locator("#live > p .badge").nth(1)).to_have_text("jailed")
        expect(node.get_by_text("In jail without an end")).to_be_visible()
    expect(mine.get_by_text("Ask the operator for a release.")).to_be_visible()
    mine.reload()  # its record is not a live part
    for node in (record, mine):
        penalty = node.get_by_role("region", name="Penalties").get_by_role("row").last
        expect(penalty).to_contain_text("wrong replay")
        expect(penalty.locator(".amount")).to_have_attribute("title", re.compile(f" = {slashed.amount} wei$"))
        expect(penalty.get_by_role("link", name="evidence")).to_be_visible()

    page.goto(f"/console/providers/{NODE}")
    page.get_by_role("link", name="Release from jail by the timelock").click()
    acts.sign(page, "staking.release", market.index)
    [release] = market.all(select(TimelockOperation))
    for node in (record, mine):
        notice = node.locator(".notice", has_text="In jail until the timelock releases it: not before")
        expect(notice.locator("time")).to_have_attribute("datetime", release.ready_at.isoformat())
        expect(node.get_by_role("link", name="Release from jail")).to_have_count(0)
        assert violations(node) == []
    record.get_by_role("link", name="Execute the release").click()
    box = acts.prepare(record)
    expect(box).to_contain_text("The simulation fails: The operation is not due")
    expect(box.get_by_role("button", name="Sign in the wallet")).to_be_disabled()

    market.pass_delay()
    assert market.chain.views.is_jailed(NODE)
    record.reload()
    acts.sign(record, "timelock.execute", market.index)
    assert not market.chain.views.is_jailed(NODE)
    expect(mine.locator("#live > p .badge").nth(1)).to_have_text("active")
    expect(mine.locator(".notice", has_text="In jail")).to_have_count(0)
    page.goto(f"/console/providers/{NODE}")
    expect(page.locator("#live > p .badge").nth(1)).to_have_text("active")
