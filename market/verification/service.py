"""What other features and the workers may use of verification."""

from sqlalchemy.orm import Session

from market.chain.views import ChainViews
from market.db.session import Database
from market.domain.network import NetworkParameters
from market.settings import Settings
from market.storage.service import Storage
from market.verification import repository
from market.verification.canaries import plant_canaries
from market.verification.comparing import compare_states, request_claims
from market.verification.decisions import (
    SlashFacts,
    decide_units,
    execute_slashes,
    job_slashes,
    on_slashed,
    slash_verifiers,
)
from market.verification.omissions import (
    answer_claims,
    on_claim_answered,
    on_claim_opened,
    on_compensated,
    outstanding,
)
from market.verification.replays import (
    assign_replays,
    replay_abandoned,
    replay_committed,
    replay_revealed,
    request_states,
    reveal_abandoned,
    state_revealed,
)
from market.verification.windows import (
    WindowFacts,
    close_window,
    commit_windows,
    draw_samples,
    latch_seeds,
    on_seed_latched,
    on_seed_rescheduled,
    on_window_committed,
    windows_of_job,
)

__all__ = [
    "SlashFacts",
    "WindowFacts",
    "advance",
    "drawn_segments",
    "job_slashes",
    "on_claim_answered",
    "on_claim_opened",
    "on_compensated",
    "on_seed_latched",
    "on_seed_rescheduled",
    "on_slashed",
    "on_window_committed",
    "outstanding",
    "replay_abandoned",
    "replay_committed",
    "replay_revealed",
    "reveal_abandoned",
    "state_revealed",
    "windows_of_job",
]


def advance(
    database: Database, storage: Storage, settings: Settings, network: NetworkParameters, chain: ChainViews
) -> None:
    """Do whatever is due in verification; finds nothing to do when called again, or while another worker is at it.

    Raises:
        StorageError, ChainError: a part does not work now; what was due stays due.
    """
    with database.exclusive("verification.advance") as alone:
        if not alone:
            return
        close_window(database, settings)
        commit_windows(database)
        draw_samples(database, settings, network)
        request_states(database, settings)
        plant_canaries(database, storage, settings)
        assign_replays(database, settings)
        request_claims(database, settings)
        compare_states(database, storage, settings)
        decide_units(database, storage)
        slash_verifiers(database, storage)
        execute_slashes(database)
        answer_claims(database)
        latch_seeds(database, chain.head_number)


def drawn_segments(session: Session, unit_id: int) -> list[int]:
    """The segments of a unit that were drawn, ascending."""
    return [sample.segment for sample in repository.samples_of_unit(session, unit_id)]
