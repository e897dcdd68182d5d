"""Calls of the market's API that a node makes."""

import re
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from zoo_compute.base.errors import ApiError
from zoo_compute.base.link import BACKGROUND, Background
from zoo_compute.base.models import Network
from zoo_compute.client.http import Connection, answer_errors
from zoo_protocol.messages import Ask

WALLET_IN_USE = "wallet-in-use"
_CHECKED_WITHIN_SECONDS = 1_800.0  # a benchmark that is given up can be repeated only after a day
_MARGIN_SECONDS = 10.0
_ROUND_TRIPS = 8
_MAX_ROUND_TRIP_MS = 60_000
_SILENCE_SECONDS = 30.0
_READ_BYTES_PER_SECOND = 5_000_000  # lower bound
_OF_A_POLL = {"status", "reason", "benchmark_by", "verifiers_of_class"}


@dataclass(frozen=True, slots=True)
class Lease:
    """Lease of this node: train, reveal, replay, pin, publish or follow."""

    id: str
    kind: str
    job_id: str
    token: str
    task: dict[str, Any]
    lease_seconds: float

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> "Lease":
        """Parse the market's answer, or a stored lease.

        Raises:
            KeyError, TypeError, ValueError: the document is malformed.
        """
        found = cls(**{name: document[name] for name in cls.__slots__})
        if not (isinstance(found.task, dict) and isinstance(found.lease_seconds, int | float)):
            raise TypeError("task is not an object, or lease_seconds is not a number")
        if not re.fullmatch("[A-Za-z0-9-]{1,64}", found.id):  # the id becomes a file name
            raise ValueError(f"id is {found.id!r:.80}; expected 1 to 64 letters, digits and hyphens")
        return found


@dataclass(frozen=True, slots=True)
class Disputed:
    """Dispute of this node's unit; authorises uploads like a lease."""

    dispute_id: str


Asking = Lease | Disputed
PollAnswer = tuple[dict[str, Any], Lease | None]


class Market:
    """The market's API for one node. All calls raise :class:`ApiError` or :class:`Unreachable`.

    Args:
        session: random id of this process; distinguishes nodes with the same wallet.
        predecessors: ids of earlier processes on the node's directory.
    """

    def __init__(self, connection: Connection, session: str = "", predecessors: Sequence[str] = ()) -> None:
        self._connection = connection
        self._session = {"session": session, "predecessors": list(predecessors)}
        # The minimum of recent round trips excludes load on either side.
        self._round_trips_ms: deque[int] = deque(maxlen=_ROUND_TRIPS)
        self._challenge = ""

    def wait_or_stop(self, seconds: float) -> bool:
        """Wait for ``seconds``; returns True at once when the node stops."""
        return self._connection.wait_or_stop(seconds)

    def network(self) -> Network:
        with answer_errors("GET /v1/network"):
            return Network.model_validate(self._connection.get("/v1/network"))

    def register(self, registration: dict[str, Any]) -> None:
        """Register this node, or renew its registration."""
        self._connection.post("/v1/providers", registration, repeatable=True)

    def poll(self, sign: Callable[[str], str], kinds: Sequence[str] = (), wait_seconds: float = 0.0) -> PollAnswer:
        """Send a heartbeat and wait for work; return the node's state at the market and a lease.

        Args:
            sign: returns the wallet's signature of a challenge.

        Raises:
            ApiError: ``wallet-in-use``: another node has the wallet; ``not-registered``.
        """
        with answer_errors("a poll"):
            answer = self._poll(sign, kinds, wait_seconds)
            if not answer["counted"]:  # the first one or after a timeout: the challenge is known only now
                answer = self._poll(sign, kinds, wait_seconds)
            missing = _OF_A_POLL - answer.keys()
            if missing:
                raise KeyError(*missing)
            lease = Lease.from_dict(answer["lease"]) if answer["lease"] else None
            if lease is not None and lease.kind not in kinds:
                raise ValueError(f"the lease is of kind {lease.kind!r:.80}")
            return answer | {"next_within_seconds": float(answer["next_within_seconds"])}, lease

    def _poll(self, sign: Callable[[str], str], kinds: Sequence[str], wait_seconds: float) -> dict[str, Any]:
        body: dict[str, Any] = {"kinds": kinds, "wait_seconds": wait_seconds}
        body["round_trip_ms"] = min(self._round_trips_ms, default=None)
        if self._challenge:
            body |= self._session
            body |= {"challenge": self._challenge, "signature": sign(self._challenge)}
        started = time.monotonic()
        # Not repeated: if the answer is lost, the lease becomes available again after it expires.
        answer: dict[str, Any] = self._connection.poll("/v1/leases/next", body, wait_seconds + _MARGIN_SECONDS)
        round_trip_ms = round((time.monotonic() - started) * 1000) - int(answer["waited_ms"])
        self._round_trips_ms.append(min(max(round_trip_ms, 0), _MAX_ROUND_TRIP_MS))
        self._challenge = answer["challenge"]
        return answer

    def _call(self, method: str, path: str, **request: Any) -> dict[str, Any]:
        """Make an idempotent call."""
        answer: dict[str, Any] = self._connection.call(method, path, repeatable=True, **request)
        return answer

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return self._call("POST", path, json=body)

    def start_benchmark(self, tier: str) -> dict[str, Any]:
        """Return a benchmark challenge; its clock starts later."""
        return self._post("/v1/benchmarks", {"tier": tier})

    def begin_benchmark(self, benchmark_id: str) -> dict[str, Any]:
        """Report the pool as ready, which starts the clock; returns the nonce."""
        return self._post(f"/v1/benchmarks/{benchmark_id}/ready", {})

    def commit_benchmark(self, benchmark_id: str, commitment: str) -> dict[str, Any]:
        """Commit to the completed work; returns what to open."""
        return self._post(f"/v1/benchmarks/{benchmark_id}/commit", {"commitment": commitment})

    def answer_benchmark(self, benchmark_id: str, cid: str) -> dict[str, Any]:
        """Return the verdict on an uploaded answer. The upload time counts."""
        path = f"/v1/benchmarks/{benchmark_id}/answer"
        return self._call("POST", path, retry_seconds=_CHECKED_WITHIN_SECONDS, json={"cid": cid})

    def attested_until(self, address: str) -> str | None:
        """Return the end of a node's attestation on chain; None if it has none."""
        until: str | None = self._connection.get(f"/v1/providers/{address}")["attested_until"]
        return until

    def start_attestation(self) -> dict[str, Any]:
        """Return a challenge to which a TEE quote must be bound."""
        return self._post("/v1/attestations", {})

    def answer_attestation(
        self, challenge_id: str, quote: str, collateral: dict[str, str], gpus: dict[str, Any] | None
    ) -> dict[str, Any]:
        """Submit a TEE quote; returns what the market read in it."""
        body = {"quote": quote, "collateral": collateral} | ({} if gpus is None else {"gpu_statement": gpus})
        answer: dict[str, Any] = self._connection.post(f"/v1/attestations/{challenge_id}/quote", body)
        return answer

    def open_asks(self) -> list[dict[str, Any]]:
        with answer_errors("GET /v1/asks"):
            return [ask for ask in self._connection.get("/v1/asks") if ask["status"] == "open"]

    def place_ask(self, ask: Ask, signature: str) -> None:
        """Place a signed ask, which replaces the earlier one."""
        fields = {**asdict(ask), "minPrice": str(ask.minPrice), "nonce": str(ask.nonce)}
        self._connection.post("/v1/asks", {"ask": fields, "signature": signature})

    def upload(self, content: bytes | Background) -> str:
        with answer_errors("POST /v1/blobs"):
            return str(self._send("POST", "/v1/blobs", content)["cid"])

    def file_state(self, lease: Asking, cid: str) -> dict[str, Any]:
        """Return which chunks of a file storage has: ``pieces`` (CIDs by number), or ``complete``."""
        return self._call("GET", _file_path(lease, cid), headers=_token(lease))

    def put_piece(self, lease: Asking, cid: str, number: int, piece_cid: str, content: bytes | Background) -> None:
        """Upload one chunk of a file."""
        path = f"{_file_path(lease, cid)}/pieces/{number}"
        self._send("PUT", path, content, headers=_token(lease), params={"piece_cid": piece_cid})

    def join_pieces(self, lease: Asking, cid: str, size: int) -> None:
        """Assemble the chunks into a file of ``size`` bytes."""
        self._connection.call(
            "POST", _file_path(lease, cid), repeatable=True, headers=_token(lease), timeout=_seconds_for(size)
        )

    def _send(
        self, method: str, path: str, content: bytes | Background, headers: dict[str, str] | None = None, **more: Any
    ) -> dict[str, Any]:
        size = {"Content-Type": "application/octet-stream", "Content-Length": str(len(content))}
        more |= {"headers": size | (headers or {}), "extensions": {BACKGROUND: isinstance(content, Background)}}
        return self._call(method, path, content=content, **more)

    def owner_of(self, address: str) -> str | None:
        """Return a node's declared owner; None if it declares none or is not registered."""
        try:
            owner: str | None = self._connection.get(f"/v1/providers/{address}")["owner"]
        except ApiError as error:
            if error.code == "provider-not-found":
                return None
            raise
        return owner

    def dispute(self, dispute_id: str) -> dict[str, Any]:
        """Return the market's record of a dispute (``GET /v1/disputes/{id}``)."""
        with answer_errors("GET /v1/disputes/{id}"):
            found: dict[str, Any] = self._connection.get(f"/v1/disputes/{dispute_id}")
            return {**found, "step": found["step"], "state_cid": found["state_cid"]}

    def report_state(self, dispute_id: str, cid: str) -> None:
        """Report the CID of a disputed segment's start state."""
        self._connection.call("PUT", f"/v1/disputes/{dispute_id}/state", repeatable=True, json={"state_cid": cid})

    def give_verdict(self, verdict: dict[str, Any]) -> None:
        """Submit a signed verdict: ``dispute_id``, ``draw``, ``provider_correct``, and so on."""
        body = {name: verdict[name] for name in ("draw", "provider_correct", "reason", "signature")}
        self._connection.post(f"/v1/disputes/{verdict['dispute_id']}/verdicts", body, repeatable=True)

    def keep_lease(self, lease: Lease, step: int, probe: str | None = None) -> None:
        """Extend a lease and report progress, or the digest of the job's probe."""
        self._post_to_lease(lease, "heartbeat", {"step": step} if probe is None else {"probe": probe})

    def commit(self, lease: Lease, commitment: dict[str, Any]) -> dict[str, Any]:
        """Commit to a result before its reveal; a unit's answer has the ``acknowledgement``."""
        return self._post_to_lease(lease, "commit", commitment)

    def complete(self, lease: Lease, result: dict[str, Any], size: int = 0) -> None:
        """Deliver a result. The market reads ``size`` bytes of files before it answers."""
        self._post_to_lease(lease, "complete", result, timeout=_seconds_for(size))

    def fail(self, lease: Lease, code: str, detail: str) -> None:
        """Give a lease up; another node gets the work at once."""
        self._post_to_lease(lease, "fail", {"code": code, "detail": detail[:500]})

    def _post_to_lease(self, lease: Lease, action: str, body: dict[str, Any], **request: Any) -> dict[str, Any]:
        return self._call("POST", f"/v1/leases/{lease.id}/{action}", json={"token": lease.token, **body}, **request)


def _file_path(lease: Asking, cid: str) -> str:
    place = f"disputes/{lease.dispute_id}" if isinstance(lease, Disputed) else f"leases/{lease.id}"
    return f"/v1/{place}/files/{cid}"


def _token(lease: Asking) -> dict[str, str]:
    return {} if isinstance(lease, Disputed) else {"X-Lease-Token": lease.token}


def _seconds_for(size: int) -> float:
    """Return the timeout of a call for which the market reads ``size`` bytes."""
    return _SILENCE_SECONDS + size / _READ_BYTES_PER_SECOND
