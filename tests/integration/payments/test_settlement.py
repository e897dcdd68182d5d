"""Settlement: after all decisions, once, for verified units, from a published record."""

from typing import Any

import pytest
from kit.jobs.jobs_fixtures import World
from kit.payments.cancelled_jobs import cancelled_job, decide, final_event, settle, settle_intents  # noqa: F401  (a fixture)

from market.accounts.service import Principal
from market.domain.lifecycle import IntentStatus, JobStatus
from market.domain.network import DEVNET
from market.jobs import service as jobs
from market.orders import amendments
from market.payments.settlement import service as settlement
from market.payments.settlement.record import build_record
from zoo_protocol.content.cid import cids_of_digest
from zoo_protocol.hashing import from_hex
from zoo_protocol.payments.job_record import JobRecord, PaidUnits
from zoo_protocol.payments.receipt import net_unit_price
from zoo_protocol.payments.settlement_batch import NO_ROOT, Batch, JobLine, build_batch


def published(world: World, line: Any) -> tuple[JobRecord, Batch]:
    """Return a line's record as storage serves it, and the batch that follows from it."""
    block, _ = cids_of_digest(from_hex(line["record"]))
    record = JobRecord.from_bytes(world.storage.get(block, max_bytes=2**20))
    units = PaidUnits.from_bytes(world.storage.get(record.batch_cid or "", max_bytes=2**20)).units
    rounds = int(line["fromRound"]), int(line["toRound"])
    made = JobLine(record.job_id, int(line["price"]), int(line["units"]), *rounds, line["last"], line["record"])
    pay = net_unit_price(made.price, int(record.order["unitWeight"]), 500)
    return record, build_batch([made], units, {record.job_id: pay})


def test_settlement_waits_for_undecided_unit(world: World, cancelled: str) -> None:
    settle(world)
    assert settle_intents(world) == []
    assert world.read(cancelled).status == JobStatus.CANCELLED


def test_verified_units_are_settled_once_from_published_record(world: World, cancelled: str) -> None:
    decide(world, cancelled)
    settle(world)
    settle(world)
    [intent] = settle_intents(world)
    assert world.read(cancelled).status == JobStatus.SETTLING

    claims_root, units_root, lines = intent.arguments
    [line] = lines  # type: ignore[union-attr, misc]
    verified = [unit for unit in world.units(cancelled) if unit.status == "verified"]
    assert line["jobId"] == cancelled
    assert line["price"] == str(world.read(cancelled).clearing_price_wei)
    assert (line["units"], line["last"]) == ("3", True)

    record, batch = published(world, line)
    assert (batch.claims_root, batch.units_root) == (claims_root, units_root)
    assert batch.root != NO_ROOT
    assert {claim.provider for claim in batch.claims} == {unit.provider for unit in verified}
    assert sorted(unit.status for unit in record.units) == ["rejected", "verified", "verified", "verified"]
    assert record.outcome == "cancelled_by_payer"


def test_final_settlement_ends_job(world: World, cancelled: str) -> None:
    decide(world, cancelled)
    settle(world)
    event = final_event(world, cancelled)
    world.call(settlement.on_job_settled, event)
    job = world.read(cancelled)
    assert job.status == JobStatus.SETTLED
    assert job.settlement_tx == event.tx_hash
    assert job.paid_wei is not None
    assert job.fee_wei is not None
    assert job.refund_wei is not None
    assert job.paid_wei + job.fee_wei + job.refund_wei == job.escrowed_wei
    settle(world)
    assert len(settle_intents(world)) == 1


def test_refused_settlement_keeps_job_in_settling(world: World, cancelled: str) -> None:
    decide(world, cancelled)
    settle(world)
    [intent] = settle_intents(world)
    intent.status = IntentStatus.REVERTED
    intent.reason = "simulation_reverted"
    world.call(settlement.on_settlement_intent, intent)
    assert world.read(cancelled).status == JobStatus.SETTLING


def test_job_without_paid_units_is_fully_refunded(world: World) -> None:
    job_id = world.running([world.node() for _ in range(4)])
    payer = Principal(world.read(job_id).payer, frozenset(), 1, "session")
    world.call(amendments.cancel, payer, job_id)
    settle(world)
    [intent] = settle_intents(world)
    root, _, [line] = intent.arguments  # type: ignore[misc]
    assert (root, line["units"], line["toRound"], line["last"]) == (NO_ROOT, "0", "0", True)  # type: ignore[index, call-overload]


@pytest.mark.parametrize("has_nodes", [False, True])
def test_record_without_nodes_has_no_models(world: World, has_nodes: bool) -> None:
    """They are deleted a day after the refund."""
    job_id = world.running([world.node() for _ in range(4)]) if has_nodes else world.job()
    world.dispatch(job_id)
    assert world.checkpoint(job_id, 0)
    record = world.call(lambda session: build_record(session, DEVNET, jobs.get(session, job_id), None))
    assert (len(record.checkpoints), record.final_model_cid is not None) == (has_nodes, has_nodes)
