"""Replays of a settled job's units from their recorded inputs.

A node keeps a replica state to itself unless the market requests it (decision 18). A missing replica state is
recomputed by a replay of earlier units, from the nearest public start. It counts only if its CID is the recorded one.
"""

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training_gym.compress.link_adaptation import with_top_k
from training_gym.compress.payload_format import decode, payload_size
from training_gym.model.layout import NamedArrays
from training_gym.model.tensors import unflatten
from training_gym.spec.config import TrainingSpec
from training_gym.units.replica_state import error_feedback_digest
from training_gym.units.trace import Unit, boundary_state_bytes, inner_leaf, load_boundary_state, state_path
from zoo_compute.content.gateway import GatewayClient
from zoo_compute.node.disk.workspace import Workspace
from zoo_compute.node.disputes.segment_verdict import DIVERGED
from zoo_compute.node.execution.executor import ExecutorError
from zoo_compute.node.execution.tasks import take_unit
from zoo_compute.node.work.inputs import Run, SlotStateMissing, unit_task
from zoo_protocol.content.unixfs import cid_of_file
from zoo_protocol.hashing import from_hex, to_hex
from zoo_protocol.payments.job_record import INPUT_FILES, JobRecord, UnitRecord
from zoo_protocol.verification import trace

Report = Callable[[str], None]
"""Receives a message before long work."""


_START = ("round", "slot", "top_k", *(f"start_{name}" for name in INPUT_FILES))
"""Inputs of an attempt and its compression level; attempts differ in nothing else."""


class Unreplayable(Exception):
    """The inputs of a unit are not available; the message gives the reason."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """Shared inputs of one check's replays.

    Attributes:
        spec: the job's specification, as a document.
        workdir: existing directory for states.
        environment_class: class of the process behind ``run``.
        report: called before earlier units are replayed.
    """

    record: JobRecord
    spec: dict[str, Any]
    gateway: GatewayClient
    workdir: Path
    workspace: Workspace
    environment_class: str
    run: Run
    report: Report


class Replays:
    """Replays of one check. Each start, and each missing replica state, is trained once."""

    def __init__(self, inputs: Inputs) -> None:
        self._inputs = inputs
        self._slot_states: dict[str, Path] = {}
        self._done: dict[tuple[object, ...], Replay | Unreplayable] = {}  # by start
        self.earlier: list[UnitRecord] = []
        """Units that were replayed for their replica states, in order."""

    def of(self, unit: UnitRecord) -> "Replay":
        """Return the replay of a unit's start.

        Raises:
            Unreplayable: its replica state is not public and cannot be recomputed.
            GymError, BlockNotFound, ContentError, GatewayUnavailable: training failed, or an input is not available.
        """
        start = tuple(getattr(unit, name) for name in _START)
        if start not in self._done:
            try:
                self._done[start] = self._train(unit)
            except Unreplayable as error:
                self._done[start] = error
        found = self._done[start]
        if isinstance(found, Unreplayable):
            raise found
        return found

    def _train(self, unit: UnitRecord) -> "Replay":
        """Train ``unit`` after units with missing replica states; the earliest is ``wanted[-1]``."""
        wanted = [unit]
        while True:
            replay = Replay(self._inputs, wanted[-1])
            try:
                replay.prepare(self._slot_states)
            except SlotStateMissing as missing:
                wanted.append(self._maker(wanted[-1], missing.cid))
                continue
            if len(wanted) > 1:
                self._inputs.report(f"replaying round {wanted[-1].round} first: its replica state is not available")
            replay.train()
            current = wanted.pop()
            if wanted and replay.diverged is not None:
                raise Unreplayable(f"training round {current.round} diverges, so it gives no replica state")
            if not wanted:
                return replay
            self.earlier.append(current)
            self._keep_slot_state(replay, current)

    def _maker(self, unit: UnitRecord, cid: str) -> UnitRecord:
        made = [
            other
            for other in self._inputs.record.units
            if other.slot_state_cid == cid and other.slot == unit.slot and other.round < unit.round
        ]
        if not made:
            raise Unreplayable(f"round {unit.round} starts from replica state {cid}, which no earlier unit produced")
        return made[-1]

    def _keep_slot_state(self, replay: "Replay", unit: UnitRecord) -> None:
        with replay.slot_state.open("rb") as file:
            cid = cid_of_file(file)
        if cid != unit.slot_state_cid:
            raise Unreplayable(
                f"the steps of round {unit.round} give another replica state than that of {unit.provider}; "
                f"verify that unit: {self._inputs.record.job_id}:{unit.round}:{unit.slot}"
            )
        path = self._inputs.workdir / f"slot-state-{len(self._slot_states)}"
        replay.slot_state.replace(path)
        self._slot_states[cid] = path
        replay.remove()


class Replay:
    """Replay of one unit: its leaves, its states on disk, its payload."""

    def __init__(self, inputs: Inputs, unit: UnitRecord) -> None:
        self.spec = with_top_k(TrainingSpec.from_dict(inputs.spec), unit.top_k)
        self.gateway = inputs.gateway
        self._inputs = inputs
        self._lease: dict[str, Any] = {
            "spec": self.spec.to_dict(),
            "job_id": inputs.record.job_id,
            "round": unit.round,
            "slot": unit.slot,
            **{name: getattr(unit, f"start_{name}") for name in INPUT_FILES},
            "environment": inputs.environment_class,
        }
        self._output = Path()
        self._task: dict[str, Any] = {}
        self._feedback = b""
        self._payload = Path()
        self.unit: Unit
        self.leaves: list[bytes] = []
        self.slot_state = Path()
        self.payload_sha256 = b""
        self.diverged: str | None = None
        """Where training diverged, in words; None if a trace exists."""

    @property
    def trace_root(self) -> str | None:
        """Trace root of the unit's steps; None if training diverges."""
        return None if self.diverged is not None else to_hex(trace.trace_root(self.leaves))

    def prepare(self, slot_states: dict[str, Path]) -> None:
        """Fetch all inputs; the replica state from ``slot_states`` (files by CID) if present.

        Raises:
            SlotStateMissing: it is neither there nor on storage.
        """
        cid = self._lease["slot_state_cid"]
        if cid in slot_states:
            self._inputs.workspace.add_file(cid, slot_states[cid].read_bytes())
        self._task = unit_task(self._lease, self._inputs.workspace, self.gateway, self._inputs.run)

    def train(self) -> None:
        """Run the unit. Call after :meth:`prepare`."""
        self.unit = take_unit(self._task, self._lease["environment"], "cpu")
        self._feedback = error_feedback_digest(self.unit.slot_state.error_feedback)
        self._output = Path(tempfile.mkdtemp(prefix="replay-", dir=self._inputs.workdir))
        try:
            result = self._inputs.run({"kind": "train", "output": str(self._output), **self._task})
        except ExecutorError as error:
            if error.code != DIVERGED:
                raise
            self.diverged = error.message
            return
        self.leaves = [from_hex(leaf) for leaf in result["leaves"]]
        self._payload, self.slot_state = Path(result["payload"]), Path(result["slot_state"])
        self.payload_sha256 = from_hex(result["payload_sha256"])

    def remove(self) -> None:
        shutil.rmtree(self._output)

    def state(self, boundary: int) -> NamedArrays:
        """Return the state after ``boundary`` segments, before the last."""
        return load_boundary_state(self.spec, state_path(self._output, boundary).read_bytes())

    def served_state(self, boundary: int, cid: str, leaf: bytes) -> NamedArrays | None:
        """Return the state that an attempt served; None if it is not the committed one."""
        content = self.gateway.fetch(cid, max_bytes=boundary_state_bytes(self.spec))
        state = load_boundary_state(self.spec, content)
        return state if inner_leaf(self.unit, boundary, state, self._feedback) == leaf else None

    def payload(self, cid: str | None = None) -> NamedArrays:
        """Return the pseudo-gradient of the payload with this CID (None: the correct one)."""
        if cid is None:
            content = self._payload.read_bytes()
        else:
            content = self.gateway.fetch(cid, max_bytes=payload_size(self.spec))
        return unflatten(self.spec, decode(self.spec, content).dense())
