"""Disputed unit and its inputs, from the settlement record on chain or from the market.

Order and commitment are authenticated by the unit's id, and the specification by its hash in the order. Checkpoint and
replica state come from the record. Before settlement only the market's answer names them.
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
    """Disputed unit; fields as in :class:`~zoo_protocol.payments.job_record.UnitRecord`.

    ``salt`` is None while the payload is not delivered, or is not disclosed.
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
    """Return the case from a record on chain; None if no available record contains the unit."""
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
    """Return the case from the market's API; None if the market does not have the unit.

    Raises:
        Mismatch: it describes another unit.
    """
    case = document["case"]
    if case is None:
        return None
    order = order_of(case["order"])
    commitment = UnitCommitment(
        struct_hash(order), case["round"], case["slot"], document["provider"], case["trace_root"], case["payload_hash"]
    )
    if to_hex(leaf_of(commitment)) != document["unit_id"]:
        raise Mismatch("wrong-case", f"the market describes another unit than {document['unit_id']}")
    return Case(
        order=order,
        unit=commitment,
        environment=case["environment_class"],
        spec_cid=case["spec_cid"],
        checkpoint_cid=case["checkpoint_cid"],
        slot_state_cid=case["slot_state_cid"],
        restored_payload_cid=case["restored_payload_cid"],
        eager_payload_cid=case["eager_payload_cid"],
        top_k=case["top_k"],
        salt=case["salt"],
    )
