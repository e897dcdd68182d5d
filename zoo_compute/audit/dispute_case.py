"""What a disputed unit is and what it starts from: by the job's record, whose digest is on chain, else by the market.

Order and commitment prove themselves: they lead to the unit's id, and the specification's hash is in the order. For the
checkpoint and the slot state there is the record, or, before the unit is settled, the market's word alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from zoo_compute.audit.settlements import read_record
from zoo_compute.base.errors import Mismatch
from zoo_compute.chain.referees import Opening
from zoo_compute.chain.settlements import ChainReader
from zoo_compute.content.blockstore import BlockNotFound
from zoo_compute.content.gateway import GatewayClient, GatewayUnavailable
from zoo_protocol.content.cid import ContentError
from zoo_protocol.hashing import to_hex
from zoo_protocol.messages import JobOrder, UnitCommitment, struct_hash
from zoo_protocol.payments.job_record import JobRecord, leaf_of, order_of


@dataclass(frozen=True, slots=True)
class Case:
    """A disputed unit; fields as in :class:`zoo_protocol.payments.job_record.UnitRecord` and :class:`JobRecord`.

    ``salt`` is None where the payload was never delivered, or is not to be known yet.
    """

    order: JobOrder
    unit: UnitCommitment
    environment: str
    spec_cid: str
    checkpoint_cid: str
    slot_state_cid: str | None
    restored_payload_cid: str | None
    eager_payload_cid: str | None
    top_k: int | None
    salt: str | None


def settled_case(opening: Opening, chain: ChainReader, gateway: GatewayClient) -> Case | None:
    """The case by a record that the chain names; None if no settlement has the unit, or its record cannot be had."""
    unit = opening.unit
    if unit is None:
        return None
    for line in chain.settled(unit.jobId).lines_with(unit.round):
        try:
            record = read_record(gateway, line.record, unit.jobId)
        except (Mismatch, BlockNotFound, ContentError, GatewayUnavailable):
            continue
        if (found := _case_in(record, opening.unit_id)) is not None:
            return found
    return None


def _case_in(record: JobRecord, unit_id: str) -> Case | None:
    for unit in record.units:
        if unit.trace_root is None or unit.payload_hash is None:
            continue
        place = (record.job_id, unit.round, unit.slot, unit.provider)
        commitment = UnitCommitment(*place, unit.trace_root, unit.payload_hash)
        if to_hex(leaf_of(commitment)) == unit_id:
            return Case(
                order=order_of(record.order),
                unit=commitment,
                environment=record.environment_class or "",
                spec_cid=record.spec_cid,
                checkpoint_cid=unit.start_checkpoint_cid,
                slot_state_cid=unit.start_slot_state_cid,
                restored_payload_cid=unit.start_restored_payload_cid,
                eager_payload_cid=unit.start_eager_payload_cid,
                top_k=unit.top_k,
                salt=unit.salt,
            )
    return None


def case_from_market(document: Mapping[str, Any]) -> Case | None:
    """The case by the market's answer to ``GET /v1/disputes/{id}``; None if the market does not know the unit.

    Raises:
        Mismatch: what it says is not the unit that is disputed.
    """
    told = document["case"]
    if told is None:
        return None
    order = order_of(told["order"])
    commitment = UnitCommitment(
        struct_hash(order), told["round"], told["slot"], document["provider"], told["trace_root"], told["payload_hash"]
    )
    if to_hex(leaf_of(commitment)) != document["unit_id"]:
        raise Mismatch("wrong-case", f"the market describes another unit than {document['unit_id']}")
    return Case(
        order=order,
        unit=commitment,
        environment=told["environment_class"],
        spec_cid=told["spec_cid"],
        checkpoint_cid=told["checkpoint_cid"],
        slot_state_cid=told["slot_state_cid"],
        restored_payload_cid=told["restored_payload_cid"],
        eager_payload_cid=told["eager_payload_cid"],
        top_k=told["top_k"],
        salt=told["salt"],
    )
