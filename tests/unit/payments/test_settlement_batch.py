"""The tree of a settlement batch: every provider proves its pay and no more."""

from dataclasses import replace

import pytest

from zoo_protocol import merkle
from zoo_protocol.hashing import from_hex, sha256, to_hex
from zoo_protocol.payments import settlement_batch
from zoo_protocol.payments.job_record import PaidUnit, PaidUnits, RecordError
from zoo_protocol.payments.receipt import JobSettlement
from zoo_protocol.payments.settlement_batch import NO_ROOT, Batch, JobLine, batch_root, build_batch, claim_leaf

JOB, OTHER, DIGEST = "0x" + "ab" * 32, "0x" + "11" * 32, "0x" + "cd" * 32
PRICE = 25 * 10**17
PAY = {JOB: 700, OTHER: 30}
FIRST, SECOND, THIRD = (f"0x{number:040x}" for number in (1, 2, 3))


def unit(job: str, round_: int, slot: int, provider: str) -> PaidUnit:
    digest = to_hex(sha256(f"{job}/{round_}/{slot}".encode()))
    return PaidUnit(job, round_, slot, provider, digest, digest, str(PRICE))


UNITS = [unit(OTHER, 4, 0, FIRST), unit(JOB, 1, 0, SECOND), unit(JOB, 0, 0, FIRST), unit(JOB, 0, 1, SECOND)]
LINES = [JobLine(JOB, PRICE, 3, 0, 2, True, DIGEST), JobLine(OTHER, PRICE, 1, 4, 5, False, DIGEST)]


def batch() -> Batch:
    return build_batch(LINES, UNITS, PAY)


def test_provider_proves_pay_over_all_jobs() -> None:
    made = batch()
    assert [(claim.provider, claim.amount) for claim in made.claims] == [(FIRST, 730), (SECOND, 1400)]
    for claim in made.claims:
        proof = [from_hex(node) for node in claim.proof]
        assert merkle.verify(from_hex(made.root), claim_leaf(claim.provider, claim.amount), proof)
        assert not merkle.verify(from_hex(made.root), claim_leaf(claim.provider, claim.amount + 1), proof)
        assert not merkle.verify(from_hex(made.root), claim_leaf(THIRD, claim.amount), proof)


def test_root_binds_contents_but_not_unit_order() -> None:
    made = batch()
    other_units = build_batch(LINES, [replace(UNITS[0], slot=3), *UNITS[1:]], PAY)
    other_record = build_batch([replace(LINES[0], record=JOB), LINES[1]], UNITS, PAY)
    assert len({made.root, other_units.root, other_record.root}) == 3
    assert (made.claims_root, made.units_root) == (other_record.claims_root, other_record.units_root)
    assert build_batch(LINES, UNITS[::-1], PAY) == made
    assert to_hex(batch_root(from_hex(made.claims_root), from_hex(made.units_root), made.lines)) == made.root
    assert settlement_batch.paid_leaf(UNITS[0]) != settlement_batch.paid_leaf(replace(UNITS[0], price=str(PRICE - 1)))


def test_batch_without_units_has_nothing_to_claim() -> None:
    line = JobLine(JOB, 0, 0, 2, 2, True, DIGEST)
    assert build_batch([line], [], PAY) == Batch([line], NO_ROOT, NO_ROOT, NO_ROOT, [])


def test_lines_and_units_must_agree() -> None:
    for lines, units in ((LINES, UNITS[1:]), (LINES[:1], UNITS), ([], UNITS)):
        with pytest.raises(RecordError):
            build_batch(lines, units, PAY)


def test_published_units_round_trip() -> None:
    units = PaidUnits(UNITS)
    assert PaidUnits.from_bytes(units.to_bytes()) == units
    with pytest.raises(RecordError):
        PaidUnits.from_bytes(units.to_bytes().replace(b'"slot":1', b'"slot":"1"'))


def event(
    batch_id: int, start: int, end: int, *, paid: int = 95, refund: int = 0, last: bool = False
) -> dict[str, object]:
    rounds = {"fromRound": start, "toRound": end}
    amounts = {"paid": paid, "fee": paid // 19, "refund": refund, "last": last, "record": DIGEST}
    return {"batchId": batch_id, "price": PRICE, "units": 1, **rounds, **amounts}


def veto(batch_id: int, *, refunded: bool = False) -> tuple[str, dict[str, object], str]:
    return "SettlementReverted", {"batchId": batch_id, "net": 95, "fee": 5, "refunded": refunded}, "0x"


def test_job_remainder_follows_contract_rules() -> None:
    first = ("JobSettled", event(1, 0, 3), "0x")
    last = ("JobSettled", event(2, 3, 4, refund=800, last=True), "0x")
    whole = JobSettlement.from_events([first, last])
    assert (whole.paid, whole.fee, whole.refund, whole.next_round, whole.over) == (190, 10, 800, 4, True)
    assert whole.last is not None

    early = JobSettlement.from_events([first, last, veto(1)])  # the later batch's rounds stay settled
    assert (early.paid, early.refund, early.next_round, early.last) == (95, 800, 4, None)
    both = JobSettlement.from_events([first, last, veto(2), veto(1)])
    assert (both.paid, both.refund, both.next_round, both.over) == (0, 800, 0, False)
    again = JobSettlement.from_events([first, last, veto(1), ("JobSettled", event(3, 4, 5, last=True), "0x")])
    assert (again.paid + again.fee + again.refund, again.over) == (1000, True)

    refunded = JobSettlement.from_events([first, ("JobRefunded", {"amount": 900}, "0x"), veto(1, refunded=True)])
    assert (refunded.paid, refunded.refund, refunded.over, refunded.last) == (0, 1000, True, None)
