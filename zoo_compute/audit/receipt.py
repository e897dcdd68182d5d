"""A job's receipt, recomputed from the chain and IPFS alone.

The settlement event names the job record by its digest. The checks of the record are:

- signatures of order and commitments;
- each paid unit started from its round's checkpoint, in a window whose root was on chain before its seed;
- the replayed segments are those that the seed selects;
- every CID resolves to bytes with that hash;
- the amounts add up to the wei.
"""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from zoo_compute.audit.finding import Finding
from zoo_compute.audit.settlements import Verification, check_batches, fetch_record
from zoo_compute.chain.settlements import ChainDisagrees, ChainReader
from zoo_compute.content.gateway import UNAVAILABLE, GatewayClient
from zoo_protocol import merkle
from zoo_protocol.content import cid
from zoo_protocol.content.cid import InvalidCid
from zoo_protocol.hashing import from_hex, keccak, sha256, to_hex
from zoo_protocol.messages import Domain, JobOrder, recover, recover_strictly, struct_hash, typed_data
from zoo_protocol.payments.job_record import JobRecord, RecordError, SlashRecord, UnitRecord, order_of
from zoo_protocol.payments.receipt import BPS, JobSettlement, Opened, Slashed, build_receipt, unit_price
from zoo_protocol.verification.sampling import draw_segments
from zoo_protocol.verification.trace import payload_hash

MAX_BLOB_BYTES = 2**30

DISPUTE = "dispute"
"""Path of a penalty that the contract Disputes decided."""

LOSS_TOLERANCE = 1e-4  # nats; the order of summation differs between processors
_OF_THE_MOMENT = ("treasury_balance_wei",)  # changes after the receipt

LossFunction = Callable[[bytes, bytes, bytes], float]
"""(canonical spec, model file, validation split) -> validation loss in nats per token."""


def verify_job(
    job_id: str, chain: ChainReader, gateway: GatewayClient, loss: LossFunction | None = None
) -> Verification:
    """Recompute the receipt of a settled job.

    Args:
        job_id: 0x hex.
        chain: reader on a node that the caller trusts.
        gateway: any IPFS gateways; each block is verified against its CID.
        loss: recomputes validation losses; None takes them from the record.

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
    order = _check_order(result, chain, gateway, record, opened)
    _check_money(result, chain, record, opened, settlement)
    check_batches(result, chain, gateway, record, settlement)
    _check_windows(result, chain, record)
    for unit in record.units:
        _check_unit(result, chain, gateway, record, order, unit)
    slashes = _check_slashes(result, chain, gateway, record)
    _check_checkpoints(result, gateway, record, loss)
    result.receipt = build_receipt(record, opened, settlement, slashes, chain.treasury_balance())
    return result


def differences(claimed: dict[str, Any], recomputed: dict[str, Any]) -> list[Finding]:
    """Return a claimed receipt's differences from the recomputed one; ignores more keys."""
    found = Verification()
    for key, value in recomputed.items():
        if key in _OF_THE_MOMENT:
            continue
        found.expect("receipt_differs", key, json.dumps(value), json.dumps(claimed.get(key)))
    return found.findings


def _check_order(
    result: Verification, chain: ChainReader, gateway: GatewayClient, record: JobRecord, opened: Opened
) -> JobOrder:
    order = order_of(record.order)
    result.expect("wrong_order", "record.order", record.job_id, struct_hash(order))
    result.expect("wrong_segments", "record.segments", order.segments, record.segments)
    try:
        domain = Domain(chain.chain_id, chain.address("JobEscrow"))
        signer = recover(typed_data(domain, order), record.order_signature)
        result.expect("foreign_signature", "record.order_signature", opened.payer, signer)
    except ValueError as error:
        result.expect("foreign_signature", "record.order_signature", opened.payer, str(error))
    spec = _fetch(result, gateway, "spec_cid", record.spec_cid)
    if spec is not None:
        result.expect("wrong_spec", "spec_cid", opened.spec_hash, to_hex(keccak(spec)))
    return order


def _check_money(
    result: Verification, chain: ChainReader, record: JobRecord, opened: Opened, settlement: JobSettlement
) -> None:
    paid_units = record.paid_units()
    price = int(record.clearing_price_wei_per_gpu_hour)
    gross = unit_price(price, opened.unit_weight) * len(paid_units)
    fee = gross * opened.fee_bps // BPS
    result.expect("wrong_deposit", "JobOpened.budget", opened.budget, chain.deposited(opened))
    for part in settlement.parts:
        result.expect("wrong_price", "JobSettled.price", price if part.units else part.price, part.price)
        result.expect("price_above_maximum", "JobSettled.price", True, part.price <= opened.max_price)
    result.expect("too_many_units", "record.units", True, len(paid_units) <= opened.units)
    places = Counter((unit.round, unit.slot) for unit in paid_units)
    result.expect("paid_twice", "record.units", [], [place for place, count in places.items() if count > 1])
    result.expect("wrong_units", "JobSettled.units", len(paid_units), sum(part.units for part in settlement.parts))
    result.expect("wrong_payment", "JobSettled.paid", gross - fee, settlement.paid)
    result.expect("wrong_fee", "JobSettled.fee", fee, settlement.fee)
    result.expect("wrong_refund", "JobSettled.refund", opened.budget - gross, settlement.refund)


def _check_windows(result: Verification, chain: ChainReader, record: JobRecord) -> None:
    for window in record.windows:
        where = f"windows[{window.id}]"
        try:
            result.expect("wrong_window", where, chain.window(window.id).root, window.root)
        except ChainDisagrees as error:
            result.expect(error.code, where, "one event", str(error))
        leaves = [from_hex(leaf) for leaf in window.leaves]
        result.expect("wrong_window", f"{where}.leaves", window.root, to_hex(merkle.root(leaves)) if leaves else None)


def _check_unit(
    result: Verification,
    chain: ChainReader,
    gateway: GatewayClient,
    record: JobRecord,
    order: JobOrder,
    unit: UnitRecord,
) -> None:
    where = f"units[{unit.round}/{unit.slot}]"
    if unit.status != "verified":
        return
    commitment = unit.commitment(record.job_id)
    if commitment is None or unit.commitment_signature is None or unit.salt is None:
        result.expect("no_commitment", where, "a signed commitment, opened", None)
        return
    document = typed_data(Domain(chain.chain_id, chain.address("JobEscrow")), commitment)
    try:
        signer = recover_strictly(document, unit.commitment_signature)  # as strict as the contract
        result.expect("foreign_signature", where, unit.provider, signer)
    except ValueError as error:
        result.expect("foreign_signature", where, unit.provider, str(error))
    # In overlapped rounds a unit may start from the checkpoint before its round's (decision 17).
    starts = [one.cid for one in record.checkpoints if one.round in (unit.round - 1, unit.round)]
    result.expect("wrong_start", where, True, unit.start_checkpoint_cid in starts)
    _check_draw(result, chain, record, order, unit, where)
    payload = _fetch(result, gateway, f"{where}.payload_cid", unit.payload_cid)
    if payload is not None:
        bound = to_hex(payload_hash(sha256(payload), unit.provider, from_hex(unit.salt)))
        result.expect("wrong_payload", where, unit.payload_hash, bound)


def _check_draw(
    result: Verification, chain: ChainReader, record: JobRecord, order: JobOrder, unit: UnitRecord, where: str
) -> None:
    """Check that the unit is in its window, and that the seed selects the replayed segments."""
    windows = {window.id: window for window in record.windows}
    assert unit.trace_root is not None
    if unit.window not in windows or unit.window_index is None or unit.sampling_bps is None:
        result.expect("not_in_window", where, "a committed window", unit.window)
        return
    leaves = windows[unit.window].leaves
    found = leaves[unit.window_index] if 0 <= unit.window_index < len(leaves) else None
    result.expect("not_in_window", where, unit.leaf(record.job_id), found)
    try:
        seed = chain.window(unit.window).seed
    except ChainDisagrees as error:
        result.expect(error.code, where, "one event", str(error))
        return
    if seed is None:
        result.expect("paid_unverified", where, "a latched seed", None)
        return
    result.expect("sampled_too_little", where, True, unit.sampling_bps >= order.samplingBps)
    drawn = draw_segments(from_hex(seed), from_hex(unit.trace_root), order.segments, unit.sampling_bps)
    result.expect("wrong_draw", where, drawn, unit.drawn_segments)
    result.expect("wrong_tolerated", where, True, set(unit.tolerated_segments) <= set(unit.drawn_segments))


def _check_slashes(
    result: Verification, chain: ChainReader, gateway: GatewayClient, record: JobRecord
) -> list[Slashed]:
    found = []
    for slash in record.slashes:
        where = f"slashes[{slash.round}/{slash.slot}]"
        try:
            event = chain.slash(slash.evidence, slash.offence)
        except ChainDisagrees as error:
            result.expect(error.code, where, "one event", str(error))
            continue
        result.expect("wrong_slash", where, slash.provider, event.provider)
        if slash.path == DISPUTE:
            _check_upheld_dispute(result, chain, record, slash, event.tx, where)
        else:
            result.expect("wrong_evidence", where, slash.evidence, _digest(slash.evidence_cid))
        _fetch(result, gateway, f"{where}.evidence_cid", slash.evidence_cid)
        found.append(replace(event, path=slash.path, path_reason=slash.path_reason))
    return found


def _digest(evidence_cid: str) -> str:
    try:
        return to_hex(cid.digest_of(evidence_cid))
    except InvalidCid as error:
        return str(error)


def _check_upheld_dispute(
    result: Verification, chain: ChainReader, record: JobRecord, slash: SlashRecord, tx: str, where: str
) -> None:
    try:
        unit_key, ended = chain.upheld_dispute(slash.evidence)
    except ChainDisagrees as error:
        result.expect(error.code, where, "a dispute that the provider lost", str(error))
        return
    place = slash.round, slash.slot, slash.provider
    own = [unit.leaf(record.job_id) for unit in record.units if (unit.round, unit.slot, unit.provider) == place]
    result.expect("wrong_dispute", where, True, unit_key in own)
    result.expect("wrong_dispute", where, ended, tx)


def _check_checkpoints(
    result: Verification, gateway: GatewayClient, record: JobRecord, loss: LossFunction | None
) -> None:
    spec = _fetch(result, gateway, "spec_cid", record.spec_cid)
    validation = None if spec is None else _validation_split(result, gateway, spec)
    rounds = None if spec is None else json.loads(spec).get("training_config", {}).get("rounds")
    last = len(record.checkpoints) - 1
    for index, checkpoint in enumerate(record.checkpoints):
        where = f"checkpoints[{checkpoint.round}]"
        manifest = _fetch(result, gateway, f"{where}.cid", checkpoint.cid)
        model = _fetch(result, gateway, f"{where}.model_cid", checkpoint.model_cid)
        if manifest is None or model is None or spec is None:
            continue
        document = json.loads(manifest)
        result.expect("wrong_manifest", where, checkpoint.model_cid, document.get("model"))
        result.expect("wrong_manifest", where, checkpoint.round, document.get("round"))
        stated = checkpoint.validation_loss
        if stated is None and checkpoint.round in (0, rounds):  # other losses can be unknown at settlement
            result.expect("wrong_loss", where, "a validation loss", None)
        if loss is not None and validation is not None and index in (0, last) and stated is not None:
            recomputed = loss(spec, model, validation)
            if abs(recomputed - float(stated)) > LOSS_TOLERANCE:
                result.expect("wrong_loss", where, f"{recomputed:.6f}", stated)
    first, final = (record.checkpoints[0], record.checkpoints[last]) if record.checkpoints else (None, None)
    result.expect("wrong_loss", "initial_loss", first and first.validation_loss, record.initial_loss)
    result.expect("wrong_loss", "final_loss", final and final.validation_loss, record.final_loss)
    result.expect("wrong_model", "final_model_cid", final and final.model_cid, record.final_model_cid)


def _validation_split(result: Verification, gateway: GatewayClient, spec: bytes) -> bytes | None:
    manifest = _fetch(result, gateway, "spec.data_config.dataset", json.loads(spec)["data_config"]["dataset"])
    if manifest is None:
        return None
    return _fetch(result, gateway, "dataset.validation", json.loads(manifest)["validation"]["cid"])


def _fetch(result: Verification, gateway: GatewayClient, where: str, content: str | None) -> bytes | None:
    """Return a CID's bytes, verified by block; None and a finding if not available."""
    if content is None:
        result.expect("missing", where, "a CID", None)
        return None
    try:
        return gateway.fetch(content, max_bytes=MAX_BLOB_BYTES)
    except Exception as error:  # whatever a gateway or a damaged block throws is a finding, not our failure
        result.expect("unresolvable", where, content, f"{type(error).__name__}: {error}")
        return None
