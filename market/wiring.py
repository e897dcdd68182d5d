"""Connections between features that cannot import each other, for the composition roots."""

from market.training.leases import verification_hooks
from market.training.leases.verification_hooks import VerificationHooks
from market.verification.replays.service import replay_abandoned, replay_committed, replay_revealed
from market.verification.replays.start_states import reveal_abandoned, state_revealed
from market.verification.samples.service import is_revealed


def connect_features() -> None:
    """Register verification's hooks for its leases. Idempotent."""
    verification_hooks.register(
        VerificationHooks(
            replay_committed=replay_committed,
            replay_revealed=replay_revealed,
            replay_abandoned=replay_abandoned,
            state_revealed=state_revealed,
            reveal_abandoned=reveal_abandoned,
            is_revealed=is_revealed,
        )
    )
