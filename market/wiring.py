"""Connections between features that cannot import each other, made once per process by its composition root."""

from market.jobs import replaying
from market.jobs.replaying import VerificationHooks
from market.verification.replays import replay_abandoned, replay_committed, replay_revealed
from market.verification.service import is_revealed
from market.verification.states import reveal_abandoned, state_revealed


def connect_features() -> None:
    """Register verification's hooks for its leases. Repeating it changes nothing."""
    replaying.register(
        VerificationHooks(
            replay_committed=replay_committed,
            replay_revealed=replay_revealed,
            replay_abandoned=replay_abandoned,
            state_revealed=state_revealed,
            reveal_abandoned=reveal_abandoned,
            is_revealed=is_revealed,
        )
    )
