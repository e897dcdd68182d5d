"""What other features and the workers may use of verification."""

from collections.abc import Callable

from sqlalchemy.orm import Session

from market.db.session import Database
from market.domain.network import NetworkParameters
from market.settings import Settings
from market.storage.service import Storage
from market.verification import repository
from market.verification.decisions import SlashFacts, decide_units, on_slashed, slashes_of
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
    close_window,
    draw_samples,
    latch_seeds,
    on_seed_latched,
    on_seed_rescheduled,
    on_window_committed,
)

__all__ = [
    "SlashFacts",
    "advance",
    "drawn_segments",
    "on_seed_latched",
    "on_seed_rescheduled",
    "on_slashed",
    "on_window_committed",
    "replay_abandoned",
    "replay_committed",
    "replay_revealed",
    "reveal_abandoned",
    "slashes_of",
    "state_revealed",
    "window_contract_id",
]


def advance(
    database: Database,
    settings: Settings,
    network: NetworkParameters,
    storage: Storage,
    head_number: Callable[[], int],
) -> None:
    """Do whatever is due in verification; finds nothing to do when called again, or while another worker is at it.

    Args:
        head_number: asks the chain for its latest block's number; called only while a window waits for its seed.

    Raises:
        StorageError, ChainError: a part does not work now; what was due stays due.
    """
    with database.exclusive("verification.advance") as alone:
        if not alone:
            return
        close_window(database, settings)
        draw_samples(database, settings, network)
        request_states(database, settings)
        assign_replays(database, settings)
        decide_units(database, storage)
        latch_seeds(database, head_number)


def window_contract_id(session: Session, window_id: int) -> int | None:
    """The window's id in the contract, once its commitment is final."""
    window = repository.window(session, window_id)
    return None if window is None else window.chain_id_in_contract


def drawn_segments(session: Session, unit_ids: list[int]) -> dict[int, list[int]]:
    """The segments that were drawn, by unit id, ascending."""
    found = repository.samples_of_units(session, unit_ids)
    return {unit_id: [sample.segment for sample in samples] for unit_id, samples in found.items()}
