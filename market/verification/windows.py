"""Windows: one root over delivered units goes on chain before the seed that draws their segments can exist.

closed (units fixed, root on its way) → committed (root final, seed block known) → latched (seed final; segments are
drawn and replayed) → decided.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy.orm import Session

from market.chain.bindings import WorkWindows
from market.chain.contracts import ChainEvent
from market.db.base import from_unix, utc_now
from market.db.session import Database, wake_after_commit
from market.domain.lateness import last_time
from market.domain.lifecycle import UnitStatus
from market.domain.network import NetworkParameters
from market.domain.verification import sampling_rate_bps
from market.domain.verification_lifecycle import SampleEvent, SampleStatus, WindowEvent, WindowStatus
from market.jobs import service as jobs
from market.jobs.units import UnitFacts
from market.providers import service as providers
from market.providers.attestations import attested_until
from market.settings import Settings
from market.verification import canaries, repository
from market.verification.calls import ask
from market.verification.models import Sample, Window
from market.verification.moves import move_sample, move_window
from zoo_protocol import merkle, reveals
from zoo_protocol.hashing import from_hex, to_hex
from zoo_protocol.record import leaf_of
from zoo_protocol.sampling import draw_segments

MAX_LEAVES = 4096

ADVANCE = "verification.advance"


@dataclass(frozen=True, slots=True)
class WindowFacts:
    """One committed window; ``leaves`` as 0x hex, in the order that makes its root."""

    id: int
    id_in_contract: int
    root: str
    leaves: list[str]


def close_window(database: Database, settings: Settings, network: NetworkParameters) -> None:
    """Put all committed units that are in no window into a new one, and ask for its root to be committed.

    Also those that were lost or rejected since: each commitment was acknowledged, and an omitted one costs the
    operator's bond. Only what is still being uploaded waits. A window is closed as soon as no other is on its way to
    the chain, at the latest after ``window_seconds``.

    The rates that delivered units are drawn at are noted here: once the seed is known they may only rise.
    """
    with database.transaction() as session:
        newest = repository.newest_window(session)
        if newest is not None and _is_on_its_way(newest, timedelta(seconds=settings.window_seconds)):
            return
        units = jobs.windowless_units(session, MAX_LEAVES)
        if not units:
            return
        units.sort(key=lambda unit: (unit.job_id, unit.round, unit.slot))
        root = to_hex(merkle.root([leaf_of(unit.commitment) for unit in units]))
        window = Window(status=WindowStatus.CLOSED, root=root, leaf_count=len(units))
        session.add(window)
        session.flush()
        rates = {unit.id: min_rate_bps(session, network, unit) for unit in units}
        jobs.assign_window(session, rates, window.id)
        _ask_for_commitment(session, window)


def min_rate_bps(session: Session, network: NetworkParameters, unit: UnitFacts) -> int | None:
    """What is known of the provider before anybody can know the seed; None of a unit that was not delivered."""
    return rate_bps(session, network, unit) if unit.status == UnitStatus.UPLOADED else None


def commit_windows(database: Database) -> None:
    """See to it that every closed window's root is on its way to the chain."""
    with database.transaction() as session:
        for window in repository.windows(session, WindowStatus.CLOSED):
            _ask_for_commitment(session, window)


def _ask_for_commitment(session: Session, window: Window) -> None:
    ask(
        session,
        key=f"window:{window.root}",
        kind="commit_window",
        subject=f"window:{window.id}",
        **WorkWindows.commitWindow(window.root, window.leaf_count),
    )


def _is_on_its_way(window: Window, patience: timedelta) -> bool:
    return window.status == WindowStatus.CLOSED and utc_now() < window.created_at + patience


def on_window_committed(session: Session, event: ChainEvent) -> None:
    """Handler of the final WindowCommitted event."""
    window = repository.lock_window_by_root(session, event.args["root"])
    if window is None or window.status != WindowStatus.CLOSED:
        return
    window.chain_id_in_contract, window.seed_block = event.args["id"], event.args["seedBlock"]
    window.commit_tx, window.committed_at = event.tx_hash, from_unix(event.timestamp)
    move_window(session, window, WindowEvent.COMMIT)
    wake_after_commit(session, ADVANCE)


def on_seed_rescheduled(session: Session, event: ChainEvent) -> None:
    """Handler of the final SeedRescheduled event: nobody latched in time, so a later block makes the seed."""
    window = repository.lock_window_by_contract_id(session, event.args["id"])
    if window is not None and window.status == WindowStatus.COMMITTED:
        window.seed_block = event.args["seedBlock"]


def latch_seeds(database: Database, head_number: Callable[[], int]) -> None:
    """Ask for the seed of every committed window whose seed block is behind the head."""
    with database.transaction() as session:
        waiting = repository.windows(session, WindowStatus.COMMITTED)
    if not waiting:
        return
    head = head_number()
    with database.transaction() as session:
        for window in waiting:
            if window.seed_block is not None and head > window.seed_block:
                ask(
                    session,
                    key=f"latch:{window.chain_id_in_contract}:{window.seed_block}",
                    kind="latch_seed",
                    subject=f"window:{window.id}",
                    **WorkWindows.latchSeed(window.root),
                )


def on_seed_latched(session: Session, event: ChainEvent) -> None:
    """Handler of the final SeedLatched event; the draw follows from it in the background."""
    window = repository.lock_window_by_contract_id(session, event.args["id"])
    if window is None or window.status != WindowStatus.COMMITTED:
        return
    window.seed, window.latch_tx = event.args["seed"], event.tx_hash
    move_window(session, window, WindowEvent.LATCH)
    wake_after_commit(session, ADVANCE)


def draw_samples(database: Database, settings: Settings, network: NetworkParameters) -> None:
    """Draw the segments of every delivered unit whose window has its seed; each unit in its own transaction."""
    with database.transaction() as session:
        undrawn = [
            (window, unit.id)
            for window in repository.windows(session, WindowStatus.LATCHED)
            for unit in jobs.window_units(session, window.id)
            if unit.status == UnitStatus.UPLOADED
        ]
    for window, unit_id in undrawn:
        with database.transaction() as session:
            unit = jobs.unit_facts(session, unit_id)
            if unit.status == UnitStatus.UPLOADED:
                _draw(session, settings, network, window, unit)


def _draw(session: Session, settings: Settings, network: NetworkParameters, window: Window, unit: UnitFacts) -> None:
    assert window.seed is not None  # latched windows have one
    rate = max(unit.sampling_bps or 0, rate_bps(session, network, unit))
    jobs.mark_checking(session, unit.id, rate)
    drawn = draw_segments(from_hex(window.seed), from_hex(unit.trace_root), unit.segments, rate)
    deadline = reveal_by(session, settings, unit, drawn)
    for segment in drawn:
        sample = Sample(unit_id=unit.id, segment=segment, status=SampleStatus.DRAWN, reveal_deadline_at=deadline)
        sample.reveal_until_at = last_time(utc_now(), deadline)
        canaries.pose_once_more(settings, unit, drawn, sample)
        session.add(sample)
        session.flush()
        if segment == 0 and not jobs.starts_privately(session, unit.id):  # the checkpoint everybody has
            move_sample(session, sample, SampleEvent.REVEAL)
        else:  # in this transaction: a market that dies here and comes back late has asked for it
            ask_for_state(session, unit, sample)


def ask_for_state(session: Session, unit: UnitFacts, sample: Sample) -> None:
    """Offer the unit's provider a lease for the state that a drawn segment starts from, until its last limit."""
    assert sample.reveal_until_at is not None  # set when it was drawn
    slot_state_cid = unit.start_slot_state_cid if jobs.starts_privately(session, unit.id) else None
    task = {"segment": sample.segment, "slot_state_cid": slot_state_cid}
    sample.reveal_lease_id = offer_reveal(session, unit, task, sample.reveal_until_at)


def offer_reveal(session: Session, unit: UnitFacts, task: dict[str, Any], until: datetime) -> str:
    """Offer the unit's provider a lease to show states of it; returns the lease's id.

    Args:
        task: ``segment``, the one whose start state is asked for (0: none), and ``slot_state_cid``, the slot state that
            is asked for too (None: none).
        until: when the lease ends.
    """
    place = {"job_id": unit.job_id, "round": unit.round, "slot": unit.slot}
    lease = jobs.create_lease(
        session,
        kind="reveal",
        holder=unit.provider,
        job_id=unit.job_id,
        task={**place, "unit_id": to_hex(leaf_of(unit.commitment)), **task},
        unit_id=unit.id,
        seconds=(until - utc_now()).total_seconds(),
    )
    return lease.id


def reveal_by(session: Session, settings: Settings, unit: UnitFacts, segments: Sequence[int]) -> datetime:
    """Until when the states that these segments start from are to be shown. One link shows one state after the other:
    the time that these take begins where that of the provider's states ends which were asked for before and are not
    shown yet."""
    leases = timedelta(seconds=reveals.LEASES * settings.lease_seconds)
    transfer = timedelta(seconds=jobs.shown_bytes(session, unit, segments) / reveals.BYTES_PER_SECOND)
    before = repository.last_reveal_deadline(session, jobs.unverified_units_of(session, unit.provider))
    return max(utc_now() + leases, before or utc_now()) + transfer


def rate_bps(session: Session, network: NetworkParameters, unit: UnitFacts) -> int:
    """The rate at which the unit's segments would be drawn now, in basis points."""
    attested = bool(attested_until(session, network, [unit.provider], utc_now()))
    doubted = jobs.is_doubted(session, unit)
    newcomer, least = network.newcomer_sampling_bps, unit.least_sampling_bps
    return sampling_rate_bps(_clean_units(session, unit), newcomer, least, attested=attested, doubted=doubted)


def _clean_units(session: Session, unit: UnitFacts) -> int:
    """How many verified units speak for its provider: none while one is disputed or from before a slash."""
    if providers.is_disputed(session, unit.provider):
        return 0
    return jobs.clean_units_of(session, unit, since=repository.last_slashed_at(session, unit.provider))


def committed_windows(session: Session, ids: Collection[int]) -> list[WindowFacts]:
    """Those of these windows that are committed, oldest first, with the leaves of all their units."""
    found = []
    for window_id in sorted(ids):
        window = repository.window(session, window_id)
        if window is not None and window.chain_id_in_contract is not None:
            leaves = [to_hex(leaf) for leaf in jobs.window_leaves(session, window_id)]
            found.append(WindowFacts(window.id, window.chain_id_in_contract, window.root, leaves))
    return found
