"""Doing what a lease asks: train a unit, reveal states, pin or follow checkpoints, upload a slot state, replay."""

import hashlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from training_gym.spec.config import TrainingSpec
from training_gym.units.replica_state import slot_state_bytes
from training_gym.units.trace import boundary_state_bytes, state_path
from zoo_compute.base.link import Link
from zoo_compute.chain.wallet import Wallet
from zoo_compute.content.gateway import GatewayClient, GatewayUnavailable
from zoo_compute.content.packs import force_to_disk
from zoo_compute.node.disk.corruption import read_json
from zoo_compute.node.disk.durable_files import write_json
from zoo_compute.node.disk.traces import Trace, TraceLost, Traces
from zoo_compute.node.disk.workspace import MAX_INPUT_BYTES, Workspace
from zoo_compute.node.execution.executor import Executor
from zoo_compute.node.market.calls import Lease, Market
from zoo_compute.node.work.acknowledgements import Acknowledgements, NotAcknowledged
from zoo_compute.node.work.effort import UnitResourceUsage
from zoo_compute.node.work.held_lease import HeldLease
from zoo_compute.node.work.inputs import UNIT_FIELDS, SlotStateMissing, model_and_data, unit_task
from zoo_compute.node.work.states import state_file
from zoo_compute.node.work.uploads import measured_rate, upload_file
from zoo_protocol.content.cid import parse
from zoo_protocol.content.unixfs import cid_of_file
from zoo_protocol.hashing import from_hex, keccak, to_hex
from zoo_protocol.messages import Domain, UnitCommitment, typed_data
from zoo_protocol.verification import trace
from zoo_protocol.verification.reveal_deadline import reveal_timeout_seconds

TASK_TIMEOUT_SECONDS = 24 * 3600.0
"""After this the training process is killed. The market's deadline for a round comes long before."""


GATEWAYS_AWAY_SECONDS = 120.0
"""For so long the inputs of a unit or a replay are asked for while no gateway answers: one may be starting again."""


DRAWN_TOGETHER = 2
"""Units of one node whose segments may be drawn in the same window: it works at one and delivers another."""


_GATEWAY_PAUSE_SECONDS = 5.0


_ACKNOWLEDGEMENT_RETRIES = (0.5, 1.0, 2.0, 4.0)  # seconds between the attempts


log = logging.getLogger(__name__)


_T = TypeVar("_T")


class LinkTooSlow(Exception):
    """What this node may be drawn to show would not go up in time: whoever shows it too late has withheld it.

    Attributes:
        code: what a unit is given up with for it.
    """

    code = "link_too_slow"


def require_link(lease: Lease, bytes_per_second: int | None) -> None:
    """Take no unit whose states could not be shown in time over a link of the measured rate; None is not known yet.

    The worst is that all segments of as many units as wait for their draw together are drawn at once.

    Raises:
        LinkTooSlow: it is so.
    """
    spec = TrainingSpec.from_dict(lease.task["spec"])
    one = (spec.segments - 1) * boundary_state_bytes(spec) + slot_state_bytes(spec)
    size = DRAWN_TOGETHER * one
    if bytes_per_second is not None and size > bytes_per_second * reveal_timeout_seconds(size, lease.lease_seconds):
        raise LinkTooSlow(
            f"at {bytes_per_second * 8 / 1e6:.1f} Mb/s upwards the states of {DRAWN_TOGETHER} units "
            f"({size / 1e6:.0f} MB) could not be shown in time if all were drawn"
        )


def _kept_result(document: Any) -> dict[str, Any]:
    """A unit's result that was kept. Raises ValueError, LookupError, TypeError or OSError: it is not all there."""
    found: dict[str, Any] = {"start": document["start"], "state_digests": document["state_digests"], **document}
    if to_hex(hashlib.sha256(Path(found["payload"]).read_bytes()).digest()) != found["payload_sha256"]:
        raise ValueError("its payload is not what was made")
    return found


@dataclass(frozen=True, slots=True)
class Worker:
    """What every kind of work needs."""

    market: Market
    wallet: Wallet
    domain: Domain
    workspace: Workspace
    gateway: GatewayClient
    executor: Executor
    acknowledgements: Acknowledgements
    link: Link

    def do(self, held: HeldLease) -> Callable[[], None] | None:
        """The work of one lease, from its task to its completion; what can be done beside the next lease is returned.

        Raises:
            LeaseLost, ApiError: the market does not want the result (any more).
            ExecutorError, GymError, ContentError, BlockNotFound, GatewayUnavailable, SlotStateMissing, LinkTooSlow,
                Unmade, OSError: it cannot be done.
            NotAcknowledged: the market takes the commitment, but does not acknowledge it.
            Unreachable: the market does not answer, and this node is told to stop.
        """
        kinds: dict[str, Callable[[HeldLease], Callable[[], None] | None]] = {
            "train": self._train,
            "reveal": self._reveal,
            "pin": self._pin,
            "publish": self._publish,
            "follow": self._follow,
            "replay": self._replay,
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
        # Before anybody has the signature: who signed a root must be able to show what it is of.
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
        """What the slot's next unit starts from; the payload is kept where that looks for it."""
        payload = Path(result["payload"]).read_bytes()
        cid = cid_of_file(payload)
        self.workspace.add_file(cid, payload)
        return {
            "payload_cid": cid,
            "slot_state_cid": result["slot_state_cid"],
            "slot_state_digest": result["slot_state_digest"],
        }

    def _deliver(self, held: HeldLease, result: dict[str, Any], salt: bytes, effort: UnitResourceUsage) -> None:
        # Only now: whoever saw the payload before the commitment could commit to it as their own.
        with effort.transferring():
            payload = Path(result["payload"])
            payload_cid = held.call_until_answered(lambda: upload_file(self.market, held, payload))
        # The slot state stays here: the slot's next unit starts from it, and who needs it asks for it.
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
                "train_loss": f"{result['train_loss']:.6f}",
                "steps": result["steps"],
                "report": effort.report(result["seconds"]),
            },
            payload.stat().st_size,
        )

    def _commit(self, held: HeldLease, commitment: UnitCommitment, declared: dict[str, str]) -> None:
        """Commit, and have it acknowledged: until then nothing obliges the market to anything."""
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
                log.warning("lease %s: commitment not acknowledged: %s", held.lease.id, error)
                if seconds is None:
                    raise
            time.sleep(seconds)
            held.check()

    def _trained(self, held: HeldLease, effort: UnitResourceUsage) -> dict[str, Any]:
        """The unit's result, computed unless it was before: by a process that was killed, or for a lost lease."""
        task = held.lease.task
        directory = self.workspace.unit(task["job_id"], task["round"], task["slot"])
        file = directory / "result.json"
        names = ("checkpoint_cid", "slot_state_cid", "restored_payload_cid", "eager_payload_cid")
        start = [task["environment"], *(task[name] for name in names)]  # its leaves are of one environment class
        start.append(task["spec"]["training_config"]["top_k"])
        known = read_json(file, _kept_result)
        if known is not None and known["start"] == start:
            return known
        self._require_link(held)
        with effort.transferring():
            inputs = self._fetched(held, lambda: unit_task(task, self.workspace, self.gateway, self._run))
        job = {"kind": "train", "output": str(directory), **inputs}
        result = {**self.executor.run(job, TASK_TIMEOUT_SECONDS, held.progress, check=held.check), "start": start}
        state = Path(result.pop("slot_state"))
        result["slot_state_cid"] = self.workspace.keep_slot_state(task["job_id"], task["slot"], state)
        for name in (result["payload"], *result["states"]):
            force_to_disk(Path(name))  # before the result says that they are there: a torn one, shown, looks like a lie
        write_json(file, result)
        return result

    def _fetched(self, held: HeldLease, fetch: Callable[[], _T]) -> _T:
        """What ``fetch`` gives, for a unit or a replay. Gateways that are away are asked again for a while: if they are
        down, the next node fares no better; if only this node's way to them is, its round or its unit waits for it."""
        latest = time.monotonic() + GATEWAYS_AWAY_SECONDS
        while True:
            try:
                return fetch()
            except GatewayUnavailable as error:
                held.check()
                if time.monotonic() > latest or self.market.wait_or_stop(_GATEWAY_PAUSE_SECONDS):
                    raise
                log.warning("%s lease %s asks the gateways again: %s", held.lease.kind, held.lease.id, error)

    def _require_link(self, held: HeldLease) -> None:
        """Raise LinkTooSlow if it is, also now: who took no unit for a rate of long ago would never measure another."""
        try:
            require_link(held.lease, self.link.up.bytes_per_second)
        except LinkTooSlow:
            rate = held.call_until_answered(lambda: measured_rate(self.market, held.lease, self.link))
            require_link(held.lease, rate)

    def _reveal(self, held: HeldLease) -> None:
        task = held.lease.task
        files: dict[str, Path] = {}
        if task["segment"]:  # the first starts from the checkpoint, and from the slot state
            files["state_cid"] = self._own_state(task)
        if task["slot_state_cid"] is not None:
            files["slot_state_cid"] = self._own_slot_state(task)
        shown: dict[str, str | None] = {"state_cid": None, "slot_state_cid": None}
        with self.link.urgent():  # whoever shows it too late has withheld it
            for name, path in files.items():
                shown[name] = held.call_until_answered(partial(upload_file, self.market, held, path))
        self._complete(held, shown, sum(path.stat().st_size for path in files.values()))

    def _own_state(self, task: dict[str, Any]) -> Path:
        """The file of the state that a drawn segment starts from; raises as :func:`states.state_file`."""
        try:
            trace = Traces(self.workspace.traces).find(task.get("unit_id", ""))
        except TraceLost as error:  # or a market of before it names the unit: shown unchecked, as it lies here
            log.warning("the state is shown as it is on this disk: %s", error)
            return state_path(self.workspace.unit(task["job_id"], task["round"], task["slot"]), task["segment"])
        return state_file(trace, task["segment"], self.workspace, self.gateway, self._run)

    def _own_slot_state(self, task: dict[str, Any]) -> Path:
        """The slot state that the market asks for. Raises SlotStateMissing: it is no longer here."""
        path = self.workspace.kept_slot_state(task["job_id"], task["slot"], task["slot_state_cid"])
        if path is None:
            raise SlotStateMissing(task["slot_state_cid"])
        return path

    def _publish(self, held: HeldLease) -> None:
        path = self._own_slot_state(held.lease.task)
        published = held.call_until_answered(lambda: upload_file(self.market, held, path, self.link))
        self._complete(held, {"published_cid": published}, path.stat().st_size)

    def _follow(self, held: HeldLease) -> None:
        """Have what a unit of this job would start from, should this node get one."""
        model_and_data(held.lease.task, self.workspace, self.gateway, self._run)
        self._complete(held, {"followed_cid": held.lease.task["checkpoint_cid"]})

    def _pin(self, held: HeldLease) -> None:
        task = held.lease.task
        # Before any is pinned: of a checkpoint of which not all could be had, a later lease releases what was.
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
        state = task["state_cid"]
        if state is not None:
            state = str(self._fetched(held, lambda: self.workspace.fetch(self.gateway, task["state_cid"])))
        job = {
            "kind": "replay",
            "segment": task["segment"],
            "start_leaf": task["start_leaf"],
            "state": state,
            "inner": task.get("inner"),
            **self._fetched(held, lambda: unit_task(task, self.workspace, self.gateway, self._run)),
        }
        if task.get("across"):  # of another class: the state that it ends in is compared, once both are committed to
            directory = self.workspace.unit(task["job_id"], task["round"], task["slot"])
            job |= {"across": True, "output": str(directory)}
        result = self.executor.run(job, TASK_TIMEOUT_SECONDS, held.progress, check=held.check)
        salt = self._salt(lease)
        verifier = bytes.fromhex(self.wallet.address.removeprefix("0x"))
        found = {"end_leaf": result["end_leaf"]}
        if task.get("inner") is not None:
            found["inner_digest"] = result["inner_digest"]
        result_hash = keccak(b"".join(from_hex(value) for value in found.values()) + verifier + salt)
        held.call_until_answered(lambda: self.market.commit(lease, {"result_hash": to_hex(result_hash)}))
        opened = {**found, "salt": to_hex(salt)}
        if task.get("across"):
            end = Path(result["end_state"])
            opened["end_state_cid"] = held.call_until_answered(lambda: upload_file(self.market, held, end))
            end.unlink()
        self._complete(held, opened)

    def _complete(self, held: HeldLease, result: dict[str, Any], size: int = 0) -> None:
        held.call_until_answered(lambda: self.market.complete(held.lease, result, size))

    def _run(self, task: dict[str, Any]) -> dict[str, Any]:
        return self.executor.run(task, TASK_TIMEOUT_SECONDS)

    def _salt(self, lease: Lease) -> bytes:
        """32 bytes that nobody else can know, and the same again when a lease is taken up after a crash."""
        return keccak(bytes.fromhex(self.wallet.sign_text(f"zoo-salt {lease.id}").removeprefix("0x")))
