"""Checks of a job's samples: their rates, the signed results, the reasons of rejections.

The tolerance of a cross-class result cannot be recomputed from a record: it rests on the market's word.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property

from zoo_compute.audit.settlements import Expect, fetch_record, signer_of, units_of
from zoo_compute.chain.settlements import ACQUITTED, FALSE_WORK, UNPAID_OUTCOMES, ChainReader, Penalty
from zoo_compute.content.gateway import UNAVAILABLE, GatewayClient
from zoo_protocol.hashing import from_hex, to_hex
from zoo_protocol.payments.job_record import JobRecord, PaidUnit, RecordError, ReplayRecord, UnitRecord, leaf_of
from zoo_protocol.payments.receipt import JobSettlement, Opened, Settled, unit_price
from zoo_protocol.verification.rules import COMPARABLE_SHARE, Verdict, sampling_rate_bps, verdict
from zoo_protocol.verification.trace import trace_root

NEWCOMER_BPS = 2_500
"""Rate of a provider without history, on every network (decision 2)."""


class Histories:
    """Comparable units of providers that were settled before a block."""

    def __init__(self, expect: Expect, chain: ChainReader, gateway: GatewayClient) -> None:
        self._expect, self._chain, self._gateway = expect, chain, gateway
        self._lists: dict[int, list[PaidUnit]] = {}
        self._weights: dict[str, int] = {}

    @cached_property
    def _lines(self) -> list[tuple[int, str, Settled]]:
        return self._chain.lines()

    @cached_property
    def _penalties(self) -> list[Penalty]:
        return self._chain.penalties()

    def check_rate(self, unit: UnitRecord, floor_bps: int, gross: int, block: int, where: str) -> None:
        """Check a unit's rate against its provider's history at ``block``, that of its window.

        Args:
            floor_bps: the job's rate.
            gross: price of the unit in wei.
        """
        rate = NEWCOMER_BPS if unit.sampling_bps is None else unit.sampling_bps
        if rate >= max(NEWCOMER_BPS, floor_bps):
            return
        attested = self._chain.was_attested(unit.provider, block)
        clean: set[tuple[str, int, int]] = set()
        least = sampling_rate_bps(0, NEWCOMER_BPS, floor_bps, attested=attested)
        for paid in self._before(unit.provider, block):
            if rate >= least:
                break
            if unit_price(int(paid.price), self._weight(paid.job_id)) >= gross // COMPARABLE_SHARE:
                clean.add((paid.job_id, paid.round, paid.slot))
                least = sampling_rate_bps(len(clean), NEWCOMER_BPS, floor_bps, attested=attested)
        self._expect("sampled_too_little", where, max(least, rate), rate)

    def _before(self, provider: str, block: int) -> Iterator[PaidUnit]:
        """Yield the provider's units settled since its last penalty, newest batch first."""
        mine = [one.block for one in self._penalties if one.provider == provider and one.offence in FALSE_WORK]
        since = max((one for one in mine if one < block), default=-1)
        batches = {line.batch: line for at, _, line in self._lines if since < at < block and line.batch}
        for number, line in batches.items():
            if number not in self._lists:
                try:
                    self._lists[number] = units_of(self._gateway, line)
                except (*UNAVAILABLE, RecordError) as error:
                    self._expect("unresolvable", f"batch {number}", line.record, str(error))
                    self._lists[number] = []
            yield from (paid for paid in self._lists[number] if paid.provider == provider)

    def _weight(self, job_id: str) -> int:
        if job_id not in self._weights:
            self._weights[job_id] = self._chain.opened(job_id).unit_weight
        return self._weights[job_id]


class ReplayChecks:
    """Checks of a record's replays and rejections; each adds its findings."""

    def __init__(
        self, expect: Expect, chain: ChainReader, record: JobRecord, opened: Opened, settlement: JobSettlement
    ) -> None:
        self._expect, self._chain, self._record, self._payer = expect, chain, record, opened.payer
        self._opened_at, self._settled_at = chain.block_of(opened.tx), chain.block_of(settlement.parts[-1].tx)
        self._staked: dict[str, int | None] = {}

    @cached_property
    def _penalties(self) -> list[Penalty]:
        found = self._chain.penalties()
        return [one for one in found if one.offence in FALSE_WORK and one.block >= self._opened_at]

    def unit(self, unit: UnitRecord, where: str) -> None:
        """Check the results on a unit, and that they give its status."""
        if unit.drawn_segments and unit.status != "lost":
            complete = len(unit.leaves) == self._record.segments + 1
            root = to_hex(trace_root([from_hex(leaf) for leaf in unit.leaves])) if complete else None
            self._expect("wrong_trace", where, unit.trace_root, root)
            if root != unit.trace_root:
                return
        results = [replay for replay in unit.replays if self._counts(unit, replay, where)]
        if unit.status == "verified":
            self._verified(unit, results, where)
        elif unit.status == "rejected":
            is_convicted = unit.provider in {penalty.provider for penalty in self._penalties}
            backed = is_convicted or bool(self._outcomes(unit) & UNPAID_OUTCOMES)
            if not backed:
                self._expect("rejected_without_reason", where, "a penalty or a dispute on chain", unit.reason)

    def _outcomes(self, unit: UnitRecord) -> set[int]:
        leaf = unit.leaf(self._record.job_id)
        return set() if leaf is None else self._chain.dispute_outcomes(leaf)

    def _verified(self, unit: UnitRecord, results: list[ReplayRecord], where: str) -> None:
        for segment in unit.drawn_segments:
            given = [one for one in results if one.segment == segment]
            own = [one.end_leaf for one in given if one.verdict != "tolerated"]
            if segment in unit.tolerated_segments:
                passes = not own and len(given) > 0
            else:
                passes = verdict(unit.leaves[segment + 1], own, no_verifier_left=True) is Verdict.PASSED
            if not passes and ACQUITTED not in self._outcomes(unit):
                self._expect("unsigned_result", f"{where}.segments[{segment}]", "signed results that pass it", own)
        if unit.drawn_segments and set(unit.drawn_segments) <= set(unit.tolerated_segments):
            self._expect("only_tolerated", where, "a segment with equal bits", unit.tolerated_segments)

    def _counts(self, unit: UnitRecord, replay: ReplayRecord, where: str) -> bool:
        """Check one result; return False if it has a finding."""
        place, job_id = f"{where}.replays[{replay.segment}/{replay.verifier}]", self._record.job_id
        if replay.segment not in unit.drawn_segments:
            self._expect("wrong_replay", place, unit.drawn_segments, replay.segment)
            return False
        signed = replay.commitment(job_id, unit.round, unit.slot, unit.leaves[replay.segment])
        if replay.verifier not in self._staked:
            self._staked[replay.verifier] = self._chain.staked_since(replay.verifier)
        since = self._staked[replay.verifier]
        times = Counter((one.segment, one.verifier) for one in unit.replays)[replay.segment, replay.verifier]
        kind = _verdict_of(replay, unit, self._record.environment_class)
        wrong = [
            ("foreign_signature", replay.verifier, signer_of(self._chain, signed, replay.signature)),
            ("interested_verifier", False, replay.verifier in (unit.provider, self._payer)),
            ("repeated_verifier", 1, times),
            ("unstaked_verifier", True, since is not None and since < self._settled_at),
            ("wrong_verdict", kind, replay.verdict),
        ]
        for code, expected, found in wrong:
            self._expect(code, place, expected, found)
        return all(expected == found for _, expected, found in wrong)

    def payloads_left_out(self, units: Sequence[tuple[UnitRecord, int]]) -> None:
        """Report units that no round lists, each with one that had to, unless a dispute excused it."""
        for unit, round_ in units:
            if ACQUITTED not in self._outcomes(unit):  # no round lists a unit while it is in dispute
                where = f"units[{unit.round}/{unit.slot}].payload_cid"
                due = f"{unit.payload_cid} in the record of round {round_} or before, as the replica went on since"
                self._expect("payload_left_out", where, due, "in none; ask the market why, its provider when it came")

    def left_out(self, gateway: GatewayClient) -> None:
        """Check that the record has each disputed or slashed unit of the job that the chain shows."""
        known = {slash.evidence for slash in self._record.slashes}
        leaves = {unit.leaf(self._record.job_id) for unit in self._record.units}
        for penalty in self._penalties:
            unit, job_id = self._chain.disputed_unit(penalty.evidence), None
            if unit is not None:
                job_id, is_known = unit.jobId, to_hex(leaf_of(unit)) in leaves
            elif not (is_known := penalty.evidence in known):
                try:
                    job_id = json.loads(fetch_record(gateway, penalty.evidence)).get("job_id")
                except (*UNAVAILABLE, ValueError, AttributeError) as error:
                    self._expect("unresolvable", f"Slashed[{penalty.evidence}]", "its evidence", str(error))
            if job_id == self._record.job_id:
                self._expect("unit_left_out", f"Slashed[{penalty.evidence}]", True, is_known)


def _verdict_of(replay: ReplayRecord, unit: UnitRecord, environment_class: str | None) -> str | None:
    if replay.environment_class != environment_class:
        return "tolerated"
    if replay.end_leaf == unit.leaves[replay.segment + 1]:
        return "bit_equal"
    return None if replay.end_leaf in unit.leaves else "refuted"  # a leaf's place cannot be seen in it
