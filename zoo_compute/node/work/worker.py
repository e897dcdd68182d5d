"""Execution of leases: train, reveal, pin, prefetch, upload a state, replay, evaluate."""

import hashlib
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from training_gym.spec.config import TrainingSpec
from training_gym.spec.costs import gpus_in_use, unit_memory_bytes
from training_gym.units.replica_state import slot_state_bytes
from training_gym.units.trace import boundary_state_bytes, state_path
from zoo_compute.base.link import Link
from zoo_compute.chain.wallet import Wallet
from zoo_compute.content.gateway import GatewayClient, GatewayUnavailable
from zoo_compute.content.packs import force_to_disk
from zoo_compute.node.disk.files import read_json, write_json
from zoo_compute.node.disk.traces import Trace, TraceLost, Traces
from zoo_compute.node.disk.workspace import MAX_INPUT_BYTES, Workspace
from zoo_compute.node.execution.executor import Executor
from zoo_compute.node.market.calls import Lease, Market
from zoo_compute.node.work.acknowledgements import Acknowledgements, NotAcknowledged
from zoo_compute.node.work.held_lease import HeldLease
from zoo_compute.node.work.inputs import UNIT_FIELDS, SlotStateMissing, model_task, prefetch, unit_task
from zoo_compute.node.work.states import state_file
from zoo_compute.node.work.uploads import measured_rate, upload_file
from zoo_protocol.content.cid import parse
from zoo_protocol.content.unixfs import cid_of_file
from zoo_protocol.hashing import from_hex, keccak, to_hex
from zoo_protocol.messages import Domain, ReplayCommitment, UnitCommitment, typed_data
from zoo_protocol.payments.job_record import INPUT_FILES, result_hash
from zoo_protocol.verification import trace
from zoo_protocol.verification.reveal_deadline import reveal_timeout_seconds
from zoo_protocol.verification.training_faults import stated_loss

GATEWAY_OUTAGE_SECONDS = 120.0
"""Retry period of input downloads while no gateway answers, for example during a restart."""

DRAWN_TOGETHER = 2
"""Units of one node that can be sampled in one commitment window: one in training and one in delivery."""

_GATEWAY_PAUSE_SECONDS = 5.0
_ACKNOWLEDGEMENT_RETRIES = (0.5, 1.0, 2.0, 4.0)  # seconds between the attempts

log = logging.getLogger(__name__)

_T = TypeVar("_T")


class LinkTooSlow(Exception):
    """The uplink is too slow to reveal sampled states in time.

    Attributes:
        code: reason of giving up the unit.
    """

    code = "link_too_slow"


class UnitResourceUsage:
    """Usage of one unit since construction, with other leases' traffic; not verified."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._up, self._down = link.up.bytes, link.down.bytes
        self._transfer_seconds = 0.0

    @contextmanager
    def transferring(self) -> Iterator[None]:
        """Count the block as transfer time, and give its transfers precedence over background ones."""
        started = time.monotonic()
        try:
            with self._link.urgent():
                yield
        finally:
            self._transfer_seconds += time.monotonic() - started

    def report(self, compute_seconds: float) -> dict[str, Any]:
        """Return times in ms, bytes each way, and last rates in bytes per second, or None."""
        return {
            "compute_ms": round(1000 * compute_seconds),
            "transfer_ms": round(1000 * self._transfer_seconds),
            "bytes_up": self._link.up.bytes - self._up,
            "bytes_down": self._link.down.bytes - self._down,
            "up_bytes_per_second": self._link.up.bytes_per_second,
            "down_bytes_per_second": self._link.down.bytes_per_second,
        }


def require_link(lease: Lease, bytes_per_second: int | None) -> None:
    """Check that a unit's states can be revealed in time at the rate (None: unmeasured).

    The worst case is that all segments of ``DRAWN_TOGETHER`` units are sampled at once.

    Raises:
        LinkTooSlow: they cannot.
    """
    spec = TrainingSpec.from_dict(lease.task["spec"])
    one = (spec.segments - 1) * boundary_state_bytes(spec) + slot_state_bytes(spec)
    size = DRAWN_TOGETHER * one
    if bytes_per_second is not None and size > bytes_per_second * reveal_timeout_seconds(size, lease.lease_seconds):
        raise LinkTooSlow(
            f"at {bytes_per_second * 8 / 1e6:.1f} Mb/s upwards the states of {DRAWN_TOGETHER} units "
            f"({size / 1e6:.0f} MB) cannot be revealed in time if all were sampled"
        )


def require_memory(lease: Lease, executor: Executor) -> None:
    """Refuse a unit beyond this node's memory. Raises ExecutorError: ``out_of_memory``."""
    spec = TrainingSpec.from_dict(lease.task["spec"])
    processes = gpus_in_use(spec, executor.usable_processes) if lease.kind == "train" else 1
    executor.require_memory(unit_memory_bytes(spec), processes)


def _load_result(document: Any) -> dict[str, Any]:
    """Parse a stored result. Raises ValueError, LookupError, TypeError, OSError."""
    found: dict[str, Any] = {"start": document["start"], "state_digests": document["state_digests"], **document}
    if to_hex(hashlib.sha256(Path(found["payload"]).read_bytes()).digest()) != found["payload_sha256"]:
        raise ValueError("payload differs from payload_sha256")
    return found


@dataclass(frozen=True, slots=True)
class Worker:
    """Executor of leases of every kind."""

    market: Market
    wallet: Wallet
    domain: Domain
    workspace: Workspace
    gateway: GatewayClient
    executor: Executor
    acknowledgements: Acknowledgements
    link: Link

    def do(self, held: HeldLease) -> Callable[[], None] | None:
        """Do the work of one lease; returns the part that can run in parallel with the next lease.

        Raises:
            LeaseLost, ApiError: the market does not accept the result.
            ExecutorError, GymError, ContentError, BlockNotFound, GatewayUnavailable, SlotStateMissing, LinkTooSlow,
                StateUnavailable, OSError: the task cannot be done.
            NotAcknowledged: the market accepts the commitment, but does not acknowledge it.
            Unreachable: the node is stopping and the market does not answer.
        """
        kinds: dict[str, Callable[[HeldLease], Callable[[], None] | None]] = {
            "train": self._train,
            "reveal": self._reveal,
            "pin": self._pin,
            "publish": self._publish,
            "follow": self._prefetch,
            "replay": self._replay,
            "evaluate": self._evaluate,
        }
        return kinds[held.lease.kind](held)

    def _train(self, held: HeldLease) -> Callable[[], None] | None:
        lease, task, address = held.lease, held.lease.task, self.wallet.address
        effort = UnitResourceUsage(self.link)
        result = self._trained(held, effort)
        salt = self._salt(lease)
        payload_digest = from_hex(result["payload_sha256"])
        commitment = UnitCommitment(
            jobId=task["job_id"],
            round=task["round"],
            slot=task["slot"],
            provider=address,
            traceRoot=result["trace_root"],
            payloadHash=to_hex(trace.payload_hash(payload_digest, address, salt)),
        )
        # Before the signature leaves this node: a signed root whose trace is lost cannot be defended.
        start = {name: task[name] for name in UNIT_FIELDS}
        signed = Trace(commitment, task["environment"], result["state_digests"], start, result.get("begun"))
        Traces(self.workspace.traces).keep(signed)
        goes_on = bool(task["spec"]["training_config"].get("round_delay"))
        self._commit(held, commitment, self._declared(result) if goes_on else {})
        deliver = partial(self._deliver, held, result, salt, effort)
        if goes_on:
            return deliver
        deliver()
        return None

    def _declared(self, result: dict[str, Any]) -> dict[str, str]:
        """Return the declared start of the replica's next unit, and store its payload."""
        payload = Path(result["payload"]).read_bytes()
        cid = cid_of_file(payload)
        self.workspace.add_file(cid, payload)
        return {
            "payload_cid": cid,
            "slot_state_cid": result["slot_state_cid"],
            "slot_state_digest": result["slot_state_digest"],
        }

    def _deliver(self, held: HeldLease, result: dict[str, Any], salt: bytes, effort: UnitResourceUsage) -> None:
        # Only after the commitment: a reader of the payload could otherwise commit to it as its own.
        with effort.transferring():
            payload = Path(result["payload"])
            payload_cid = held.call_until_answered(lambda: upload_file(self.market, held, payload))
        # The replica state stays local: the next unit starts from it, and the market requests it if needed.
        self._complete(
            held,
            {
                "payload_cid": payload_cid,
                "payload_sha256": result["payload_sha256"],
                "salt": to_hex(salt),
                "slot_state_cid": result["slot_state_cid"],
                "slot_state_digest": result["slot_state_digest"],
                "leaves": result["leaves"],
                "end_parameters_digest": result["end_parameters_digest"],
                "train_loss": stated_loss(result["train_loss"]),
                "steps": result["steps"],
                "evaluation": result["evaluation"] or None,
                "report": effort.report(result["seconds"]),
            },
            payload.stat().st_size,
        )

    def _commit(self, held: HeldLease, commitment: UnitCommitment, declared: dict[str, str]) -> None:
        """Send the commitment and store its acknowledgement, which obliges the market."""
        body = {
            "trace_root": commitment.traceRoot,
            "payload_hash": commitment.payloadHash,
            "commitment_signature": self.wallet.sign_typed_data(typed_data(self.domain, commitment)),
            **declared,
        }
        for seconds in (*_ACKNOWLEDGEMENT_RETRIES, None):
            answer = held.call_until_answered(lambda: self.market.commit(held.lease, body))
            try:
                self.acknowledgements.take(commitment, answer.get("acknowledgement"))
                return
            except NotAcknowledged as error:
                log.warning("commitment_not_acknowledged lease=%s error=%s", held.lease.id, error)
                if seconds is None:
                    raise
            time.sleep(seconds)
            held.check()

    def _trained(self, held: HeldLease, effort: UnitResourceUsage) -> dict[str, Any]:
        task = held.lease.task
        directory = self.workspace.unit(task["job_id"], task["round"], task["slot"])
        file = directory / "result.json"
        start = [task["environment"], *(task[name] for name in INPUT_FILES)]  # leaves depend on the environment class
        start.append(task["spec"]["training_config"]["top_k"])
        known = read_json(file, _load_result)
        if known is not None and known["start"] == start:
            return known
        require_memory(held.lease, self.executor)
        self._require_link(held)
        with effort.transferring():
            inputs = self._fetched(held, lambda: unit_task(task, self.workspace, self.gateway, self.executor.run))
        if task.get("probe"):
            self._probe(held, inputs)
        job = {"kind": "train", "output": str(directory), **inputs}
        result = {**self.executor.run(job, on_progress=held.progress, check=held.check), "start": start}
        state = Path(result.pop("slot_state"))
        result["slot_state_cid"] = self.workspace.keep_slot_state(task["job_id"], task["slot"], state)
        for name in (result["payload"], *result["states"]):
            force_to_disk(Path(name))  # before the result names them: a torn file looks like false work
        write_json(file, result)
        return result

    def _probe(self, held: HeldLease, inputs: dict[str, Any]) -> None:
        """Report how this node computes the job's shapes. Raises ApiError: it dissents."""
        digest = self.executor.run({"kind": "probe_job", **inputs}, check=held.check)["digest"]
        held.call_until_answered(lambda: self.market.keep_lease(held.lease, 0, digest))
        held.call_until_answered(lambda: self.market.keep_lease(held.lease, 0))  # refused if that ended the lease

    def _fetched(self, held: HeldLease, fetch: Callable[[], _T]) -> _T:
        """Return the result of ``fetch``, retried while no gateway answers."""
        # If the gateways are down, another node would fail as well.
        latest = time.monotonic() + GATEWAY_OUTAGE_SECONDS
        while True:
            try:
                return fetch()
            except GatewayUnavailable as error:
                held.check()
                if time.monotonic() > latest or self.market.wait_or_stop(_GATEWAY_PAUSE_SECONDS):
                    raise
                log.warning("gateways_retried kind=%s lease=%s error=%s", held.lease.kind, held.lease.id, error)

    def _require_link(self, held: HeldLease) -> None:
        """Raise LinkTooSlow only after a fresh measurement."""
        try:
            require_link(held.lease, self.link.up.bytes_per_second)
        except LinkTooSlow:
            rate = held.call_until_answered(lambda: measured_rate(self.market, held.lease, self.link))
            require_link(held.lease, rate)

    def _reveal(self, held: HeldLease) -> None:
        task = held.lease.task
        files: dict[str, Path] = {}
        if task["segment"]:  # the first segment starts from the checkpoint and the replica state
            files["state_cid"] = self._own_state(task)
        if task["slot_state_cid"] is not None:
            files["slot_state_cid"] = self._own_slot_state(task)
        shown: dict[str, str | None] = {"state_cid": None, "slot_state_cid": None}
        with self.link.urgent():  # a late reveal counts as data withholding
            for name, path in files.items():
                shown[name] = held.call_until_answered(partial(upload_file, self.market, held, path))
        self._complete(held, shown, sum(path.stat().st_size for path in files.values()))

    def _own_state(self, task: dict[str, Any]) -> Path:
        """Return the file of a sampled segment's start state; raises as :func:`states.state_file`."""
        try:
            trace = Traces(self.workspace.traces).find(task.get("unit_id", ""))
        except TraceLost as error:  # also if the market does not name the unit: use the file without a check
            log.warning("state_unchecked error=%s", error)
            return state_path(self.workspace.unit(task["job_id"], task["round"], task["slot"]), task["segment"])
        return state_file(trace, task["segment"], self.workspace, self.gateway, self.executor.run)

    def _own_slot_state(self, task: dict[str, Any]) -> Path:
        """Return the requested replica state. Raises SlotStateMissing."""
        path = self.workspace.kept_slot_state(task["job_id"], task["slot"], task["slot_state_cid"])
        if path is None:
            raise SlotStateMissing(task["slot_state_cid"])
        return path

    def _publish(self, held: HeldLease) -> None:
        path = self._own_slot_state(held.lease.task)
        published = held.call_until_answered(lambda: upload_file(self.market, held, path, self.link))
        self._complete(held, {"published_cid": published}, path.stat().st_size)

    def _prefetch(self, held: HeldLease) -> None:
        prefetch(held.lease.task, self.workspace, self.gateway, self.executor.run)
        self._complete(held, {"followed_cid": held.lease.task["checkpoint_cid"]})

    def _pin(self, held: HeldLease) -> None:
        task = held.lease.task
        # Before pinning: a later lease can then release the files of an incomplete checkpoint.
        self.workspace.keep(task["checkpoint_cid"], task["cids"], held.lease.job_id)
        proof, size = hashlib.sha256(from_hex(task["nonce"])), 0
        for cid in task["cids"]:
            for piece in self.gateway.stream(cid, max_bytes=MAX_INPUT_BYTES):
                proof.update(piece)
                size += len(piece)
            self.workspace.store.pin(parse(cid))
            held.check()
        self._complete(held, {"proof": to_hex(proof.digest())}, size)
        self.workspace.release(task["release"])

    def _replay(self, held: HeldLease) -> None:
        lease, task = held.lease, held.lease.task
        require_memory(lease, self.executor)
        state = task["state_cid"]
        if state is not None:
            state = str(self._fetched(held, lambda: self.workspace.fetch(self.gateway, task["state_cid"])))
        job = {
            "kind": "replay",
            "segment": task["segment"],
            "start_leaf": task["start_leaf"],
            "state": state,
            "inner": task.get("inner"),
            **self._fetched(held, lambda: unit_task(task, self.workspace, self.gateway, self.executor.run)),
        }
        if task.get("across"):  # cross-class check: end states are compared after both commitments
            directory = self.workspace.unit(task["job_id"], task["round"], task["slot"])
            job |= {"across": True, "output": str(directory)}
        result = self.executor.run(job, on_progress=held.progress, check=held.check)
        salt = self._salt(lease)
        found = {"end_leaf": result["end_leaf"]}
        if task.get("inner") is not None:
            found["inner_digest"] = result["inner_digest"]
        opened = {**found, "salt": to_hex(salt)}
        hashed = result_hash(found["end_leaf"], found.get("inner_digest"), self.wallet.address, opened["salt"])
        place = task["job_id"], task["round"], task["slot"], task["segment"]
        signed = ReplayCommitment(*place, task["start_leaf"], self.executor.environment_class, hashed)
        signature = self.wallet.sign_typed_data(typed_data(self.domain, signed))
        body = {"result_hash": hashed, "commitment_signature": signature}
        held.call_until_answered(lambda: self.market.commit(lease, body))
        if task.get("across"):
            end = Path(result["end_state"])
            opened["end_state_cid"] = held.call_until_answered(lambda: upload_file(self.market, held, end))
            end.unlink()
        self._complete(held, opened)

    def _evaluate(self, held: HeldLease) -> None:
        require_memory(held.lease, self.executor)
        inputs = self._fetched(
            held, lambda: model_task(held.lease.task, self.workspace, self.gateway, self.executor.run)
        )
        result = self.executor.run({"kind": "evaluate", **inputs}, check=held.check)
        self._complete(held, {"record": result["record"]})

    def _complete(self, held: HeldLease, result: dict[str, Any], size: int = 0) -> None:
        held.call_until_answered(lambda: self.market.complete(held.lease, result, size))

    def _salt(self, lease: Lease) -> bytes:
        """Return 32 secret bytes, the same for every attempt at a lease."""
        return keccak(bytes.fromhex(self.wallet.sign_text(f"zoo-salt {lease.id}").removeprefix("0x")))
