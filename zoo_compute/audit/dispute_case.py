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
from zoo_compute.content.gateway import UNAVAILABLE, GatewayClient
from zoo_protocol.hashing import to_hex
from zoo_protocol.messages import JobOrder, UnitCommitment, struct_hash
from zoo_protocol.payments.job_record import INPUT_FILES, JobRecord, leaf_of, order_of


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
        except (Mismatch, *UNAVAILABLE):
            continue
        if (found := _case_in(record, opening.unit_id)) is not None:
            return found
    return None


def _case_in(record: JobRecord, unit_id: str) -> Case | None:
    for unit in record.units:
        commitment = unit.commitment(record.job_id)
        if commitment is not None and to_hex(leaf_of(commitment)) == unit_id:
            return Case(
                order=order_of(record.order),
                unit=commitment,
                environment=record.environment_class or "",
                spec_cid=record.spec_cid,
                **{name: getattr(unit, f"start_{name}") for name in INPUT_FILES},
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
        **{name: case[name] for name in ("spec_cid", *INPUT_FILES, "top_k", "salt")},
    )
