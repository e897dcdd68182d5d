"""Third-party replay of a unit: compares committed and recomputed trace.

All data is public: the unit's record (``unit_record.py``), and files by CID through any gateway. One run gives every
leaf of the correct trace, which decides all attempts with the same inputs, including rejected ones. If an attempt's own
leaves are known and lead to its root on chain, the first wrong segment follows. If one of its states or its payload is
available, the first different tensor follows as well.
"""

import json
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from training_gym.spec.errors import GymError
from zoo_compute.audit.unit_record import NAMED_BY, MarketReader, Place, record_of
from zoo_compute.base.errors import Mismatch, ZooError
from zoo_compute.chain.settlements import ChainReader
from zoo_compute.content.blockstore import BlockNotFound
from zoo_compute.content.gateway import UNAVAILABLE, GatewayClient, GatewayUnavailable
from zoo_compute.node.disk.workspace import Workspace
from zoo_compute.node.work.inputs import Run
from zoo_compute.replay.replay import Inputs, Replay, Replays, Report, Unreplayable
from zoo_protocol import merkle
from zoo_protocol.hashing import from_hex, keccak, to_hex
from zoo_protocol.payments.job_record import VERIFIED, JobRecord, UnitRecord
from zoo_protocol.verification import trace

MAX_EVIDENCE_BYTES = 1 << 20
_MAX_SPEC_BYTES = 1 << 20
_UNAVAILABLE = (*UNAVAILABLE, GymError)
"""Errors of a file of an attempt: not available, or malformed."""


@dataclass(frozen=True, slots=True)
class AttemptTrace:
    """Revealed trace of an attempt: all leaves (0x hex), and CIDs of states by boundary."""

    leaves: list[str]
    states: dict[int, str]


@dataclass(frozen=True, slots=True)
class Difference:
    """First difference of an attempt from the correct trace.

    Attributes:
        first_step, last_step: inner steps, from 1, of the first segment with a wrong end; None if unknown.
        where: compared content: ``state N`` after N segments, or ``payload``; None if nothing is available.
        tensor: first tensor by name that is not bit-equal.
        entries, of: number of its different entries, and of all its entries.
        largest: largest absolute difference of an entry.
        diverges: where training diverges, in words: then no end state exists.
    """

    first_step: int | None = None
    last_step: int | None = None
    where: str | None = None
    tensor: str | None = None
    entries: int = 0
    of: int = 0
    largest: float = 0.0
    diverges: str | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """One provider's attempt at the unit, and the ``right_root`` that its steps give.

    Attributes:
        right_root: None if training diverges.
        disputable_until: end of its dispute period, Unix seconds.
        other_payload: the trace is correct, but the committed payload differs from its last leaf's; needs the salt.
    """

    provider: str
    status: str
    reason: str | None
    trace_root: str
    right_root: str | None
    window: int
    difference: Difference | None
    disputable_until: int
    struck: bool = False  # its pay was forfeited in a dispute
    other_payload: bool = False

    @property
    def agrees(self) -> bool:
        return self.trace_root == self.right_root and not self.other_payload

    @property
    def misjudged(self) -> bool:
        """True if the market's decision contradicts this replay.

        A correct unit can be forfeited as well: a missed trace reveal loses a dispute too.
        """
        if self.agrees:
            return self.status != VERIFIED and self.reason == "incorrect_computation"
        return self.status == VERIFIED and not self.struck


@dataclass(frozen=True, slots=True)
class Unchecked:
    """Attempt that could not be replayed, and the reason."""

    provider: str
    reason: str


@dataclass(frozen=True, slots=True)
class UnitCheck:
    """Unit with every attempt that was committed on chain.

    Attributes:
        earlier: units of the same replica (ROUND:SLOT) that were replayed first, for their replica states.
        settled: its inputs are in a record on chain; otherwise the market named them.
    """

    place: Place
    environment_class: str
    attempts: list[Attempt]
    unchecked: list[Unchecked]
    earlier: list[str]
    settled: bool


FindTrace = Callable[[str], AttemptTrace | None]
"""Returns what another source, such as the market, has of the trace of a commitment, given its leaf."""


def check_unit(
    place: Place,
    chain: ChainReader,
    gateway: GatewayClient,
    workdir: Path,
    environment_class: str,
    run: Run,
    find_trace: FindTrace,
    read_market: MarketReader,
    report: Report = lambda message: None,
) -> UnitCheck:
    """Replay a unit and decide all attempts at it.

    Args:
        chain: reader on a node that the caller trusts.
        gateway: any IPFS gateways; each block is verified against its CID.
        workdir: existing directory for inputs and states.
        environment_class: class of the process behind ``run``.
        find_trace: called if the record's evidence does not contain an attempt's leaves.
        read_market: called for a unit without a settlement.
        report: called before earlier units are replayed for a missing replica state.

    Raises:
        ZooError: ``unit-unsettled``, ``unit-unknown``, ``environment-mismatch``, ``replay-failed``, or
            ``slot-state-held-by-node``: no attempt's replica state is public or can be recomputed.
        Mismatch: the record or the unit differs from the chain.
        BlockNotFound, ContentError, GatewayUnavailable: a required file is not available.
    """
    settlement = chain.settled(place.job_id)
    record = record_of(place, settlement, chain, gateway, read_market)
    attempts = _attempts(record, place, chain)
    if record.environment_class != environment_class:
        raise ZooError(
            "environment-mismatch",
            f"the unit is of environment class {record.environment_class}, this machine of {environment_class}",
            remedy="Use the torch build, profile and processor of its nodes. On a machine with a GPU, "
            "--profile cpu-fp32 selects the class of its processor.",
        )
    spec_bytes = gateway.fetch(record.spec_cid, max_bytes=_MAX_SPEC_BYTES)
    if to_hex(keccak(spec_bytes)) != chain.opened(place.job_id).spec_hash:
        raise Mismatch("wrong-spec", f"{record.spec_cid} differs from the specification in the escrow")
    workspace = Workspace(workdir / "inputs")
    replays = Replays(
        Inputs(record, json.loads(spec_bytes), gateway, workdir, workspace, environment_class, run, report)
    )
    found, unchecked = [], []
    try:
        for attempt in attempts:
            try:
                found.append(_decide(replays.of(attempt), record, attempt, settlement.struck, find_trace, chain))
            except Unreplayable as error:
                unchecked.append(Unchecked(attempt.provider, str(error)))
    except GymError as error:
        raise ZooError("replay-failed", str(error)) from error
    if not found:
        raise ZooError(
            "slot-state-held-by-node",
            "; ".join(f"{attempt.provider}: {attempt.reason}" for attempt in unchecked),
            remedy="Ask its provider to upload the file (POST /v1/blobs), or choose a unit with a sampled segment: its "
            "inputs are public.",
        )
    earlier = [f"{unit.round}:{unit.slot}" for unit in replays.earlier]
    settled = bool(settlement.lines_with(place.round))
    return UnitCheck(place, environment_class, found, unchecked, earlier, settled)


def _attempts(record: JobRecord, place: Place, chain: ChainReader) -> list[UnitRecord]:
    """Return the attempts whose commitment is on chain.

    Raises:
        ZooError: there is none.
        Mismatch: a commitment is not in its recorded window.
    """
    found = [unit for unit in record.units if (unit.round, unit.slot) == (place.round, place.slot)]
    committed = [
        unit for unit in found if None not in (unit.window, unit.window_index, unit.trace_root, unit.payload_hash)
    ]
    if not committed:
        problem = f"{len(found)} attempts, none of them committed on chain" if found else "no such unit"
        where = f"round {place.round}, slot {place.slot} of job {place.job_id}"
        raise ZooError("unit-unknown", f"{where}: {problem}", remedy=NAMED_BY)
    windows = {window.id: window for window in record.windows}
    for unit in committed:
        window = windows.get(unit.window or 0)
        leaves = [] if window is None else [from_hex(leaf) for leaf in window.leaves]
        index = unit.window_index or 0
        if (
            index >= len(leaves)
            or to_hex(leaves[index]) != unit.leaf(place.job_id)
            or to_hex(merkle.root(leaves)) != chain.window(unit.window or 0).root
        ):
            raise Mismatch("not-in-window", f"the commitment of {unit.provider} is not in window {unit.window}")
    return committed


def _decide(
    replay: Replay,
    record: JobRecord,
    unit: UnitRecord,
    struck: Collection[str],
    find_trace: FindTrace,
    chain: ChainReader,
) -> Attempt:
    if replay.diverged is not None:
        difference: Difference | None = Difference(diverges=replay.diverged)
    else:
        right = unit.trace_root == replay.trace_root
        difference = None if right else _difference(replay, record, unit, find_trace)
    return Attempt(
        provider=unit.provider,
        status=unit.status,
        reason=unit.reason,
        trace_root=unit.trace_root or "",
        right_root=replay.trace_root,
        window=unit.window or 0,
        difference=difference,
        disputable_until=chain.disputable_until(next(one.root for one in record.windows if one.id == unit.window)),
        struck=unit.leaf(record.job_id) in struck,
        other_payload=difference is None and unit.salt is not None and _binds_other_payload(replay, unit, unit.salt),
    )


def _binds_other_payload(replay: Replay, unit: UnitRecord, salt: str) -> bool:
    return to_hex(trace.payload_hash(replay.payload_sha256, unit.provider, from_hex(salt))) != unit.payload_hash


def _difference(replay: Replay, record: JobRecord, unit: UnitRecord, find_trace: FindTrace) -> Difference:
    """Locate a wrong attempt's difference as far as files are available."""
    shown = _evidence(replay.gateway, record, unit) or find_trace(unit.leaf(record.job_id) or "")
    steps: tuple[int | None, int | None] = (None, None)
    if shown is not None and len(shown.leaves) == len(replay.leaves):
        leaves = [from_hex(leaf) for leaf in shown.leaves]
        if to_hex(trace.trace_root(leaves)) != unit.trace_root:
            raise Mismatch("wrong-trace", f"the leaves of {unit.provider} do not lead to its trace root")
        false = next(
            j for j, (claimed, right) in enumerate(zip(leaves, replay.leaves, strict=True)) if claimed != right
        )
        length = replay.spec.training.segment_steps
        steps = ((false - 1) * length + 1, false * length) if false else (0, 0)
        for boundary in sorted(shown.states):
            if max(1, false) <= boundary < len(leaves) - 1:
                with suppress(*_UNAVAILABLE):
                    served = replay.served_state(boundary, shown.states[boundary], leaves[boundary])
                    if served is not None:
                        return _first_tensor(steps, f"state {boundary}", served, replay.state(boundary))
    if unit.payload_cid is not None:
        with suppress(*_UNAVAILABLE):
            return _first_tensor(steps, "payload", replay.payload(unit.payload_cid), replay.payload())
    return Difference(*steps)


def _evidence(gateway: GatewayClient, record: JobRecord, unit: UnitRecord) -> AttemptTrace | None:
    """Return the trace in the slashing evidence against this attempt, if available."""
    for slash in record.slashes:
        if (slash.round, slash.slot, slash.provider) != (unit.round, unit.slot, unit.provider):
            continue
        try:
            content = gateway.fetch(slash.evidence_cid, max_bytes=MAX_EVIDENCE_BYTES)
        except (BlockNotFound, GatewayUnavailable):
            continue
        try:
            document = json.loads(content)
            state, leaves = document["state_cid"], [to_hex(from_hex(leaf)) for leaf in document["unit"]["leaves"]]
            return AttemptTrace(leaves, {} if state is None else {int(document["segment"]): state})
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise Mismatch("bad-evidence", f"{slash.evidence_cid} is not evidence: {error!r}") from error
    return None


def _first_tensor(
    steps: tuple[int | None, int | None], where: str, claimed: Mapping[str, Any], right: Mapping[str, Any]
) -> Difference:
    for name in sorted(right):
        differs = claimed[name].view(np.uint32) != right[name].view(np.uint32)  # as bits: digests distinguish -0 from 0
        if differs.any():
            largest = float(np.abs(claimed[name].astype(np.float64) - right[name]).max())
            return Difference(*steps, where, name, int(differs.sum()), differs.size, largest)
    return Difference(*steps, where)
