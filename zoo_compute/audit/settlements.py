"""Payments of a job, recomputed: each batch's root from on-chain lines and units."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from zoo_compute.base.errors import Finding, Mismatch
from zoo_compute.chain.settlements import ChainDisagrees, ChainReader
from zoo_compute.content.blockstore import BlockNotFound
from zoo_compute.content.gateway import UNAVAILABLE, GatewayClient
from zoo_protocol.content import cid
from zoo_protocol.hashing import from_hex
from zoo_protocol.messages import Domain, Message, recover, recover_strictly, typed_data
from zoo_protocol.payments.job_record import MAX_RECORD_BYTES, JobRecord, PaidUnit, PaidUnits, RecordError, UnitRecord
from zoo_protocol.payments.receipt import JobSettlement, Settled, net_unit_price
from zoo_protocol.payments.settlement_batch import Batch, JobLine, build_batch

Expect = Callable[[str, str, object, object], None]
"""Records a finding (code, where, expected, found) unless the last two are equal."""


@dataclass(slots=True)
class Verification:
    """Recomputed receipt and all differences."""

    receipt: dict[str, Any] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def expect(self, code: str, where: str, expected: object, found: object) -> None:
        """Record a finding unless the two are equal."""
        if expected != found:
            self.findings.append(Finding(code, where, str(expected), str(found)))


def signer_of(chain: ChainReader, message: Message, signature: str, *, strictly: bool = True) -> str:
    """Return the signer of a message, or an error's text; ``strictly``: as the contract."""
    domain = Domain(chain.chain_id, chain.address("JobEscrow"))
    try:
        return (recover_strictly if strictly else recover)(typed_data(domain, message), signature)
    except ValueError as error:
        return str(error)


def fetch_record(gateway: GatewayClient, digest: str) -> bytes:
    """Return the job record with this digest (0x hex), each block verified against its hash.

    Raises:
        BlockNotFound, ContentError, GatewayUnavailable: it is not available.
    """
    block, tree = cid.cids_of_digest(from_hex(digest))
    try:
        return gateway.fetch(block, max_bytes=MAX_RECORD_BYTES)
    except BlockNotFound:
        return gateway.fetch(tree, max_bytes=MAX_RECORD_BYTES)


def read_record(gateway: GatewayClient, digest: str, job_id: str) -> JobRecord:
    """Return the job record with this digest (0x hex).

    Raises:
        Mismatch: malformed, or of another job.
        BlockNotFound, ContentError, GatewayUnavailable: it is not available.
    """
    try:
        record = JobRecord.from_bytes(fetch_record(gateway, digest))
    except RecordError as error:
        raise Mismatch("bad-record", str(error)) from error
    if record.job_id != job_id:
        raise Mismatch("wrong-record", f"the settled record names job {record.job_id}; expected {job_id}")
    return record


def merged(records: Sequence[JobRecord]) -> JobRecord:
    """Return the last record, with units, penalties and windows of all; later ones prevail."""
    return replace(
        records[-1],
        units=list({(u.round, u.slot, u.provider, u.trace_root): u for one in records for u in one.units}.values()),
        slashes=list({slash.evidence: slash for one in records for slash in one.slashes}.values()),
        windows=list({window.id: window for one in records for window in one.windows}.values()),
    )


def check_batches(
    result: Verification, chain: ChainReader, gateway: GatewayClient, record: JobRecord, settlement: JobSettlement
) -> None:
    """Check that the batches pay each verified unit of the record once and nothing else.

    Args:
        record: record of the line that ended the job.
    """
    paid: Counter[PaidUnit] = Counter()
    for part in settlement.parts:
        try:
            paid.update(unit for unit in _check_part(result, chain, gateway, part) if unit.job_id == record.job_id)
        except (RecordError, ValueError) as error:
            result.expect("wrong_batch", "record", "units that make a batch", str(error))
        except ChainDisagrees as error:
            result.expect(error.code, "JobSettled.batchId", "one batch", str(error))
        except UNAVAILABLE as error:
            result.expect("unresolvable", "JobSettled.record", part.record, str(error))
    price = record.clearing_price_wei_per_gpu_hour
    verified = Counter(_as_paid(record.job_id, unit, price) for unit in record.paid_units())
    if paid != verified:
        unpaid, unearned = list((verified - paid).elements()), list((paid - verified).elements())
        result.expect("wrong_batch", "batch.units", f"each verified unit once, also {unpaid}", f"besides {unearned}")


def _check_part(result: Verification, chain: ChainReader, gateway: GatewayClient, part: Settled) -> list[PaidUnit]:
    together = chain.settled_with(part)
    orders = {job_id: chain.opened(job_id) for job_id, _ in together}
    refunds: Counter[str] = Counter()
    for job_id, line in together:
        if line.refund:
            refunds[orders[job_id].payer] += line.refund
    result.expect("wrong_transfers", "settlement", dict(refunds), dict(chain.transfers(part)))
    if part.batch == 0:
        return []
    units = units_of(gateway, part)
    pay = {
        job_id: net_unit_price(line.price, orders[job_id].unit_weight, orders[job_id].fee_bps)
        for job_id, line in together
    }
    batch = build_batch([_line(job_id, line) for job_id, line in together], units, pay)
    _check_posted(result, chain, part.batch, batch, [line for _, line in together])
    return units


def _check_posted(
    result: Verification, chain: ChainReader, number: int, batch: Batch, lines: Sequence[Settled]
) -> None:
    posted = chain.batch(number)
    totals = sum(line.paid for line in lines), sum(line.fee for line in lines)
    result.expect("wrong_batch", "BatchPosted.root", batch.root, posted.root)
    result.expect("wrong_batch", "BatchPosted", totals, (posted.net, posted.fee))
    result.expect("wrong_fee", "FeesCollected", True, posted.fee_collected <= posted.fee)
    earned = {claim.provider: claim.amount for claim in batch.claims}
    for provider, amount in posted.claimed.items():
        due = earned.get(provider, 0) - posted.withheld.get(provider, 0)
        result.expect("wrong_payment", f"Claimed[{provider}]", due, amount)


def units_of(gateway: GatewayClient, part: Settled) -> list[PaidUnit]:
    """Return the units that a part's batch pays. Raises RecordError, or one of ``UNAVAILABLE``."""
    batch_cid = JobRecord.from_bytes(fetch_record(gateway, part.record)).batch_cid
    if batch_cid is None:
        raise RecordError("batch_cid", "is missing, but the line pays units")
    return PaidUnits.from_bytes(gateway.fetch(batch_cid, max_bytes=MAX_RECORD_BYTES)).units


def _line(job_id: str, line: Settled) -> JobLine:
    return JobLine(job_id, line.price, line.units, line.from_round, line.to_round, line.last, line.record)


def _as_paid(job_id: str, unit: UnitRecord, price: str) -> PaidUnit:
    return PaidUnit(job_id, unit.round, unit.slot, unit.provider, unit.trace_root or "", unit.payload_hash or "", price)
