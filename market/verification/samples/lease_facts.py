"""What verification is told of a lease of its own."""

from typing import Any, Protocol


class LeaseSummary(Protocol):
    """What is used here of a lease on a reveal or a replay, whose job, unit and itself the caller has locked."""

    id: Any
    status: Any
    reason: Any
    holder: Any
    created_at: Any
    task: Any
    unit_id: Any
    replay_id: Any
