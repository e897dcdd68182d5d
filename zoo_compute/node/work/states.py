"""The states of this node's units, as they were signed: read from the disk, or trained again where that has lost one.

A damaged state, shown, is refused, and who shows none in time has withheld it. What a unit started from is kept for as
long as it can be disputed: with that the unit is trained again, bit by bit, and the state is there again.
"""

import logging
from pathlib import Path

from training_gym.spec.config import TrainingSpec
from training_gym.spec.errors import GymError
from training_gym.units.trace import state_path, stream_inner_digest
from zoo_compute.content.gateway import GatewayClient
from zoo_compute.node.disk.corruption import read_json
from zoo_compute.node.disk.traces import Trace
from zoo_compute.node.disk.workspace import Workspace
from zoo_compute.node.work.inputs import Run, unit_task
from zoo_protocol.hashing import from_hex, to_hex

log = logging.getLogger(__name__)


_PIECE_BYTES = 1 << 20


class StateUnavailable(Exception):
    """The state cannot be given: the market is not that far, an input is gone, or training gave other states.

    Attributes:
        code: what a lease is given up with for it.
    """

    code = "state_lost"


def state_file(trace: Trace, step: int, workspace: Workspace, gateway: GatewayClient, run: Run) -> Path:
    """The file of the state after so many segments of a unit, with the content that was signed.

    Raises:
        Unmade: it is gone, and cannot be made again.
        GymError, ExecutorError, SlotStateMissing, ContentError, BlockNotFound, GatewayUnavailable: nor can the unit be
            trained again, as :func:`unit_task` and training say.
        OSError: the disk refuses.
    """
    unit, task = trace.unit, trace.task
    directory = workspace.unit(unit.jobId, unit.round, unit.slot)
    output = directory / "again"
    for path in (state_path(directory, step), state_path(output, step)):
        if _is_signed(trace, step, path):
            return path
    if task is None:
        raise StateUnavailable("what the unit started from was not kept: an earlier version of this program trained it")
    log.warning("training round %d, slot %d of job %s again: its state is gone", unit.round, unit.slot, unit.jobId)
    output.mkdir(exist_ok=True)
    again = run({"kind": "train", "output": str(output), **unit_task(task, workspace, gateway, run)})
    if again["state_digests"] != trace.states:
        raise StateUnavailable("trained again, the unit has other states than those that were signed")
    return state_path(output, step)


def _is_signed(trace: Trace, step: int, path: Path) -> bool:
    """Whether a file is there and holds the state that the trace has: a later attempt at the unit leaves its files in
    the same place, and a disk may have changed them."""
    if not path.is_file():
        return False
    if trace.begun is None:
        return read_json(path.parent / "result.json", lambda result: result.get("state_digests")) == trace.states
    assert trace.task is not None  # kept since before that was
    spec, error_feedback = TrainingSpec.from_dict(trace.task["spec"]), from_hex(trace.begun["error_feedback"])
    try:
        with path.open("rb") as file:
            pieces = iter(lambda: file.read(_PIECE_BYTES), b"")
            found = to_hex(stream_inner_digest(spec, step, error_feedback, trace.begun["steps"], pieces))
    except GymError as error:
        log.warning("%s is no state: %s", path, error)
        return False
    if found != trace.states[step]:
        log.warning("%s is not the state that was signed", path)
    return found == trace.states[step]
