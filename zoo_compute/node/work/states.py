"""Boundary states of this node's units, from disk or retrained if missing or corrupt.

A missed reveal is slashed as data withholding. The node keeps a unit's inputs for as long as it can be disputed;
retraining from them gives the same bits.
"""

import logging
from pathlib import Path

from training_gym.spec.config import TrainingSpec
from training_gym.spec.errors import GymError
from training_gym.units.trace import state_path, stream_inner_digest
from zoo_compute.content.gateway import UNAVAILABLE, GatewayClient
from zoo_compute.node.disk.files import read_json
from zoo_compute.node.disk.traces import Trace
from zoo_compute.node.disk.workspace import Workspace
from zoo_compute.node.execution.executor import ExecutorError
from zoo_compute.node.work.inputs import Run, SlotStateMissing, unit_task
from zoo_protocol.hashing import from_hex, to_hex

log = logging.getLogger(__name__)
_CHUNK_BYTES = 1 << 20


class StateUnavailable(Exception):
    """The state is not available: an input is gone, or retraining gave other states.

    Attributes:
        code: reason of giving up the lease.
    """

    code = "state_lost"


STATE_ERRORS = (StateUnavailable, SlotStateMissing, ExecutorError, GymError, *UNAVAILABLE)
"""Errors of :func:`state_file`, besides those of the disk."""


def state_file(trace: Trace, step: int, workspace: Workspace, gateway: GatewayClient, run: Run) -> Path:
    """Return the file of the state after ``step`` segments of a unit, with the signed content.

    Raises:
        StateUnavailable: the state is missing and retraining does not restore it.
        Others of ``STATE_ERRORS``: retraining fails.
        OSError: the disk refuses.
    """
    unit, task = trace.unit, trace.task
    directory = workspace.unit(unit.jobId, unit.round, unit.slot)
    output = directory / "again"
    for path in (state_path(directory, step), state_path(output, step)):
        if _is_signed(trace, step, path):
            return path
    if task is None:
        raise StateUnavailable("the unit's inputs are not recorded: an earlier version of this program trained it")
    log.warning("unit_retrained round=%d replica=%d job=%s: a state is missing", unit.round, unit.slot, unit.jobId)
    output.mkdir(exist_ok=True)
    again = run({"kind": "train", "output": str(output), **unit_task(task, workspace, gateway, run)})
    if again["state_digests"] != trace.states:
        raise StateUnavailable("the retrained unit has other states than the signed ones")
    return state_path(output, step)


def _is_signed(trace: Trace, step: int, path: Path) -> bool:
    """Return True if the file holds the trace's state; later attempts use the same path."""
    if not path.is_file():
        return False
    if trace.begun is None:
        return read_json(path.parent / "result.json", lambda result: result.get("state_digests")) == trace.states
    assert trace.task is not None  # recorded in all files that have ``begun``
    spec, error_feedback = TrainingSpec.from_dict(trace.task["spec"]), from_hex(trace.begun["error_feedback"])
    try:
        with path.open("rb") as file:
            chunks = iter(lambda: file.read(_CHUNK_BYTES), b"")
            found = to_hex(stream_inner_digest(spec, step, error_feedback, trace.begun["steps"], chunks))
    except GymError as error:
        log.warning("state_malformed path=%s error=%s", path, error)
        return False
    if found != trace.states[step]:
        log.warning("state_differs path=%s", path)
    return found == trace.states[step]
