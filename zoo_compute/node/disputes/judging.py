"""Adjudication of one step: its end state must follow from its start state.

The rule of the contract (``IDisputes``): the provider is right if, and only if, the data behind the start can be had
and the step, replayed from it in the shown environment class, gives the shown end; for the first step the start has to
be what the job's round starts from, and for the last one the end has to cover the committed payload.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training_gym.compress.link_adaptation import with_top_k
from training_gym.spec.config import TrainingSpec
from training_gym.spec.errors import GymError
from zoo_compute.audit.dispute_case import Case
from zoo_compute.chain.disputes import ShownTrace
from zoo_compute.content.blockstore import BlockNotFound
from zoo_compute.content.gateway import GatewayClient, GatewayUnavailable
from zoo_compute.node.disk.workspace import Workspace
from zoo_compute.node.execution.executor import ExecutorError
from zoo_compute.node.work.inputs import SlotStateMissing, unit_task
from zoo_protocol.content.cid import ContentError
from zoo_protocol.hashing import from_hex, keccak, to_hex
from zoo_protocol.verification.trace import payload_hash, state_leaf

_MAX_SPEC_BYTES = 1 << 20


_STATE_SLACK = 1 << 20


CORRECT, FALSE_STEP, WRONG_START, DIVERGED = "step_correct", "step_false", "wrong_start", "diverged"


WRONG_PAYLOAD, WRONG_ENVIRONMENT, WITHHELD = "wrong_payload", "wrong_environment", "data_withheld"


@dataclass(frozen=True, slots=True)
class Finding:
    """What a referee signs, and why: one of the codes of this module."""

    provider_correct: bool
    reason: str


class Undecided(Exception):
    """This referee cannot judge, now or ever; it signs nothing.

    Attributes:
        code: ``environment_mismatch``, ``waiting_for_data``, ``market_unreachable``, ``wrong_specification``,
            ``input_missing``, ``gateway_unavailable``, ``case_unknown``, ``own_provider`` or the executor's.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class DataDeadline:
    """What a referee may hold against a provider whose data is missing.

    Attributes:
        is_over: the provider had its time. Before that, missing data is waited for; after it, the unit is replayed from
            its start.
        could_serve: the provider has a way to make data available: the market, by which it does, answers. What cannot
            be had while it does not is nobody's fault, so no verdict.
    """

    is_over: bool
    could_serve: bool

    def withheld(self, what: str) -> "Finding":
        """The finding on data that cannot be had.

        Raises:
            Undecided: it is too early for one, or the provider had no way to serve it.
        """
        if not self.is_over:
            raise Undecided("waiting_for_data", what)
        if not self.could_serve:
            raise Undecided("market_unreachable", f"{what}, and its provider has no way to serve it now")
        return Finding(False, WITHHELD)


Run = Callable[[dict[str, Any]], dict[str, Any]]
"""A ``train`` or ``replay`` task of :mod:`zoo_compute.node.execution.tasks` -> its result. Raises ExecutorError."""


@dataclass(frozen=True, slots=True)
class ReplayContext:
    """What a referee judges with: ``environment`` is the class of the process behind ``run``."""

    workspace: Workspace
    gateway: GatewayClient
    environment: str
    run: Run


def judge(
    case: Case, shown: ShownTrace, step: int, state_cid: str | None, patience: DataDeadline, bench: ReplayContext
) -> Finding:
    """Judge a step by a replay of it.

    Args:
        step: from the boundary of that number to the next.
        state_cid: where the provider says that the state at its start is.
        patience: what is made of data that cannot be had.

    Raises:
        Undecided: no verdict can be signed, or not yet.
    """
    spec_bytes = _fetched(bench, case.spec_cid)
    if to_hex(keccak(spec_bytes)) != case.order.specHash:
        raise Undecided("wrong_specification", f"{case.spec_cid} is not the specification that was ordered")
    if shown.environment != case.environment:
        return Finding(False, WRONG_ENVIRONMENT)
    if bench.environment != shown.environment:
        raise Undecided("environment_mismatch", f"the unit is of class {shown.environment}, not {bench.environment}")
    spec = _specification(spec_bytes, case)
    unit = case.unit
    task = {
        "job_id": unit.jobId,
        "round": unit.round,
        "slot": unit.slot,
        "spec": spec.to_dict(),
        "checkpoint_cid": case.checkpoint_cid,
        "slot_state_cid": case.slot_state_cid,
        "restored_payload_cid": case.restored_payload_cid,
        "eager_payload_cid": case.eager_payload_cid,
        "environment": shown.environment,
    }
    try:
        inputs = unit_task(task, bench.workspace, bench.gateway, bench.run)
    except SlotStateMissing as error:
        return patience.withheld(str(error))
    except (BlockNotFound, ContentError) as error:
        raise Undecided("input_missing", str(error)) from error
    except GatewayUnavailable as error:
        raise Undecided("gateway_unavailable", str(error)) from error
    except GymError as error:
        raise Undecided("input_missing", f"an input is malformed: {error}") from error
    return _Judgement(case, shown, step, spec, inputs, bench).find(state_cid, patience)


def _specification(content: bytes, case: Case) -> TrainingSpec:
    """What the unit was trained by, as it was told to its node."""
    try:
        spec = with_top_k(TrainingSpec.from_dict(json.loads(content)), case.top_k)
    except (GymError, ValueError) as error:
        raise Undecided("wrong_specification", f"the job's specification is none: {error}") from error
    if spec.segments != case.order.segments:
        raise Undecided("wrong_specification", f"it has {spec.segments} segments, the order {case.order.segments}")
    return spec


def _fetched(bench: ReplayContext, cid: str) -> bytes:
    try:
        return bench.gateway.fetch(cid, max_bytes=_MAX_SPEC_BYTES)
    except (BlockNotFound, ContentError) as error:
        raise Undecided("input_missing", str(error)) from error
    except GatewayUnavailable as error:
        raise Undecided("gateway_unavailable", str(error)) from error


@dataclass(frozen=True, slots=True)
class _Judgement:
    """One step with all its inputs on disk."""

    case: Case
    shown: ShownTrace
    step: int
    spec: TrainingSpec
    inputs: dict[str, Any]
    bench: ReplayContext

    def find(self, state_cid: str | None, patience: DataDeadline) -> Finding:
        state = self._state(state_cid) if self.step else None
        if self.step == 0 or state is not None:
            found = self._replay(state)
            if found is not None:
                return found
        missing = f"the state after {self.step} segments is nowhere to be had"
        if not patience.is_over:
            return patience.withheld(missing)
        return self._replay_from_start() or patience.withheld(missing)

    def _state(self, cid: str | None) -> Path | None:
        """The file of the step's start, if it can be had at all; whether it is the right one, its digest says later."""
        if cid is None:
            return None
        limit = 16 * self.spec.num_parameters() + _STATE_SLACK  # parameters, two moments, and names
        try:
            return self.bench.workspace.fetch(self.bench.gateway, cid, max_bytes=limit)
        except (BlockNotFound, ContentError):
            return None
        except GatewayUnavailable as error:
            raise Undecided("gateway_unavailable", str(error)) from error

    def _replay(self, state: Path | None) -> Finding | None:
        """What the replay of this step alone says; None if ``state`` is not the one that was shown."""
        task = {
            "kind": "replay",
            "segment": self.step,
            "start_leaf": self._leaf(self.step),
            "state": None if state is None else str(state),
            **self.inputs,
        }
        try:
            result = self.bench.run(task)
        except ExecutorError as error:
            if error.field == "state" and self.step:
                return None
            if error.code == "start_state_mismatch":
                return Finding(False, WRONG_START)
            return _failed(error)
        return self._compared(result["end_leaf"], result["payload_sha256"])

    def _replay_from_start(self) -> Finding | None:
        """The same by a replay of the whole unit; None if that leads to another state at the step's start.

        An honest unit has just these states, so it needs nobody to serve them; of another one, the state that it went
        on from could only have come from its provider.
        """
        unit = self.case.unit
        output = self.bench.workspace.unit(unit.jobId, unit.round, unit.slot)
        try:
            result = self.bench.run({"kind": "train", "output": str(output), **self.inputs})
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
    """Of training that diverges there is no end state to commit to; any other failure is this referee's own."""
    if error.code == DIVERGED:
        return Finding(False, DIVERGED)
    raise Undecided(error.code, str(error)) from error
