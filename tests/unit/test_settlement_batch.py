"""The tree of a settlement batch: every provider can prove its pay, and nothing else can be proven."""

from dataclasses import replace

import pytest

from zoo_protocol import merkle
from zoo_protocol.hashing import from_hex, sha256, to_hex
from zoo_protocol.receipt import net_unit_price
from zoo_protocol.record import JobRecord, RecordError, UnitRecord
from zoo_protocol.settlement import NO_ROOT, Batch, JobLine, build_batch, claim_leaf, lines_hash, paid_leaf

JOB, DIGEST = "0x" + "ab" * 32, "0x" + "cd" * 32
PRICE, WEIGHT = 25 * 10**17, 90_000_000
FIRST, SECOND, THIRD = (f"0x{number:040x}" for number in (1, 2, 3))


def unit(round_: int, slot: int, provider: str, status: str = "verified") -> UnitRecord:
    digest = to_hex(sha256(f"{round_}/{slot}".encode()))
    return UnitRecord(
        round_, slot, provider, status, None, "cid", digest, digest, None, None, None, None, None, None, None, []
    )


def record(units: list[UnitRecord]) -> JobRecord:
    return JobRecord(
        job_id=JOB,
        network="devnet",
        tier="bronze",
        segments=4,
        environment_class=None,
        spec_cid="cid",
        order={"unitWeight": str(WEIGHT)},
        order_signature="0x",
        outcome="completed",
        clearing_price_wei_per_gpu_hour=str(PRICE),
        auction=None,
        units=units,
        slashes=[],
        checkpoints=[],
        windows=[],
        initial_loss=None,
        final_loss=None,
        final_model_cid=None,
        times={},
    )


UNITS = [unit(1, 0, SECOND), unit(0, 0, FIRST), unit(0, 1, SECOND), unit(0, 2, THIRD, "rejected")]


def batch() -> Batch:
    return build_batch(record(UNITS), DIGEST, 500)


def test_each_provider_proves_the_pay_of_its_verified_units() -> None:
    net = net_unit_price(PRICE, WEIGHT, 500)
    made = batch()
    assert [(claim.provider, claim.amount) for claim in made.claims] == [(FIRST, net), (SECOND, 2 * net)]
    for claim in made.claims:
        proof = [from_hex(node) for node in claim.proof]
        assert merkle.verify(from_hex(made.root), claim_leaf(claim.provider, claim.amount), proof)
        assert not merkle.verify(from_hex(made.root), claim_leaf(claim.provider, claim.amount + 1), proof)
        assert not merkle.verify(from_hex(made.root), claim_leaf(THIRD, claim.amount), proof)


def test_the_line_ends_the_job_with_all_its_rounds() -> None:
    assert batch().lines == [JobLine(JOB, PRICE, 3, 0, 2, True, DIGEST)]


def test_the_root_binds_units_price_and_lines() -> None:
    made = batch()
    other_units = build_batch(record([replace(UNITS[0], slot=3), *UNITS[1:]]), DIGEST, 500)
    other_record = build_batch(record(UNITS), JOB, 500)
    assert len({made.root, other_units.root, other_record.root}) == 3
    assert (made.claims_root, made.units_root) == (other_record.claims_root, other_record.units_root)
    beside = merkle.parent_hash(from_hex(made.units_root), lines_hash(made.lines))
    assert to_hex(merkle.parent_hash(from_hex(made.claims_root), beside)) == made.root
    assert paid_leaf(JOB, UNITS[0], PRICE) != paid_leaf(JOB, UNITS[0], PRICE - 1)


def test_a_job_without_paid_units_has_nothing_to_claim() -> None:
    empty = build_batch(record([unit(0, 0, FIRST, "rejected")]), DIGEST, 500)
    assert empty == Batch([JobLine(JOB, 0, 0, 0, 0, True, DIGEST)], NO_ROOT, NO_ROOT, NO_ROOT, [])


def test_a_paid_unit_needs_its_commitment() -> None:
    with pytest.raises(RecordError):
        build_batch(record([replace(UNITS[0], trace_root=None)]), DIGEST, 500)
