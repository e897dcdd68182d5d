"""Interface of verification's leases."""

from typing import Any, Protocol


class LeaseSummary(Protocol):
    """Fields of a reveal or replay lease. The caller has locked the lease, its job and its unit."""

    id: Any
    status: Any
    reason: Any
    holder: Any
    created_at: Any
    task: Any
    unit_id: Any
    replay_id: Any
