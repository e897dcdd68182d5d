"""A job's receipt, recomputed from the chain and IPFS alone.

The settlement event names the job record by its digest. The checks of the record are:

- signatures of order and commitments;
- each paid unit started from its round's checkpoint, in a window whose root was on chain before its seed;
- the replayed segments are those that the seed selects;
- verifiers signed the results that pass these segments, and each rejection has a reason on chain;
- the sampling rates follow from the providers' settled units;
- checkpoints and starts are linked from the first to the final model, and the last rounds are joined again;
- rounds list each payload that they must have had;
- every CID resolves to bytes with that hash;
- the amounts add up to the wei.
"""

import json
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from typing import Any

from training_gym.spec.config import TrainingSpec
from zoo_compute.audit.losses import LossChecks, LossFunction
from zoo_compute.audit.replays import Histories, ReplayChecks
from zoo_compute.audit.rounds import JoinedRound, Rounds
from zoo_compute.audit.settlements import Verification, check_batches, fetch_record, merged, read_record, signer_of
from zoo_compute.base.errors import Finding, ZooError
from zoo_compute.chain.settlements import ChainDisagrees, ChainReader
from zoo_compute.content.gateway import UNAVAILABLE, GatewayClient
from zoo_protocol import merkle
from zoo_protocol.content import cid
from zoo_protocol.content.cid import InvalidCid
from zoo_protocol.hashing import from_hex, keccak, sha256, to_hex
from zoo_protocol.messages import JobOrder, struct_hash
from zoo_protocol.payments.job_record import JobRecord, RecordError, SlashRecord, UnitRecord, order_of
from zoo_protocol.payments.receipt import BPS, JobSettlement, Opened, Slashed, build_receipt, unit_price
from zoo_protocol.verification.sampling import draw_segments
from zoo_protocol.verification.trace import payload_hash

MAX_BLOB_BYTES = 2**30

DISPUTE = "dispute"
"""Path of a penalty that the contract Disputes decided."""

_OF_THE_MOMENT = ("treasury_balance_wei",)  # changes after the receipt


def verify_job(
    job_id: str,
    chain: ChainReader,
    gateway: GatewayClient,
    loss: LossFunction | None = None,
    rounds: int | None = 1,
) -> Verification:
    """Recompute the receipt of a settled job.

    Args:
        chain: reader on a node that the caller trusts.
        gateway: any IPFS gateways; each block is verified against its CID.
        loss: recomputes validation losses; None takes them from the record.
        rounds: number of last rounds to join again; None: all.

    Returns:
        The receipt and the findings. A job without opening or settlement on chain has a finding and no receipt.
    """
    result = Verification()
    try:
        opened = chain.opened(job_id)
        settlement = chain.settlement(job_id)
        digest = settlement.parts[-1].record
        record = JobRecord.from_bytes(fetch_record(gateway, digest))
    except ChainDisagrees as error:
        result.expect(error.code, "chain", "one event", str(error))
        return result
    except RecordError as error:
        result.expect("bad_record", error.field, "a job record", str(error))
        return result
    except UNAVAILABLE as error:
        result.expect("unresolvable", "JobSettled.record", digest, str(error))
        return result
    result.expect("wrong_record", "record.job_id", job_id, record.job_id)
    checks = _RecordChecks(result, chain, gateway, record)
    order = checks.order(opened)
    checks.money(opened, settlement)
    check_batches(result, chain, gateway, record, settlement)
    checks.windows()
    joins = checks.rounds()
    replays = ReplayChecks(result.expect, chain, record, opened, settlement)
    for unit in record.units:
        replays.unit(unit, f"units[{unit.round}/{unit.slot}]")
        checks.unit(order, unit, joins)
    replays.left_out(gateway)
    slashes = checks.slashes()
    losses = checks.losses(loss)
    losses.checkpoints()
    if joins is not None:
        replays.payloads_left_out(joins.left_out())
        joins.joins(rounds, keeps_replaced=loss is not None)
        losses.replaced_model(joins.replaced)
    rollbacks = {} if joins is None else joins.rollbacks(settlement.parts[:-1])
    result.receipt = build_receipt(record, opened, settlement, slashes, rollbacks, chain.treasury_balance())
    return result


def verify_round(job_id: str, round_: int, chain: ChainReader, gateway: GatewayClient) -> JoinedRound:
    """Join one round of a job again, from the records on chain.

    Raises:
        ZooError: ``round-unknown``, or ``round-unsettled``: it has no difference, but units without a settlement.
        Mismatch: a record is malformed, or of another job.
        BlockNotFound, ContentError, GatewayUnavailable: the newest record is not available.
    """
    result, settlement = Verification(), chain.settled(job_id)
    # Only the line that ends the job has a record of all units.
    parts = settlement.parts if settlement.last is None else settlement.parts[-1:]
    records: list[JobRecord] = []
    for part in parts[:-1]:
        with suppress(*UNAVAILABLE):  # its units count as unsettled
            records.append(read_record(gateway, part.record, job_id))
    records += [read_record(gateway, part.record, job_id) for part in parts[-1:]]
    if not records or not 0 <= round_ < len(records[-1].checkpoints) - 1:
        remedy = "Rounds count from 0; choose one before the job's newest settlement."
        raise ZooError("round-unknown", f"round {round_} of job {job_id} has no checkpoint on record", remedy=remedy)
    checks = _RecordChecks(result, chain, gateway, merged(records))
    checks.order(chain.opened(job_id))
    if (joins := checks.rounds(is_running=settlement.last is None)) is None:
        return JoinedRound(result.findings)
    joins.join(round_)
    if (unsettled := joins.unsettled(round_)) and not result.findings:
        raise ZooError(
            "round-unsettled",
            f"the payloads of round {round_} give the checkpoint after it, but no settlement of job {job_id} has "
            f"their units {', '.join(unsettled)} (ROUND:SLOT)",
            remedy="None will follow: its escrow was refunded."
            if settlement.over
            else "Try again after the job's next settlement. Only the last one has rejected units too.",
        )
    return JoinedRound(result.findings, joins.rollback(round_))


def differences(claimed: dict[str, Any], recomputed: dict[str, Any]) -> list[Finding]:
    """Return a claimed receipt's differences from the recomputed one; ignores more keys."""
    found = Verification()
    for key, value in recomputed.items():
        if key in _OF_THE_MOMENT:
            continue
        found.expect("receipt_differs", key, json.dumps(value), json.dumps(claimed.get(key)))
    return found.findings


class _RecordChecks:
    """Checks of a job record against the chain and IPFS; each adds its findings to ``result``."""

    def __init__(self, result: Verification, chain: ChainReader, gateway: GatewayClient, record: JobRecord) -> None:
        self._expect, self._chain, self._gateway, self._record = result.expect, chain, gateway, record
        self._histories = Histories(result.expect, chain, gateway)
        self._spec: TrainingSpec | None = None

    def order(self, opened: Opened) -> JobOrder:
        order = order_of(self._record.order)
        self._expect("wrong_order", "record.order", self._record.job_id, struct_hash(order))
        self._expect("wrong_segments", "record.segments", order.segments, self._record.segments)
        signer = signer_of(self._chain, order, self._record.order_signature, strictly=False)
        self._expect("foreign_signature", "record.order_signature", opened.payer, signer)
        spec = self._fetch("spec_cid", self._record.spec_cid)
        if spec is not None:
            self._expect("wrong_spec", "spec_cid", opened.spec_hash, to_hex(keccak(spec)))
        return order

    def money(self, opened: Opened, settlement: JobSettlement) -> None:
        paid_units = self._record.paid_units()
        price = int(self._record.clearing_price_wei_per_gpu_hour)
        gross = unit_price(price, opened.unit_weight) * len(paid_units)
        fee = gross * opened.fee_bps // BPS
        self._expect("wrong_deposit", "JobOpened.budget", opened.budget, self._chain.deposited(opened))
        for part in settlement.parts:
            self._expect("wrong_price", "JobSettled.price", price if part.units else part.price, part.price)
            self._expect("price_above_maximum", "JobSettled.price", True, part.price <= opened.max_price)
        self._expect("too_many_units", "record.units", True, len(paid_units) <= opened.units)
        places = Counter((unit.round, unit.slot) for unit in paid_units)
        self._expect("paid_twice", "record.units", [], [place for place, count in places.items() if count > 1])
        self._expect("wrong_units", "JobSettled.units", len(paid_units), sum(part.units for part in settlement.parts))
        self._expect("wrong_payment", "JobSettled.paid", gross - fee, settlement.paid)
        self._expect("wrong_fee", "JobSettled.fee", fee, settlement.fee)
        self._expect("wrong_refund", "JobSettled.refund", opened.budget - gross, settlement.refund)

    def windows(self) -> None:
        for window in self._record.windows:
            where = f"windows[{window.id}]"
            try:
                self._expect("wrong_window", where, self._chain.window(window.id).root, window.root)
            except ChainDisagrees as error:
                self._expect(error.code, where, "one event", str(error))
            leaves = [from_hex(leaf) for leaf in window.leaves]
            root = to_hex(merkle.root(leaves)) if leaves else None
            self._expect("wrong_window", f"{where}.leaves", window.root, root)

    def unit(self, order: JobOrder, unit: UnitRecord, joins: Rounds | None) -> None:
        where = f"units[{unit.round}/{unit.slot}]"
        if unit.status != "verified":
            return
        commitment = unit.commitment(self._record.job_id)
        if commitment is None or unit.commitment_signature is None or unit.salt is None:
            self._expect("no_commitment", where, "a signed commitment, opened", None)
            return
        signer = signer_of(self._chain, commitment, unit.commitment_signature)
        self._expect("foreign_signature", where, unit.provider, signer)
        # In overlapped rounds a unit may start from the checkpoint before its round's (decision 17).
        starts = [one.cid for one in self._record.checkpoints if one.round in (unit.round - 1, unit.round)]
        self._expect("wrong_start", where, True, unit.start_checkpoint_cid in starts)
        self._check_draw(order, unit, where)
        payload = self._fetch(f"{where}.payload_cid", unit.payload_cid)
        if payload is not None:
            bound = to_hex(payload_hash(sha256(payload), unit.provider, from_hex(unit.salt)))
            self._expect("wrong_payload", where, unit.payload_hash, bound)
        if joins is not None and unit.start_checkpoint_cid in starts:
            joins.start(unit, payload, where)

    def _check_draw(self, order: JobOrder, unit: UnitRecord, where: str) -> None:
        """Check that the unit is in its window, and that the seed selects the replayed segments."""
        windows = {window.id: window for window in self._record.windows}
        assert unit.trace_root is not None
        if unit.window not in windows or unit.window_index is None or unit.sampling_bps is None:
            self._expect("not_in_window", where, "a committed window", unit.window)
            return
        leaves = windows[unit.window].leaves
        found = leaves[unit.window_index] if 0 <= unit.window_index < len(leaves) else None
        self._expect("not_in_window", where, unit.leaf(self._record.job_id), found)
        try:
            window = self._chain.window(unit.window)
        except ChainDisagrees as error:
            self._expect(error.code, where, "one event", str(error))
            return
        if (seed := window.seed) is None:
            self._expect("paid_unverified", where, "a latched seed", None)
            return
        self._expect("sampled_too_little", where, True, unit.sampling_bps >= order.samplingBps)
        gross = unit_price(int(self._record.clearing_price_wei_per_gpu_hour), order.unitWeight)
        self._histories.check_rate(unit, order.samplingBps, gross, window.block, where)
        drawn = draw_segments(from_hex(seed), from_hex(unit.trace_root), order.segments, unit.sampling_bps)
        self._expect("wrong_draw", where, drawn, unit.drawn_segments)
        self._expect("wrong_tolerated", where, True, set(unit.tolerated_segments) <= set(unit.drawn_segments))

    def slashes(self) -> list[Slashed]:
        found = []
        for slash in self._record.slashes:
            where = f"slashes[{slash.round}/{slash.slot}]"
            try:
                event = self._chain.slash(slash.evidence, slash.offence)
            except ChainDisagrees as error:
                self._expect(error.code, where, "one event", str(error))
                continue
            self._expect("wrong_slash", where, slash.provider, event.provider)
            if slash.path == DISPUTE:
                self._check_upheld_dispute(slash, event.tx, where)
            else:
                self._expect("wrong_evidence", where, slash.evidence, _digest(slash.evidence_cid))
            self._fetch(f"{where}.evidence_cid", slash.evidence_cid)
            found.append(replace(event, path=slash.path, path_reason=slash.path_reason))
        return found

    def _check_upheld_dispute(self, slash: SlashRecord, tx: str, where: str) -> None:
        try:
            unit_key, ended = self._chain.upheld_dispute(slash.evidence)
        except ChainDisagrees as error:
            self._expect(error.code, where, "a dispute that the provider lost", str(error))
            return
        place = slash.round, slash.slot, slash.provider
        units = [unit for unit in self._record.units if (unit.round, unit.slot, unit.provider) == place]
        own = [unit.leaf(self._record.job_id) for unit in units]
        self._expect("wrong_dispute", where, True, unit_key in own)
        self._expect("wrong_dispute", where, ended, tx)

    def rounds(self, *, is_running: bool = False) -> Rounds | None:
        """Read the specification, check the links of checkpoints; None if they are broken.

        The record of a job that ``is_running`` has only its settled units.
        """
        try:
            self._spec = TrainingSpec.from_dict(json.loads(self._fetch("spec_cid", self._record.spec_cid) or b"{}"))
        except (ValueError, RecursionError) as error:
            self._expect("wrong_spec", "spec_cid", "a specification", str(error))
            return None
        joins = Rounds(self._expect, self._fetch, self._record, self._spec, self._gateway, is_running=is_running)
        return joins if joins.links() else None

    def losses(self, loss: LossFunction | None) -> LossChecks:
        """Return the checks of losses, by the specification that :meth:`rounds` read."""
        return LossChecks(self._expect, self._fetch, self._record, self._spec, loss)

    def _fetch(self, where: str | None, content: str | None) -> bytes | None:
        """Return a CID's verified bytes; None, and a finding at ``where``, if not available."""
        if content is None:
            self._expect("missing", where or "", "a CID" if where else None, None)
            return None
        try:
            return self._gateway.fetch(content, max_bytes=MAX_BLOB_BYTES)
        except Exception as error:  # whatever a gateway or a damaged block throws is a finding, not our failure
            if where is not None:
                self._expect("unresolvable", where, content, f"{type(error).__name__}: {error}")
            return None


def _digest(evidence_cid: str) -> str:
    try:
        return to_hex(cid.digest_of(evidence_cid))
    except InvalidCid as error:
        return str(error)
