"""The Merkle tree of a settlement batch, by which providers claim their pay and disputes find a paid unit.

Under the batch's root lie three things, joined by the sorted-pair hash: claims (one leaf for each provider), paid units
(one leaf for each unit), and the hash of the lines that say what the batch takes from each job. The contract computes
that hash and joins the three, so a tree cannot speak for other lines than those that were settled (docs/protocol.md).
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from eth_abi.abi import encode as abi_encode

from zoo_protocol import merkle
from zoo_protocol.hashing import from_hex, keccak, to_hex
from zoo_protocol.receipt import net_unit_price
from zoo_protocol.record import JobRecord, RecordError, UnitRecord

_LINE_TYPE = "(bytes32,uint80,uint32,uint32,uint32,bool,bytes32)[]"
NO_ROOT = "0x" + "00" * 32


@dataclass(frozen=True, slots=True)
class JobLine:
    """What a batch settles of one job: ``units`` units of the rounds from ``from_round`` to before ``to_round``.

    ``price`` in wei per GPU-hour; ``last``: the job is over; ``record``: digest inside the CID of its record, 0x hex.
    """

    job_id: str
    price: int
    units: int
    from_round: int
    to_round: int
    last: bool
    record: str

    def as_argument(self) -> dict[str, Any]:
        """The struct ``JobLine`` of the contract, by field name."""
        return {
            "jobId": self.job_id,
            "price": self.price,
            "units": self.units,
            "fromRound": self.from_round,
            "toRound": self.to_round,
            "last": self.last,
            "record": self.record,
        }


@dataclass(frozen=True, slots=True)
class Claim:
    """What a provider takes from a batch: ``amount`` wei, net of the fee; ``proof`` as 0x hex, from leaf to root."""

    provider: str
    amount: int
    proof: list[str]


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch as it is posted: the roots of its two trees go into ``settle``, which makes ``root`` of them."""

    lines: list[JobLine]
    claims_root: str
    units_root: str
    root: str
    claims: list[Claim]


def paid_leaf(job_id: str, unit: UnitRecord, price: int) -> bytes:
    """Leaf of a paid unit: its commitment and its price in wei per GPU-hour.

    Raises:
        RecordError: if the unit lacks its commitment.
    """
    if unit.trace_root is None or unit.payload_hash is None:
        raise RecordError(f"units[{unit.round}/{unit.slot}]", "is to be paid but has no commitment")
    return merkle.leaf_hash(
        abi_encode(
            ["bytes32", "uint32", "uint32", "address", "bytes32", "bytes32", "uint80"],
            [
                from_hex(job_id),
                unit.round,
                unit.slot,
                unit.provider,
                from_hex(unit.trace_root),
                from_hex(unit.payload_hash),
                price,
            ],
        )
    )


def claim_leaf(provider: str, amount: int) -> bytes:
    """Leaf of a provider's claim of ``amount`` wei."""
    return merkle.leaf_hash(abi_encode(["address", "uint256"], [provider, amount]))


def lines_hash(lines: Sequence[JobLine]) -> bytes:
    """``keccak256(abi.encode(lines))`` as the contract computes it."""
    values = [
        (
            from_hex(line.job_id),
            line.price,
            line.units,
            line.from_round,
            line.to_round,
            line.last,
            from_hex(line.record),
        )
        for line in lines
    ]
    return keccak(abi_encode([_LINE_TYPE], [values]))


def build_batch(record: JobRecord, record_digest: str, fee_bps: int) -> Batch:
    """The batch that settles a whole job by its record, and ends it.

    Args:
        record_digest: SHA2-256 digest inside the CID of the record, 0x hex.
        fee_bps: fee of the job, fixed when it was opened.

    Raises:
        RecordError: if a paid unit lacks its commitment, or the record's numbers are no numbers.
    """
    paid = record.paid_units()
    price = int(record.clearing_price_wei_per_gpu_hour) if paid else 0
    rounds = max((unit.round for unit in paid), default=-1) + 1
    lines = [JobLine(record.job_id, price, len(paid), 0, rounds, True, record_digest)]
    if not paid:
        return Batch(lines, NO_ROOT, NO_ROOT, NO_ROOT, [])

    net = net_unit_price(price, int(record.order["unitWeight"]), fee_bps)
    counts = Counter(unit.provider for unit in paid)
    amounts = [(provider, counts[provider] * net) for provider in sorted(counts, key=lambda text: int(text, 16))]
    claim_leaves = [claim_leaf(provider, amount) for provider, amount in amounts]
    claims_root = merkle.root(claim_leaves)
    units_root = merkle.root([paid_leaf(record.job_id, unit, price) for unit in paid])
    beside_claims = merkle.parent_hash(units_root, lines_hash(lines))
    claims = [
        Claim(provider, amount, [to_hex(node) for node in (*merkle.proof(claim_leaves, index), beside_claims)])
        for index, (provider, amount) in enumerate(amounts)
    ]
    root = merkle.parent_hash(claims_root, beside_claims)
    return Batch(lines, to_hex(claims_root), to_hex(units_root), to_hex(root), claims)
