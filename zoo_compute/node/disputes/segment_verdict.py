"""Verdict on one disputed segment of a unit, by replay.

Rule of the contract (``IDisputes``): the provider is correct if two conditions hold. The data of the start state is
available, and its replay in the revealed environment class gives the revealed end state. The first segment has to start
from the round's inputs, and the last one has to contain the committed payload.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training_gym.compress.link_adaptation import with_top_k
from training_gym.spec.config import TrainingSpec
from training_gym.spec.errors import GymError
from zoo_compute.audit.dispute_case import Case
from zoo_compute.base.errors import CodedError
from zoo_compute.chain.disputes import RevealedTrace
from zoo_compute.content.blockstore import BlockNotFound
from zoo_compute.content.gateway import GatewayClient, GatewayUnavailable
from zoo_compute.node.disk.workspace import Workspace
from zoo_compute.node.execution.executor import ExecutorError
from zoo_compute.node.work.inputs import Run, SlotStateMissing, unit_task
from zoo_protocol.content.cid import ContentError
from zoo_protocol.hashing import from_hex, keccak, to_hex
from zoo_protocol.payments.job_record import INPUT_FILES
from zoo_protocol.verification.trace import payload_hash, state_leaf

_MAX_SPEC_BYTES = 1 << 20
_STATE_SLACK = 1 << 20

CORRECT, FALSE_STEP, WRONG_START, DIVERGED = "step_correct", "step_false", "wrong_start", "diverged"

WRONG_PAYLOAD, WRONG_ENVIRONMENT, WITHHELD = "wrong_payload", "wrong_environment", "data_withheld"


@dataclass(frozen=True, slots=True)
class Finding:
    """Content of a verdict; ``reason`` is one of the codes of this module."""

    provider_correct: bool
    reason: str


class NoVerdict(CodedError):
    """This referee cannot decide, now or at all; it signs nothing.

    Attributes:
        code: ``environment_mismatch``, ``waiting_for_data``, ``market_unreachable``, ``wrong_specification``,
            ``input_missing``, ``gateway_unavailable``, ``case_unknown``, ``own_provider`` or the executor's.
    """


@dataclass(frozen=True, slots=True)
class DataDeadline:
    """Rule for data that the provider has not made available.

    Attributes:
        is_over: the provider's time is over. Before, the referee waits; after, it replays the unit from its start.
        could_serve: the market answers. Providers publish data through it, so without it missing data is not a fault.
    """

    is_over: bool
    could_serve: bool

    def withheld(self, what: str) -> "Finding":
        """Return the finding on missing data.

        Raises:
            NoVerdict: the provider still has time, or could not serve the data.
        """
        if not self.is_over:
            raise NoVerdict("waiting_for_data", what)
        if not self.could_serve:
            raise NoVerdict("market_unreachable", f"{what}, and its provider cannot serve it during this outage")
        return Finding(False, WITHHELD)


@dataclass(frozen=True, slots=True)
class ReplayContext:
    """Tools of a replay; ``environment`` is the environment class of the process behind ``run``."""

    workspace: Workspace
    gateway: GatewayClient
    environment: str
    run: Run


def decide_segment(
    case: Case, shown: RevealedTrace, step: int, state_cid: str | None, deadline: DataDeadline, context: ReplayContext
) -> Finding:
    """Return the finding on a segment.

    Args:
        step: index of the segment.
        state_cid: CID of the start state as reported by the provider.

    Raises:
        NoVerdict: no verdict can be signed, or not yet.
    """
    with _inputs():
        spec_bytes = context.gateway.fetch(case.spec_cid, max_bytes=_MAX_SPEC_BYTES)
    if to_hex(keccak(spec_bytes)) != case.order.specHash:
        raise NoVerdict("wrong_specification", f"{case.spec_cid} differs from the specification in the order")
    if shown.environment != case.environment:
        return Finding(False, WRONG_ENVIRONMENT)
    if context.environment != shown.environment:
        raise NoVerdict("environment_mismatch", f"class is {context.environment}; the unit has {shown.environment}")
    spec = _specification(spec_bytes, case)
    unit = case.unit
    task = {
        "job_id": unit.jobId,
        "round": unit.round,
        "slot": unit.slot,
        "spec": spec.to_dict(),
        **{name: getattr(case, name) for name in INPUT_FILES},
        "environment": shown.environment,
    }
    try:
        with _inputs():
            inputs = unit_task(task, context.workspace, context.gateway, context.run)
    except SlotStateMissing as error:
        return deadline.withheld(str(error))
    return _DisputedSegment(case, shown, step, spec, inputs, context).find(state_cid, deadline)


def _specification(content: bytes, case: Case) -> TrainingSpec:
    try:
        spec = with_top_k(TrainingSpec.from_dict(json.loads(content)), case.top_k)
    except (GymError, ValueError) as error:
        raise NoVerdict("wrong_specification", f"the job's specification is malformed: {error}") from error
    if spec.segments != case.order.segments:
        raise NoVerdict("wrong_specification", f"it has {spec.segments} segments, the order {case.order.segments}")
    return spec


@contextmanager
def _inputs() -> Iterator[None]:
    """Convert errors of the unit's public inputs, for which its provider is not responsible."""
    try:
        yield
    except (BlockNotFound, ContentError) as error:
        raise NoVerdict("input_missing", str(error)) from error
    except GatewayUnavailable as error:
        raise NoVerdict("gateway_unavailable", str(error)) from error
    except GymError as error:
        raise NoVerdict("input_missing", f"an input is malformed: {error}") from error


@dataclass(frozen=True, slots=True)
class _DisputedSegment:
    case: Case
    shown: RevealedTrace
    step: int
    spec: TrainingSpec
    inputs: dict[str, Any]
    context: ReplayContext

    def find(self, state_cid: str | None, deadline: DataDeadline) -> Finding:
        state = self._state(state_cid) if self.step else None
        if self.step == 0 or state is not None:
            found = self._replay(state)
            if found is not None:
                return found
        missing = f"the state after {self.step} segments is not available"
        if not deadline.is_over:
            return deadline.withheld(missing)
        return self._replay_from_start() or deadline.withheld(missing)

    def _state(self, cid: str | None) -> Path | None:
        """Return the reported start state if available; the replay verifies its digest."""
        if cid is None:
            return None
        limit = 16 * self.spec.num_parameters() + _STATE_SLACK  # parameters, two moments, and names
        try:
            with _inputs():
                return self.context.workspace.fetch(self.context.gateway, cid, max_bytes=limit)
        except NoVerdict as error:
            if error.code == "input_missing":
                return None
            raise

    def _replay(self, state: Path | None) -> Finding | None:
        """Replay this segment only; None if ``state`` is not the revealed one."""
        task = {
            "kind": "replay",
            "segment": self.step,
            "start_leaf": self._leaf(self.step),
            "state": None if state is None else str(state),
            **self.inputs,
        }
        try:
            result = self.context.run(task)
        except ExecutorError as error:
            if error.field == "state" and self.step:
                return None
            if error.code == "start_state_mismatch":
                return Finding(False, WRONG_START)
            return _failed(error)
        return self._compared(result["end_leaf"], result["payload_sha256"])

    def _replay_from_start(self) -> Finding | None:
        """Replay the whole unit; None if it reaches another start state of the segment."""
        # An honest unit has exactly these states. Otherwise only the provider could have served the state.
        unit = self.case.unit
        output = self.context.workspace.unit(unit.jobId, unit.round, unit.slot)
        try:
            result = self.context.run({"kind": "train", "output": str(output), **self.inputs})
        except ExecutorError as error:
            return _failed(error)
        if result["state_digests"][self.step] != self.shown.states[self.step]:
            return None
        return self._compared(result["leaves"][self.step + 1], result["payload_sha256"])

    def _compared(self, end_leaf: str, payload_sha256: str | None) -> Finding:
        if end_leaf != self._leaf(self.step + 1):
            return Finding(False, FALSE_STEP)
        last = self.step + 1 == self.spec.segments
        if last and payload_sha256 is not None and self.case.salt is not None:
            unit = self.case.unit
            committed = payload_hash(from_hex(payload_sha256), unit.provider, from_hex(self.case.salt))
            if to_hex(committed) != unit.payloadHash:
                return Finding(False, WRONG_PAYLOAD)
        return Finding(True, CORRECT)

    def _leaf(self, boundary: int) -> str:
        unit, digest = self.case.unit, from_hex(self.shown.states[boundary])
        return to_hex(state_leaf(unit.jobId, unit.round, unit.slot, boundary, digest, self.shown.environment))


def _failed(error: ExecutorError) -> Finding:
    """Return a finding if training diverged; other failures are this referee's."""
    if error.code == DIVERGED:
        return Finding(False, DIVERGED)
    raise NoVerdict(error.code, str(error)) from error
