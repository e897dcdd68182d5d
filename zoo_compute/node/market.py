"""The market's calls that a node makes."""

import time
from collections import deque
from dataclasses import asdict, dataclass
from typing import Any

from zoo_compute.http import Connection
from zoo_compute.link import BACKGROUND, Background
from zoo_compute.models import Network
from zoo_protocol.messages import Ask

_MARGIN_SECONDS = 10.0
_ROUND_TRIPS = 8
_LONGEST_ROUND_TRIP_MS = 60_000


@dataclass(frozen=True, slots=True)
class Lease:
    """Work addressed to this node. ``task`` depends on ``kind``: train, reveal, replay, pin, publish or follow."""

    id: str
    kind: str
    job_id: str
    token: str
    task: dict[str, Any]
    lease_seconds: float

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> "Lease":
        """The lease in the market's answer, or in this node's own journal."""
        return cls(**{name: document[name] for name in cls.__slots__})

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class Market:
    """One node's side of the market. All calls raise :class:`ApiError` or :class:`Unreachable`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        # The shortest of the last few: what is above it is load, here or there, and not the way.
        self._round_trips_ms: deque[int] = deque(maxlen=_ROUND_TRIPS)

    def network(self) -> Network:
        """The network's parameters and addresses."""
        return Network.model_validate(self._connection.get("/v1/network"))

    def register(self, registration: dict[str, Any]) -> None:
        """Register this node, or renew what it says of itself."""
        self._connection.post("/v1/providers", registration, repeatable=True)

    def heartbeat(self, busy: bool) -> dict[str, Any]:
        """Say that the node lives, and how far off; returns its status, tier and the longest silence allowed."""
        body = {"busy": busy, "round_trip_ms": min(self._round_trips_ms, default=None)}
        started = time.monotonic()
        answer: dict[str, Any] = self._connection.post("/v1/providers/me/heartbeat", body, repeatable=True)
        self._round_trips_ms.append(min(round((time.monotonic() - started) * 1000), _LONGEST_ROUND_TRIP_MS))
        return answer

    def start_benchmark(self, tier: str) -> dict[str, Any]:
        """A challenge; its clock runs."""
        answer: dict[str, Any] = self._connection.post("/v1/benchmarks", {"tier": tier}, repeatable=True)
        return answer

    def answer_benchmark(self, benchmark_id: str, cid: str) -> dict[str, Any]:
        """The verdict on an uploaded answer."""
        answer: dict[str, Any] = self._connection.post(f"/v1/benchmarks/{benchmark_id}/answer", {"cid": cid})
        return answer

    def open_asks(self) -> list[dict[str, Any]]:
        """This node's standing offers."""
        return [ask for ask in self._connection.get("/v1/asks") if ask["status"] == "open"]

    def place_ask(self, ask: Ask, signature: str) -> None:
        """Put a signed offer into the book, in place of the earlier one."""
        fields = {**asdict(ask), "minPrice": str(ask.minPrice), "nonce": str(ask.nonce)}
        self._connection.post("/v1/asks", {"ask": fields, "signature": signature})

    def upload(self, content: bytes | Background) -> str:
        """Put content on storage; returns its CID."""
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(len(content))}
        extensions = {BACKGROUND: isinstance(content, Background)}
        stored = self._connection.call(
            "POST", "/v1/blobs", repeatable=True, content=content, headers=headers, extensions=extensions
        )
        return str(stored["cid"])

    def next_lease(self, kinds: list[str], wait_seconds: float) -> Lease | None:
        """Work of these kinds, if any comes up while the market waits for it."""
        body = {"kinds": kinds, "wait_seconds": wait_seconds}
        # Not repeated: a lease whose answer was lost is pulled again only after it has expired.
        found = self._connection.call(
            "POST", "/v1/leases/next", repeatable=False, json=body, timeout=wait_seconds + _MARGIN_SECONDS
        )
        return Lease.from_dict(found) if found else None

    def keep_lease(self, lease: Lease, step: int) -> None:
        """Extend a lease and report progress."""
        self._about(lease, "heartbeat", {"step": step})

    def commit(self, lease: Lease, commitment: dict[str, Any]) -> dict[str, Any]:
        """Commit to a result before it is shown; of a unit, the answer holds the market's ``acknowledgement``."""
        return self._about(lease, "commit", commitment)

    def complete(self, lease: Lease, result: dict[str, Any]) -> None:
        """Deliver a result."""
        self._about(lease, "complete", result)

    def fail(self, lease: Lease, code: str, detail: str) -> None:
        """Give a lease up, so that another node gets the work at once."""
        self._about(lease, "fail", {"code": code, "detail": detail[:500]})

    def _about(self, lease: Lease, action: str, body: dict[str, Any]) -> dict[str, Any]:
        # The market answers a repetition of any of these like the first time.
        path = f"/v1/leases/{lease.id}/{action}"
        answer: dict[str, Any] = self._connection.post(path, {"token": lease.token, **body}, repeatable=True)
        return answer
