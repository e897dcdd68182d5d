"""What other features and the workers may use of verification."""

from collections.abc import Collection

from sqlalchemy.orm import Session

from market.chain.views import ChainViews
from market.db.session import Database
from market.disputes import challenger as disputes
from market.disputes.challenger import Challenger
from market.domain.network import NetworkParameters
from market.outages import service as outages
from market.settings import Settings
from market.storage.service import Storage
from market.verification import repository
from market.verification.canaries import plant_canaries
from market.verification.comparing import compare_states, request_claims
from market.verification.court import Court
from market.verification.decisions import decide_units, on_dispute_ended
from market.verification.faults import book_faults
from market.verification.lateness import book_late_states
from market.verification.omissions import (
    answer_claims,
    on_claim_answered,
    on_claim_opened,
    on_compensated,
    outstanding,
)
from market.verification.releasing import release_states
from market.verification.replays import (
    assign_replays,
    replay_abandoned,
    replay_committed,
    replay_revealed,
)
from market.verification.slashes import (
    execute_slashes,
    job_slashes,
    on_slashed,
    slash_verifiers,
)
from market.verification.states import request_states, reveal_abandoned, state_revealed
from market.verification.windows import (
    WindowFacts,
    close_window,
    commit_windows,
    committed_windows,
    draw_samples,
    latch_seeds,
    on_seed_latched,
    on_seed_rescheduled,
    on_window_committed,
)

__all__ = [
    "WindowFacts",
    "advance",
    "committed_windows",
    "drawn_segments",
    "is_revealed",
    "job_slashes",
    "on_claim_answered",
    "on_claim_opened",
    "on_compensated",
    "on_dispute_ended",
    "on_seed_latched",
    "on_seed_rescheduled",
    "on_slashed",
    "on_window_committed",
    "outstanding",
    "release_states",
    "replay_abandoned",
    "replay_committed",
    "replay_revealed",
    "reveal_abandoned",
    "state_revealed",
]


def advance(
    database: Database,
    storage: Storage,
    settings: Settings,
    network: NetworkParameters,
    chain: ChainViews,
    challenger: str | None = None,
    former: Collection[str] = (),
) -> None:
    """Do whatever is due in verification; finds nothing to do when called again, or while another worker is at it.

    Args:
        challenger: the market's account that disputes units, if it has one.
        former: its accounts that only bring to an end what they have begun.

    Raises:
        StorageError, ChainError: a part does not work now; what was due stays due.
    """
    with database.exclusive("verification.advance") as alone:
        if not alone:
            return
        close_window(database, settings, network)
        commit_windows(database)
        draw_samples(database, settings, network)
        storable = _is_storable(database, storage)
        request_states(database, storable=storable)
        book_faults(database, storage, storable=storable)
        plant_canaries(database, storage, settings)
        assign_replays(database, settings)
        request_claims(database, settings)
        account = None if challenger is None else Challenger(challenger, chain, network.disputes)
        try:
            compare_states(database, storage)
            decide_units(database, storage, Court(account, settings.disputes))
            slash_verifiers(database, storage)
            book_late_states(database, storage)
        finally:  # the chain's deadlines do not wait for storage
            execute_slashes(database)
            answer_claims(database)
            ours = {*former} if challenger is None else {*former, challenger}
            disputes.advance(database, chain, network.disputes, ours)
            latch_seeds(database, chain.head_number)


def _is_storable(database: Database, storage: Storage) -> bool:
    """Whether storage takes what it is given. Nobody looks while nothing that is asked of nodes depends on it."""
    with database.transaction() as session:
        if not repository.depends_on_storage(session):
            return True
    works = storage.takes()
    with database.transaction() as session:
        outages.note_storage(session, works)
    return works


def is_revealed(session: Session, cid: str) -> bool:
    """Whether a drawn segment starts from the state in this file."""
    return repository.is_revealed(session, cid)


def drawn_segments(session: Session, unit_id: int) -> list[int]:
    """The segments of a unit that were drawn, ascending."""
    return [sample.segment for sample in repository.samples_of_unit(session, unit_id)]
