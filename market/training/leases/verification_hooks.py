"""Callbacks into verification, which builds on training and cannot be imported here.

:func:`market.wiring.connect_features` registers them once per process, before any lease is handled.
"""

from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy.orm import Session

from market.training.leases.models import Lease


@dataclass(frozen=True, slots=True)
class VerificationHooks:
    """Callbacks into verification; each runs in the caller's transaction.

    Attributes:
        replay_committed: takes the replay's result hash and its signature.
        replay_revealed: takes the end leaf, the salt, the CID of the end state and the inner digest.
        replay_abandoned: for a replay lease that expired or failed.
        state_revealed: takes the CID of the revealed state, if there is one.
        reveal_abandoned: for a reveal lease that expired or failed.
        is_revealed: takes a CID; True if a sampled segment starts from the state in that file.
    """

    replay_committed: Callable[[Session, Lease, str, str], None]
    replay_revealed: Callable[[Session, Lease, str, str, str | None, str | None], None]
    replay_abandoned: Callable[[Session, Lease], None]
    state_revealed: Callable[[Session, Lease, str | None], None]
    reveal_abandoned: Callable[[Session, Lease], None]
    is_revealed: Callable[[Session, str], bool]


class HooksMissing(RuntimeError):
    """No hooks are registered in this process."""


_registered: list[VerificationHooks] = []


def register(given: VerificationHooks) -> None:
    _registered[:] = [given]


def hooks() -> VerificationHooks:
    """Return the process's hooks. Raises HooksMissing."""
    if not _registered:
        raise HooksMissing("No verification hooks are registered. Call market.wiring.connect_features first.")
    return _registered[0]
