"""A dispute of a false unit in a browser, with real training, replays, referees and chain."""

import re

import httpx
import pytest
from kit.browser.accessibility import violations
from kit.browser.console import Console
from kit.disputes.adjudication_fixtures import QuorumWorld, listed_referees, world_with_quorum  # noqa: F401  (fixtures)
from kit.disputes.dispute_fixtures import settings_of_disputes  # noqa: F401  (a fixture)
from kit.disputes.referee_fixtures import cheating_node, two_verifiers  # noqa: F401  (fixtures)
from kit.verification.live_fixtures import CHEAT_ACCOUNT, Node
from kit.verification.live_worlds import cheating_executor, honest_executor, live_market_maker  # noqa: F401  (fixtures)
from playwright.sync_api import Locator, Page, expect
from sqlalchemy import select

from market.console import live as live_parts
from market.domain.lifecycle import DISPUTE_OPEN
from market.domain.network import ZEN
from market.verification.disputes.models import Dispute
from zoo_compute.chain.settlements import ChainReader, Slashed

OFFENCE, STAKE_WEI, ODD_WEI = "incorrect_computation", 1_000 * ZEN, 7


def wei_in(place: Locator) -> list[int]:
    """Return the exact amounts that a part of a page shows, in wei."""
    titles = [str(one.get_attribute("title")) for one in place.locator(".amount").all()]
    return [int(re.sub(r"^.* = (\d+) wei$", r"\1", title)) for title in titles]


def open_pages(console: Console, page: Page, dispute_id: str) -> tuple[Locator, Locator, Locator]:
    """Open overview, list and story; return the count, the line and the story's part of each."""
    listed, story = page.context.new_page(), page.context.new_page()
    page.goto("/console/overview")
    listed.goto("/console/disputes")
    line = listed.get_by_role("row").filter(has=listed.get_by_role("link", name=dispute_id[:10]))
    href = line.get_by_role("link", name=dispute_id[:10]).get_attribute("href")
    story.goto(str(href))
    count = page.locator(".figure", has_text="Open disputes").locator(".value")
    return count, line, story.locator("#live")


def part_of(story: Locator, title: str) -> Locator:
    return story.locator("ol.story > li", has=story.page.locator("b", has_text=f"{title}."))


def check_story(story: Locator, slashed_wei: int, verifiers: list[Node]) -> None:
    """Check that the page tells each step in words, and where the stake went to the wei."""
    told = (
        "the commitments of all providers",
        "the market opens a dispute with a bond",
        "the provider reveals the trace",
        "the market selects the first wrong segment",
        "draws a committee",
        "a quorum of referees upholds the dispute; the same transaction slashes the provider",
    )
    on_chain = part_of(story, "On chain").locator("li")
    expect(on_chain).to_have_count(len(told))
    for line, words in zip(on_chain.all(), told, strict=True):
        expect(line).to_contain_text(words)
    for verifier in verifiers:
        expect(part_of(story, "Detection").get_by_title(verifier.address)).to_be_visible()
    expect(part_of(story, "Unit")).to_contain_text("The unit is rejected")
    expect(part_of(story, "Committee")).to_contain_text("signed against the provider")
    lost, *parts = wei_in(part_of(story, "Penalty"))
    assert (lost, sum(parts)) == (slashed_wei, slashed_wei)


def check_provider(page: Page, live: QuorumWorld, dispute_id: str, slashed: Slashed) -> None:
    """Check the penalty with its evidence on the provider's page."""
    expect(page.get_by_text("In jail without an end")).to_be_visible()
    [line] = page.get_by_role("region", name="Penalties").get_by_role("row").all()[1:]
    expect(line).to_contain_text("incorrect computation")
    assert wei_in(line) == [slashed.amount]
    assert violations(page) == []
    expect(line.get_by_title(slashed.tx)).to_be_visible()
    [stake] = wei_in(page.locator(".figure", has_text="Stake"))
    assert stake == live.deployed.views.stake_of(slashed.provider)
    evidence = httpx.get(str(line.get_by_role("link", name="evidence").get_attribute("href"))).json()
    assert evidence["unit"]["provider"] == slashed.provider
    line.get_by_role("link", name=dispute_id[:10]).click()
    expect(page.get_by_role("heading", name="Dispute", exact=True)).to_be_visible()


@pytest.mark.usefixtures("with_referees")
def test_dispute_is_followed_to_its_slash(
    console: Console, live: QuorumWorld, cheat: Node, verifiers: list[Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_parts, "TICK_SECONDS", 0.5)
    live.deployed.stake(CHEAT_ACCOUNT, ODD_WEI)
    page = console.open()
    console.sign_in(page)
    job_id = live.train(cheat)
    while not (opened := live.all(select(Dispute))):
        live.turn([cheat], verifiers)
    dispute_id = opened[0].id
    count, line, story = open_pages(console, page, dispute_id)
    seen, status = [], opened[0].status
    while status in DISPUTE_OPEN:
        expect(count).to_have_text("1")
        expect(line.locator(".badge")).to_have_text(status)
        expect(story.locator("> p .badge").first).to_have_text(status)
        seen.append(status)
        live.turn([cheat], verifiers)
        status = live.get(Dispute, dispute_id).status
    assert seen == ["trace", "drawing", "judging"]
    expect(story.locator("> p .badge").first).to_have_text("provider lost")
    expect(line.locator(".badge")).to_have_text("provider lost")
    expect(count).to_have_text("0")

    live.until_decided(job_id, [cheat], verifiers)
    on_chain = ChainReader(live.deployed.anvil.url, live.deployed.deployment.contracts).slash(dispute_id, OFFENCE)
    assert on_chain.amount == (STAKE_WEI + ODD_WEI) // 2
    check_story(story, on_chain.amount, verifiers)
    assert violations(story.page) == []
    story.get_by_role("link", name=cheat.address[:6]).first.click()
    check_provider(story.page, live, dispute_id, on_chain)
