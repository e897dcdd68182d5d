"""Commitment windows: a root over unit commitments on chain before the sampling seed.

closed (units fixed, root requested) → committed (root final, seed block known) → latched (seed final; segments are
sampled and replayed) → decided.
"""

from collections.abc import Callable, Collection
from datetime import timedelta

from sqlalchemy.orm import Session

from market.chain.contracts.bindings import WorkWindows
from market.chain.contracts.codec import ChainEvent
from market.chain.service import request_call
from market.domain.lifecycle import UnitStatus
from market.domain.network import NetworkParameters
from market.domain.verification.lifecycle import WindowEvent, WindowStatus
from market.platform.db.base import from_unix, utc_now
from market.platform.db.session import Database, enqueue_after_commit
from market.providers import service as providers
from market.providers.attestation.chain_events import attested_until
from market.settings import Settings
from market.training.commitments import service as commitments
from market.training.evaluation import service as evaluation
from market.training.units import service as units_service
from market.training.units.facts import UnitSummary
from market.verification.penalties import repository as penalties_repository
from market.verification.windows import repository
from market.verification.windows.models import Window
from market.verification.windows.transitions import transition_window
from zoo_protocol import merkle
from zoo_protocol.hashing import to_hex
from zoo_protocol.payments.job_record import WindowRecord, leaf_of
from zoo_protocol.verification.rules import sampling_rate_bps

MAX_LEAVES = 4096
ADVANCE = "verification.advance"


def close_window(database: Database, settings: Settings, network: NetworkParameters) -> None:
    """Close a window over all commitments that are in none, and request its commitment on chain.

    Lost and rejected units are included: each commitment was acknowledged, and an omission costs the operator's bond.
    Units in upload wait. A window closes once no other awaits its commitment, or after ``window_seconds``.

    The sampling rates of delivered units are recorded here. Once the seed is known they may only rise.
    """
    with database.transaction() as session:
        newest = repository.newest_window(session)
        timeout = timedelta(seconds=settings.window_seconds)
        if newest is not None and newest.status == WindowStatus.CLOSED and utc_now() < newest.created_at + timeout:
            return
        units = commitments.windowless_units(session, MAX_LEAVES)
        if not units:
            return
        units.sort(key=lambda unit: (unit.job_id, unit.round, unit.slot))
        root = to_hex(merkle.root([leaf_of(unit.commitment) for unit in units]))
        window = Window(status=WindowStatus.CLOSED, root=root, leaf_count=len(units))
        session.add(window)
        session.flush()
        rates = {
            unit.id: rate_bps(session, network, unit) if unit.status == UnitStatus.UPLOADED else None for unit in units
        }
        commitments.assign_window(session, rates, window.id)
        _request_commitment(session, window)


def commit_windows(database: Database) -> None:
    with database.transaction() as session:
        for window in repository.windows(session, WindowStatus.CLOSED):
            _request_commitment(session, window)


def _request_commitment(session: Session, window: Window) -> None:
    request_call(
        session,
        key=f"window:{window.root}",
        kind="commit_window",
        subject=f"window:{window.id}",
        **WorkWindows.commitWindow(window.root, window.leaf_count),
    )


def on_window_committed(session: Session, event: ChainEvent) -> None:
    window = repository.lock_window_by_root(session, event.args["root"])
    if window is None or window.status != WindowStatus.CLOSED:
        return
    window.chain_id_in_contract, window.seed_block = event.args["id"], event.args["seedBlock"]
    window.commit_tx, window.committed_at = event.tx_hash, from_unix(event.timestamp)
    transition_window(session, window, WindowEvent.COMMIT)
    enqueue_after_commit(session, ADVANCE)


def on_seed_rescheduled(session: Session, event: ChainEvent) -> None:
    """Handle the final SeedRescheduled event: a later block gives the seed."""
    window = repository.lock_window_by_contract_id(session, event.args["id"])
    if window is not None and window.status == WindowStatus.COMMITTED:
        window.seed_block = event.args["seedBlock"]


def latch_seeds(database: Database, head_number: Callable[[], int]) -> None:
    """Request the seed of every committed window whose seed block is behind the head."""
    with database.transaction() as session:
        waiting = repository.windows(session, WindowStatus.COMMITTED)
    if not waiting:
        return
    head = head_number()
    with database.transaction() as session:
        for window in waiting:
            if window.seed_block is not None and head > window.seed_block:
                request_call(
                    session,
                    key=f"latch:{window.chain_id_in_contract}:{window.seed_block}",
                    kind="latch_seed",
                    subject=f"window:{window.id}",
                    **WorkWindows.latchSeed(window.root),
                )


def on_seed_latched(session: Session, event: ChainEvent) -> None:
    """Handle the final SeedLatched event; sampling follows in the background."""
    window = repository.lock_window_by_contract_id(session, event.args["id"])
    if window is None or window.status != WindowStatus.COMMITTED:
        return
    window.seed, window.latch_tx = event.args["seed"], event.tx_hash
    transition_window(session, window, WindowEvent.LATCH)
    enqueue_after_commit(session, ADVANCE)


def committed_windows(session: Session, ids: Collection[int]) -> dict[int, WindowRecord]:
    """Return by id the committed ones of these windows, oldest first, with all leaves."""
    found = {}
    for window_id in sorted(ids):
        window = repository.window(session, window_id)
        if window.chain_id_in_contract is not None:
            leaves = [to_hex(leaf) for leaf in commitments.window_leaves(session, window_id)]
            found[window.id] = WindowRecord(window.chain_id_in_contract, window.root, leaves)
    return found


def rate_bps(session: Session, network: NetworkParameters, unit: UnitSummary) -> int:
    """Return the current sampling rate of the unit's segments in basis points."""
    attested = bool(attested_until(session, network, [unit.provider], utc_now()))
    flagged = evaluation.has_outlier_flag(session, unit)
    newcomer, floor = network.newcomer_sampling_bps, unit.min_sampling_bps
    return sampling_rate_bps(clean_units(session, unit), newcomer, floor, attested=attested, flagged=flagged)


def clean_units(session: Session, unit: UnitSummary) -> int:
    """Return settled units since the provider's last slash; 0 during a dispute."""
    if providers.is_disputed(session, unit.provider):
        return 0
    return units_service.clean_units_of(
        session, unit, since=penalties_repository.last_slashed_at(session, unit.provider)
    )
