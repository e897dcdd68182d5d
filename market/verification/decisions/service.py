"""One pass over all verification steps that are due."""

from collections.abc import Collection

from market.chain.views import ChainViews
from market.domain.network import NetworkParameters
from market.platform.db.session import Database
from market.platform.storage.client import Storage
from market.providers.outages import service as outages
from market.settings import Settings
from market.verification.decisions.dispute_routing import Adjudicator
from market.verification.decisions.late_states import record_late_states
from market.verification.decisions.slashes import slash_verifiers
from market.verification.decisions.unit_outcomes import decide_units
from market.verification.disputes import challenger as disputes
from market.verification.disputes.challenger import Challenger
from market.verification.penalties.service import execute_slashes
from market.verification.replays.canaries import create_canaries
from market.verification.replays.comparisons import compare_states, request_claims
from market.verification.replays.faults import record_faults
from market.verification.replays.sampling import draw_samples
from market.verification.replays.service import assign_replays
from market.verification.replays.start_states import request_states
from market.verification.samples import repository as samples_repository
from market.verification.windows.omissions import answer_claims
from market.verification.windows.service import close_window, commit_windows, latch_seeds


def advance(
    database: Database,
    storage: Storage,
    settings: Settings,
    network: NetworkParameters,
    chain: ChainViews,
    challenger: str | None = None,
    former: Collection[str] = (),
) -> None:
    """Do all due verification steps. Idempotent; no-op while another worker does them.

    Args:
        challenger: the market's account that opens disputes, if it has one.
        former: earlier accounts that only finish their disputes.

    Raises:
        StorageError, ChainError: a step failed; the next call repeats it.
    """
    with database.advisory_lock("verification.advance") as alone:
        if not alone:
            return
        close_window(database, settings, network)
        commit_windows(database)
        draw_samples(database, settings, network)
        storable = _is_storable(database, storage)
        request_states(database, storable=storable)
        record_faults(database, storage, storable=storable)
        create_canaries(database, storage, settings)
        assign_replays(database, settings)
        request_claims(database, settings)
        account = None if challenger is None else Challenger(challenger, chain, network.disputes)
        try:
            compare_states(database, storage)
            decide_units(database, storage, Adjudicator(account, settings.onchain_disputes_enabled))
            slash_verifiers(database, storage)
            record_late_states(database, storage)
        finally:  # deadlines on chain run while storage is down
            execute_slashes(database)
            answer_claims(database)
            ours = {*former} if challenger is None else {*former, challenger}
            disputes.advance(database, chain, network.disputes, ours)
            latch_seeds(database, chain.head_number)


def _is_storable(database: Database, storage: Storage) -> bool:
    """Return True if storage accepts content; tested only while open requests depend on it."""
    with database.transaction() as session:
        if not samples_repository.depends_on_storage(session):
            return True
    works = storage.accepts_writes()
    with database.transaction() as session:
        outages.record_storage_check(session, works)
    return works
