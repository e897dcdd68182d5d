"""Merkle tree of a settlement batch, for providers' claims and for disputes of paid units.

The batch's root joins three hashes as sorted pairs:

- the tree of claims, one leaf per provider;
- the tree of paid units, one leaf per unit, in the order of the lines;
- the hash of both roots and of the lines, which give the amount that the batch takes from each job.

The contract computes the last one and joins the three. So a root has one pair of trees and lines (docs/protocol.md).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any

from eth_abi.abi import encode as abi_encode

from zoo_protocol import merkle
from zoo_protocol.hashing import from_hex, keccak, to_hex
from zoo_protocol.payments.job_record import PaidUnit, RecordError

_SETTLEMENT_TYPES = ["bytes32", "bytes32", "(bytes32,uint80,uint32,uint32,uint32,bool,bytes32)[]"]
NO_ROOT = "0x" + "00" * 32


@dataclass(frozen=True, slots=True)
class JobLine:
    """Settlement of a job in a batch: ``units`` of rounds ``from_round`` to ``to_round`` - 1.

    ``price`` is in wei per GPU-hour; ``last`` ends the job; ``record`` is the digest inside its record's CID, 0x hex.
    """

    job_id: str
    price: int
    units: int
    from_round: int
    to_round: int
    last: bool
    record: str

    def as_argument(self) -> dict[str, Any]:
        """Return the contract's struct ``JobLine``, by field name."""
        names = ("jobId", "price", "units", "fromRound", "toRound", "last", "record")
        return dict(zip(names, astuple(self), strict=True))


@dataclass(frozen=True, slots=True)
class Claim:
    """Provider's claim on a batch: ``amount`` wei net of fee; ``proof`` from leaf to root."""

    provider: str
    amount: int
    proof: list[str]


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch as posted: ``settle`` takes the roots of its two trees and computes ``root``."""

    lines: list[JobLine]
    claims_root: str
    units_root: str
    root: str
    claims: list[Claim]


def paid_leaf(unit: PaidUnit) -> bytes:
    """Return the leaf of a paid unit: its commitment and its price in wei per GPU-hour."""
    return merkle.leaf_hash(
        abi_encode(
            ["bytes32", "uint32", "uint32", "address", "bytes32", "bytes32", "uint80"],
            [
                from_hex(unit.job_id),
                unit.round,
                unit.slot,
                unit.provider,
                from_hex(unit.trace_root),
                from_hex(unit.payload_hash),
                int(unit.price),
            ],
        )
    )


def claim_leaf(provider: str, amount: int) -> bytes:
    """Return the leaf of a provider's claim of ``amount`` wei."""
    return merkle.leaf_hash(abi_encode(["address", "uint256"], [provider, amount]))


def settlement_hash(claims_root: bytes, units_root: bytes, lines: Sequence[JobLine]) -> bytes:
    """Return ``keccak256(abi.encode(claims, units, lines))`` as the contract computes it."""
    values = [
        (from_hex(job_id), *numbers, from_hex(record)) for job_id, *numbers, record in (astuple(line) for line in lines)
    ]
    return keccak(abi_encode(_SETTLEMENT_TYPES, [claims_root, units_root, values]))


def batch_root(claims_root: bytes, units_root: bytes, lines: Sequence[JobLine]) -> bytes:
    """Return the root of the batch that ``settle`` posts for these arguments."""
    settlement = settlement_hash(claims_root, units_root, lines)
    return merkle.parent_hash(claims_root, merkle.parent_hash(units_root, settlement))


def build_batch(lines: Sequence[JobLine], units: Sequence[PaidUnit], unit_pay: Mapping[str, int]) -> Batch:
    """Return the batch that pays these units by these lines.

    Args:
        unit_pay: pay for one unit of each job, wei net of the fee.

    Raises:
        RecordError: a line's count differs from the job's units, or a unit belongs to no line.
    """
    found = Counter(unit.job_id for unit in units)
    for line in lines:
        if found.pop(line.job_id, 0) != line.units:
            raise RecordError("units", f"differ from the {line.units} units of job {line.job_id} that its line pays")
    if found:
        raise RecordError("units", f"belong to no line: those of job {next(iter(found))}")
    if not units:
        return Batch(list(lines), NO_ROOT, NO_ROOT, NO_ROOT, [])

    pay: Counter[str] = Counter()
    for unit in units:
        pay[unit.provider] += unit_pay[unit.job_id]
    amounts = [(provider, pay[provider]) for provider in sorted(pay, key=lambda text: int(text, 16))]
    claim_leaves = [claim_leaf(provider, amount) for provider, amount in amounts]
    claims_root = merkle.root(claim_leaves)
    units_root = merkle.root(_unit_leaves(lines, units))
    claims_sibling = merkle.parent_hash(units_root, settlement_hash(claims_root, units_root, lines))
    claims = [
        Claim(provider, amount, [to_hex(node) for node in (*merkle.proof(claim_leaves, index), claims_sibling)])
        for index, (provider, amount) in enumerate(amounts)
    ]
    root = to_hex(batch_root(claims_root, units_root, lines))
    return Batch(list(lines), to_hex(claims_root), to_hex(units_root), root, claims)


def unit_proof(lines: Sequence[JobLine], units: Sequence[PaidUnit], claims_root: str, unit: PaidUnit) -> list[str]:
    """Return the proof of a paid ``unit``, from leaf to root. Raises ValueError: not paid."""
    leaves, claims = _unit_leaves(lines, units), from_hex(claims_root)
    proof = merkle.proof(leaves, leaves.index(paid_leaf(unit)))
    return [to_hex(node) for node in (*proof, settlement_hash(claims, merkle.root(leaves), lines), claims)]


def _unit_leaves(lines: Sequence[JobLine], units: Sequence[PaidUnit]) -> list[bytes]:
    place = {line.job_id: index for index, line in enumerate(lines)}
    ordered = sorted(units, key=lambda unit: (place[unit.job_id], unit.round, unit.slot))
    return [paid_leaf(unit) for unit in ordered]
