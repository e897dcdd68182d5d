"""The way back to verification. It builds on jobs, so jobs look it up when one of its leases ends, not when loading."""

from typing import Any, Protocol

from sqlalchemy.orm import Session


class Verification(Protocol):
    """What verification is told of its leases; each call is part of the caller's unit of work."""

    def replay_committed(self, session: Session, lease: Any, result_hash: str) -> None: ...
    def replay_revealed(
        self,
        session: Session,
        lease: Any,
        end_leaf: str,
        salt: str,
        end_state_cid: str | None,
        inner_digest: str | None,
    ) -> None: ...
    def replay_abandoned(self, session: Session, lease: Any) -> None: ...
    def state_revealed(self, session: Session, lease: Any, state_cid: str | None) -> None: ...
    def is_revealed(self, session: Session, cid: str) -> bool: ...
    def reveal_abandoned(self, session: Session, lease: Any) -> None: ...


def verification() -> Verification:
    """The verification feature's service."""
    from market.verification import service

    return service
