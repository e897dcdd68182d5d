"""Replay of one unit by a third party, compared with the provider's commitment.

Everything comes from public data: the unit's record (``unit_record.py``), and files by CID through any gateway. One
run of the unit gives every leaf of the right trace; it judges all attempts that began alike, the rejected ones too.
Where an attempt's own leaves are known (they lead to its root on chain, so whoever gives them cannot lie), the first
false segment follows; where a state that it served, or its payload, is at hand, also the first tensor that differs.
"""

import json
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from training_gym.spec.errors import GymError
from zoo_compute.audit.unit_record import NAMED_BY, Place, Tell, record_of
from zoo_compute.base.errors import Mismatch, ZooError
from zoo_compute.chain.settlements import ChainReader
from zoo_compute.content.blockstore import BlockNotFound
from zoo_compute.content.gateway import GatewayClient, GatewayUnavailable
from zoo_compute.node.disk.workspace import Workspace
from zoo_compute.replay.replay import Inputs, Replay, Replays, Run, Say, Unreplayable
from zoo_protocol import merkle
from zoo_protocol.content.cid import ContentError
from zoo_protocol.hashing import from_hex, keccak, to_hex
from zoo_protocol.payments.job_record import VERIFIED, JobRecord, UnitRecord, unit_leaf
from zoo_protocol.verification import trace

MAX_EVIDENCE_BYTES = 1 << 20


_MAX_SPEC_BYTES = 1 << 20


_NOT_AT_HAND = (BlockNotFound, ContentError, GatewayUnavailable, GymError)
"""What a file that an attempt served or delivered may be: not to be had, or not what it should be."""


@dataclass(frozen=True, slots=True)
class Shown:
    """What an attempt showed of its trace: all leaves (0x hex), and CIDs of served states by boundary."""

    leaves: list[str]
    states: dict[int, str]


@dataclass(frozen=True, slots=True)
class Difference:
    """Where an attempt first leaves the right path.

    Attributes:
        first_step, last_step: inner steps, from 1, of the first segment whose end is false; None if unknown.
        where: what was compared: ``state N`` after N segments, or ``payload``; None if nothing is at hand.
        tensor: the first, in the order of names, that is not bit-equal.
        entries, of: how many of its entries differ, and how many it has.
        largest: largest absolute difference of an entry.
        diverges: where training the unit diverges, in words: then no state was there to commit to.
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
    """One provider's attempt at the unit, and whether its root is the ``right_root`` that its steps give.

    ``right_root`` is None where they give none: training diverges. ``struck``: a dispute took its pay back.
    ``disputable_until``: the last second in which it can be disputed, Unix time. ``other_payload``: the trace is right,
    but the payload that was committed to is another than its last leaf's, as far as its salt is known.
    """

    provider: str
    status: str
    reason: str | None
    trace_root: str
    right_root: str | None
    window: int
    difference: Difference | None
    disputable_until: int
    struck: bool = False
    other_payload: bool = False

    @property
    def agrees(self) -> bool:
        return self.trace_root == self.right_root and not self.other_payload

    @property
    def misjudged(self) -> bool:
        """Whether it was decided otherwise than this replay: false work keeps its pay, or right work was punished.

        A struck unit may well be right: who does not show its trace loses a dispute too.
        """
        if self.agrees:
            return self.status != VERIFIED and self.reason == "incorrect_computation"
        return self.status == VERIFIED and not self.struck


@dataclass(frozen=True, slots=True)
class Unchecked:
    """An attempt that could not be replayed, and the reason."""

    provider: str
    reason: str


@dataclass(frozen=True, slots=True)
class UnitCheck:
    """A unit, and every attempt at it that was committed on chain.

    ``earlier``: units of the same slot (ROUND:SLOT) that were replayed first, for the slot state that they hand on.
    ``settled``: what it started from is in a record that the chain names; else the market told it.
    """

    place: Place
    environment_class: str
    attempts: list[Attempt]
    unchecked: list[Unchecked]
    earlier: list[str]
    settled: bool

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


FindTrace = Callable[[str], Shown | None]
"""A commitment's leaf in its window -> what is known of its trace from elsewhere, such as the market."""


def check_unit(
    place: Place,
    chain: ChainReader,
    gateway: GatewayClient,
    workdir: Path,
    environment_class: str,
    run: Run,
    find_trace: FindTrace,
    tell: Tell,
    say: Say = lambda message: None,
) -> UnitCheck:
    """Replay a unit and judge all attempts at it.

    Args:
        place: which unit.
        chain: reader on a node that the caller trusts.
        gateway: any IPFS gateways; each block is checked against its CID.
        workdir: existing directory for inputs and states.
        environment_class: of the process behind ``run``.
        run: trains the unit.
        find_trace: asked where the record's evidence does not have an attempt's leaves.
        tell: asked of a unit that is in no settlement yet.
        say: told when earlier units of the slot have to be replayed, for a slot state that nobody has.

    Raises:
        ZooError: ``unit-unsettled``, ``unit-unknown``, ``environment-mismatch``, ``replay-failed``,
            ``slot-state-held-by-node``: what each attempt at it starts from is not public, nor can it be made again.
        Mismatch: the record or the unit is not what the chain says.
        BlockNotFound, ContentError, GatewayUnavailable: a file that is needed cannot be had.
    """
    settlement = chain.settled(place.job_id)
    record = record_of(place, settlement, chain, gateway, tell)
    attempts = _attempts(record, place, chain)
    if record.environment_class != environment_class:
        raise ZooError(
            "environment-mismatch",
            f"the unit is of environment class {record.environment_class}, this machine of {environment_class}",
            remedy="Bits compare only within a class: use the torch build, profile and processor of its nodes. "
            "On a machine with a GPU, --profile cpu-avx2-1 takes the class of its processor.",
        )
    spec_bytes = gateway.fetch(record.spec_cid, max_bytes=_MAX_SPEC_BYTES)
    if to_hex(keccak(spec_bytes)) != chain.opened(place.job_id).spec_hash:
        raise Mismatch("wrong-spec", f"{record.spec_cid} is not the specification that was escrowed for")
    workspace = Workspace(workdir / "inputs")
    replays = Replays(Inputs(record, json.loads(spec_bytes), gateway, workdir, workspace, environment_class, run, say))
    found, unchecked = [], []
    try:
        for attempt in attempts:
            try:
                found.append(_judge(replays.of(attempt), record, attempt, settlement.struck, find_trace, chain))
            except Unreplayable as error:
                unchecked.append(Unchecked(attempt.provider, str(error)))
    except GymError as error:
        raise ZooError("replay-failed", str(error)) from error
    if not found:
        raise ZooError(
            "slot-state-held-by-node",
            "; ".join(f"{attempt.provider}: {attempt.reason}" for attempt in unchecked),
            remedy="Ask its provider to put the file on storage (POST /v1/blobs), or take a unit of which a segment "
            "was drawn: what that starts from is public.",
        )
    earlier = [f"{unit.round}:{unit.slot}" for unit in replays.earlier]
    settled = bool(settlement.lines_with(place.round))
    return UnitCheck(place, environment_class, found, unchecked, earlier, settled)


def _attempts(record: JobRecord, place: Place, chain: ChainReader) -> list[UnitRecord]:
    """The attempts at the unit whose commitment is on chain.

    Raises:
        ZooError: there is none.
        Mismatch: a commitment is not in the window that it is said to be in.
    """
    found = [unit for unit in record.units if (unit.round, unit.slot) == (place.round, place.slot)]
    committed = [
        unit for unit in found if None not in (unit.window, unit.window_index, unit.trace_root, unit.payload_hash)
    ]
    if not committed:
        said = f"{len(found)} attempts, none of them committed on chain" if found else "no such unit"
        where = f"round {place.round}, slot {place.slot} of job {place.job_id}"
        raise ZooError("unit-unknown", f"{where}: {said}", remedy=NAMED_BY)
    windows = {window.id: window for window in record.windows}
    for unit in committed:
        window = windows.get(unit.window or 0)
        leaves = [] if window is None else [from_hex(leaf) for leaf in window.leaves]
        index = unit.window_index or 0
        if (
            index >= len(leaves)
            or leaves[index] != _leaf_of(place.job_id, unit)
            or to_hex(merkle.root(leaves)) != chain.window(unit.window or 0).root
        ):
            raise Mismatch("not-in-window", f"the commitment of {unit.provider} is not in window {unit.window}")
    return committed


def _leaf_of(job_id: str, unit: UnitRecord) -> bytes:
    return unit_leaf(job_id, unit.round, unit.slot, unit.provider, unit.trace_root or "", unit.payload_hash or "")


def _judge(
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
        struck=to_hex(_leaf_of(record.job_id, unit)) in struck,
        other_payload=difference is None and unit.salt is not None and _binds_other_payload(replay, unit, unit.salt),
    )


def _binds_other_payload(replay: Replay, unit: UnitRecord, salt: str) -> bool:
    return to_hex(trace.payload_hash(replay.payload_sha256, unit.provider, from_hex(salt))) != unit.payload_hash


def _difference(replay: Replay, record: JobRecord, unit: UnitRecord, find_trace: FindTrace) -> Difference:
    """Where an attempt that is false leaves the right path, as far as its files are at hand: that it is false is known
    without them, and must not go unsaid because somebody has removed them."""
    shown = _evidence(replay.gateway, record, unit) or find_trace(to_hex(_leaf_of(record.job_id, unit)))
    steps: tuple[int | None, int | None] = (None, None)
    if shown is not None and len(shown.leaves) == len(replay.leaves):
        leaves = [from_hex(leaf) for leaf in shown.leaves]
        if to_hex(trace.trace_root(leaves)) != unit.trace_root:
            raise Mismatch("wrong-trace", f"the leaves given for {unit.provider} do not lead to its trace root")
        false = next(j for j, (said, right) in enumerate(zip(leaves, replay.leaves, strict=True)) if said != right)
        length = replay.spec.training.segment_steps
        steps = ((false - 1) * length + 1, false * length) if false else (0, 0)
        for boundary in sorted(shown.states):
            if max(1, false) <= boundary < len(leaves) - 1:
                with suppress(*_NOT_AT_HAND):
                    served = replay.served_state(boundary, shown.states[boundary], leaves[boundary])
                    if served is not None:
                        return _first_tensor(steps, f"state {boundary}", served, replay.state(boundary))
    if unit.payload_cid is not None:
        with suppress(*_NOT_AT_HAND):
            return _first_tensor(steps, "payload", replay.payload(unit.payload_cid), replay.payload())
    return Difference(*steps)


def _evidence(gateway: GatewayClient, record: JobRecord, unit: UnitRecord) -> Shown | None:
    """What the evidence against this attempt shows, if it was slashed and the evidence can be had."""
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
            return Shown(leaves, {} if state is None else {int(document["segment"]): state})
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise Mismatch("bad-evidence", f"{slash.evidence_cid} is no evidence: {error!r}") from error
    return None


def _first_tensor(
    steps: tuple[int | None, int | None], where: str, said: Mapping[str, Any], right: Mapping[str, Any]
) -> Difference:
    for name in sorted(right):
        differs = said[name].view(np.uint32) != right[name].view(np.uint32)  # bits: -0 is not 0 to a digest
        if differs.any():
            largest = float(np.abs(said[name].astype(np.float64) - right[name]).max())
            return Difference(*steps, where, name, int(differs.sum()), differs.size, largest)
    return Difference(*steps, where)
