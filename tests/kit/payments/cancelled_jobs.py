"""A cancelled job with delivered units, and the steps of its settlement without a chain."""

import pytest
from sqlalchemy import select

from kit.jobs.jobs_fixtures import World
from market.accounts.service import Principal
from market.chain.contracts.codec import ChainEvent
from market.chain.models import TxIntent
from market.domain.money import split, unit_price
from market.domain.network import DEVNET
from market.jobs import repository as jobs_repository
from market.orders import amendments
from market.payments.settlement import service as settlement
from market.training.leases import service as leases
from market.training.units import service as units


@pytest.fixture(name="cancelled")
def cancelled_job(world: World) -> str:
    nodes = [world.node() for _ in range(4)]
    job_id = world.delivered_job(nodes)
    payer = Principal(world.read(job_id).payer, frozenset(), 1, "session")
    world.call(amendments.cancel, payer, job_id)
    return job_id


def cancel_now(world: World, job_id: str) -> None:
    """Cancel the job at once, without an account that asks for it."""
    world.call(lambda session: leases.cancel_now(session, jobs_repository.lock_job(session, job_id), "a test"))


def settle(world: World) -> None:
    settlement.settle(world.database, world.storage, DEVNET, world.settings)


def decide(world: World, job_id: str) -> None:
    for index, unit in enumerate(world.units(job_id)):
        world.call(units.mark_checking, unit.id, 2_500)
        if index == 0:
            world.call(units.reject_unit, unit.id, "incorrect_computation")
        else:
            world.call(units.pass_unit, unit.id)


def settle_intents(world: World) -> list[TxIntent]:
    return world.all(select(TxIntent).where(TxIntent.kind == "settle").order_by(TxIntent.id))


def final_event(world: World, job_id: str) -> ChainEvent:
    [[_, _, [line]]] = [intent.arguments for intent in settle_intents(world)]
    job = world.read(job_id)
    assert job.clearing_price_wei is not None
    parts = split(job.escrowed_wei, unit_price(job.clearing_price_wei, job.unit_weight_us), 3, 500)
    numbers = {name: int(line[name]) for name in ("units", "fromRound", "toRound")}  # type: ignore[index, call-overload]
    made = {"jobId": job_id, "batchId": 7, "last": True, "record": line["record"]} | numbers  # type: ignore[index, call-overload]
    args = made | {"paid": parts.paid, "fee": parts.fee, "refund": parts.refund}
    return ChainEvent("JobEscrow", "JobSettled", args, "0x" + "ab" * 32, 9, "0x" + "cd" * 32, 0, 1_900_000_000)
