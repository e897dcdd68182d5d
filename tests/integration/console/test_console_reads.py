"""Reads of the console's pages, on a market with a history."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from kit.console.dispute_history import BOND_WEI, STATES
from kit.console.market_history import Seeded, seed
from sqlalchemy import select, text

from market.auctions import service as auctions
from market.auctions.models import AuctionRound
from market.auctions.service import parse_book
from market.console.reads import disputes, jobs, market, mine, providers
from market.domain.lifecycle import DISPUTE_OPEN
from market.domain.network import MAINNET
from market.domain.nodes.uptime import epoch_of
from market.platform.db.base import utc_now
from market.platform.db.session import Database
from market.providers.models import Provider
from market.verification.disputes.models import Dispute

JOBS, NODES = 120, 60


@pytest.fixture(scope="module")
def now() -> Any:
    return utc_now()


@pytest.fixture
def seeded(database: Database, now: Any) -> Seeded:
    return seed(database.engine, now, jobs=JOBS, providers=NODES, epochs=5, rounds=30)


@pytest.fixture
def read(database: Database, seeded: Seeded) -> Iterator[Callable[..., Any]]:
    with database.reading() as session:
        yield lambda function, *arguments: function(session, *arguments)


@pytest.fixture
def rows(read: Callable[..., Any]) -> Callable[[Any], list[Any]]:
    return lambda query: read(lambda session: session.execute(query).all())


def test_jobs_are_found_by_id_name_and_payer(rows: Callable[..., Any], seeded: Seeded) -> None:
    def found(words: str) -> list[Any]:
        return [*rows(jobs.job_lines().where(jobs.matches(words)))]

    [line] = found(seeded.job_id[:12])
    assert line.id == seeded.job_id
    assert seeded.job_id in [other.id for other in found(line.name.upper())]
    assert {other.payer for other in found(seeded.payer)} == {seeded.payer}
    assert {other.payer for other in rows(jobs.job_lines(seeded.payer))} == {seeded.payer}
    assert found("%") == []


def test_job_has_timeline_rounds_units_and_checkpoints(read: Callable[..., Any], seeded: Seeded) -> None:
    moves = read(jobs.timeline, seeded.settled_job_id)
    assert [move.to_status for move in moves][-1] == "settled"
    assert [move.at for move in moves] == sorted(move.at for move in moves)
    assert [move.to_status for move in read(jobs.timeline, seeded.waiting_job_id)] == ["funded", "matching"]
    points = read(jobs.rounds, seeded.job_id)
    assert [point.round for point in points] == list(range(25))
    assert (points[0].train_loss, points[0].included) == (None, 0)
    assert all(point.uploaded_bytes == 8 * 33_046 for point in points[1:])
    assert sum(point.included + point.excluded for point in points) == 24 * 8
    assert float(points[-1].validation_loss) < float(points[0].validation_loss)
    units = read(lambda session: session.execute(jobs.unit_lines(seeded.job_id)).all())
    assert len(units) == 24 * 8
    assert {unit.reason for unit in units if unit.status == "lost"} == {"node_silent"}
    verdicts = read(jobs.verdicts, [unit.id for unit in units])
    assert all(one.drawn >= one.passed + one.failed for one in verdicts.values())
    assert sum(one.failed for one in verdicts.values()) == len(STATES)
    newest = read(jobs.checkpoints, seeded.job_id)[0]
    assert (newest.round, len(newest.pins)) == (24, 3)
    assert [line.status for line in read(jobs.settled_lines, seeded.settled_job_id)] == ["settled"]


def test_providers_are_found_by_name_address_and_region(rows: Callable[..., Any], seeded: Seeded) -> None:
    def found(words: str) -> list[Any]:
        return [*rows(providers.node_lines().where(providers.matches(words)))]

    [line] = found(seeded.provider[:20].lower())
    assert line.address == seeded.provider
    assert seeded.provider in [other.address for other in found(line.name[2:].upper())]
    assert {other.region for other in found(line.region)} == {line.region}


def test_provider_record_has_score_calendar_and_penalties(read: Callable[..., Any], seeded: Seeded) -> None:
    record = read(providers.read_record, seeded.provider)
    assert len(record.calendar) == 5
    assert all(day.uptime_bps is not None and day.uptime_bps <= 10_000 for day in record.calendar)
    score = record.score
    assert score.score_bps <= min(score.work_bps, score.uptime_bps, score.slashes_bps)
    assert len(record.runs) == 2
    assert record.ask is not None
    assert record.earnings.claimed_wei > 0
    assert record.earnings.rewards_wei == 0
    assert sum(total for _, total in record.earnings.by_day) <= (
        record.earnings.claimed_wei + record.earnings.claimable_wei + record.earnings.pending_wei
    )
    [slashed] = [one for one in _slashed(read) if one.penalties]
    assert (slashed.penalties[0].offence, slashed.penalties[0].path) == ("incorrect_computation", "dispute")
    assert read(providers.read_record, "0x" + "00" * 20) is None


def test_slash_by_other_challenger_is_among_penalties(
    database: Database, read: Callable[..., Any], seeded: Seeded
) -> None:
    def of_node() -> list[providers.Penalty]:
        dispute = read(lambda session: session.get_one(Dispute, seeded.dispute_id))
        found: list[providers.Penalty] = read(providers.penalties_of, dispute.provider)
        return found

    [ours] = of_node()
    with database.transaction() as session:
        session.execute(text("DELETE FROM slashes"))
    [foreign] = of_node()
    assert (foreign.offence, foreign.path, foreign.amount_wei) == (ours.offence, ours.path, ours.amount_wei)
    assert foreign.dispute_id == ours.dispute_id == seeded.dispute_id
    assert (foreign.evidence_cid, ours.evidence_cid) == (None, "bafyevidence1")


def _slashed(read: Callable[..., Any]) -> list[providers.Record]:
    found = read(lambda session: session.execute(providers.node_lines()).all())
    return [read(providers.read_record, line.address) for line in found]


def test_last_price_of_tier_spans_its_books(
    database: Database, rows: Callable[..., Any], read: Callable[..., Any]
) -> None:
    with database.transaction() as session:
        later = "UPDATE auction_rounds SET cleared_at = cleared_at + interval '1 minute' WHERE zone = 'eu-west'"
        session.execute(text(later))
    trades = rows(select(AuctionRound).where(AuctionRound.volume_us > 0))
    newest: dict[int, AuctionRound] = {}
    for (trade,) in sorted(trades, key=lambda row: (row[0].cleared_at, row[0].id)):
        newest[trade.tier_id] = trade
    assert read(auctions.last_prices) == {tier: trade.price_wei for tier, trade in newest.items()}
    assert [read(auctions.last_price, tier) for tier in (1, 99)] == [newest[1].price_wei, None]


def test_market_shows_books_depth_and_flow(read: Callable[..., Any], seeded: Seeded, now: Any) -> None:
    books = read(market.books, MAINNET)
    assert len(books) == 9
    assert all(book.last_price_wei and book.bid_nodes and book.ask_nodes for book in books)
    book = parse_book(MAINNET, books[0].name)
    depth = read(market.depth, book)
    assert [step.nodes for step in depth.asks] == sorted(step.nodes for step in depth.asks)
    assert [step.price_wei for step in depth.bids] == sorted((step.price_wei for step in depth.bids), reverse=True)
    assert depth.asks[0].price_wei > 245 * 10**16  # the fee is on top
    assert len(read(market.price_history, book, now, 2)) >= 29
    flow = read(market.flow, now - timedelta(days=90))
    assert sum(one.matched + one.unmatched for one in flow) > 0
    assert all(one.median_wait_seconds <= one.slow_wait_seconds for one in flow)
    assert all(0 < one.fill_bps <= 10_000 for one in flow)
    supply = read(market.supply)
    assert sum(one.active for one in supply) >= sum(one.offering for one in supply) > 0
    waiting = read(market.waiting, MAINNET, supply)
    assert sum(one.jobs for one in waiting) == 4
    assert {one.reason for one in waiting} <= set(market.WaitReason)


def test_open_disputes_name_the_due_party(read: Callable[..., Any], rows: Callable[..., Any], now: Any) -> None:
    lines = rows(disputes.dispute_lines().order_by(Dispute.created_at.desc()))
    assert [line.status for line in lines] == list(STATES)
    opened = rows(disputes.dispute_lines().where(disputes.has_status(disputes.OPEN)))
    assert {line.status for line in opened} == set(DISPUTE_OPEN)
    found = read(disputes.due_of, lines)
    due = {line.status: found.get(line.id) for line in lines}
    assert due["trace"].parties == [next(line.provider for line in opened if line.status == "trace")]
    assert len(due["judging"].parties) == 2  # one of three has signed
    assert due["judging"].until > now
    assert due["drawing"].until is None
    assert all(due[line.status] is None for line in lines if line.status not in DISPUTE_OPEN)


def test_story_names_transactions_verdicts_and_division(read: Callable[..., Any], seeded: Seeded) -> None:
    story = read(disputes.read_story, seeded.dispute_id, BOND_WEI)
    assert (story.unit.first_step, story.unit.last_step, story.unit.steps) == (13, 18, 24)
    assert len(story.refuted_by) == 2
    assert story.computed != [story.claimed]
    words = [step.words for step in story.steps]
    assert words[0].startswith("the commitments of all providers")
    assert words[-1].startswith("a quorum of referees upholds the dispute")
    assert [seat.provider_correct for seat in story.committee] == [False] * 3
    division = story.division
    parts = division.challenger_wei + division.referees_wei + division.burned_wei
    assert parts == division.slashed_wei == 500 * 10**18
    judging = read(disputes.read_story, seeded.open_dispute_id, BOND_WEI)
    assert [seat.words for seat in judging.committee][1:] == ["has not signed yet"] * 2
    assert judging.division is None
    undecided = read(lambda session: session.scalar(select(Dispute.id).where(Dispute.status == "undecided")))
    ended = read(disputes.read_story, undecided, BOND_WEI).steps[-1].words
    assert ended.startswith("no committee signed in time")
    assert read(disputes.read_story, "0x" + "00" * 32, BOND_WEI) is None


def test_sampling_and_verifiers_are_counted(read: Callable[..., Any], seeded: Seeded, now: Any) -> None:
    rates = read(disputes.sampling)
    assert [rate.sampling_bps for rate in rates] == [2_500, 500]
    assert all(rate.verified + rate.rejected + rate.disputed <= rate.units for rate in rates)
    verifiers = read(lambda session: session.execute(disputes.verifier_lines()).all())
    assert len(verifiers) == NODES // 10
    counts = read(disputes.replay_counts, [line.address for line in verifiers], epoch_of(now.timestamp()) - 30)
    assert sum(one.replays for one in counts.values()) > 0


def test_own_facts_are_of_the_caller_only(read: Callable[..., Any], seeded: Seeded, now: Any) -> None:
    assert sum(read(mine.jobs_by_status, seeded.payer).values()) == len(
        read(lambda session: session.execute(jobs.job_lines(seeded.payer)).all())
    )
    assert read(mine.spend_by_day, seeded.payer, now)
    assert read(mine.keys, seeded.payer) == []
    assert read(mine.memberships, seeded.payer) == []
    disputed = read(lambda session: session.execute(disputes.dispute_lines().where(Dispute.status == "trace")).one())
    provider = read(lambda session: session.get_one(Provider, disputed.provider))
    node = read(mine.node_now, provider)
    assert [deadline.act for deadline in node.deadlines if deadline.subject == disputed.id] == ["answer_dispute"]
    assert disputed.id in node.disputes
    assert node.undecided_wei > 0
    assert node.verified_wei >= 0
