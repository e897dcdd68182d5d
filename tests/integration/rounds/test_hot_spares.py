"""Hot spares of running jobs: prefetch, takeover of replicas, units offered no more."""

import pytest
from kit.jobs.jobs_fixtures import World
from sqlalchemy import select, text, update

from market.chain.contracts.codec import ChainEvent
from market.domain.lifecycle import JobEvent, ProviderStatus
from market.domain.network import DEVNET, ZEN
from market.jobs.models import Job
from market.jobs.transitions import transition_job
from market.platform.db.base import utc_now
from market.providers import lifecycle as providers
from market.providers.models import Provider
from market.training.checkpoints.models import Checkpoint
from market.training.leases import expiry
from market.training.leases import service as leases
from market.training.leases.models import Lease
from market.training.leases.schemas import CompleteFollow, LeaseKind, LeaseView
from market.training.units.models import Unit


@pytest.fixture
def job_id(world: World, nodes: list[str]) -> str:
    return world.running(nodes, rounds=6)


def _follow(world: World, node: str) -> LeaseView | None:
    lease = world.pull(node, LeaseKind.FOLLOW)
    if lease is not None:
        world.complete(lease, node, CompleteFollow(token=lease.token, followed_cid=lease.task["checkpoint_cid"]))
    return lease


def _vacate(world: World, node: str) -> None:
    world.call(leases.remove_node_from_jobs, node, "a test")


def _taken(world: World, job_id: str, seconds: float) -> None:
    took = text(
        "UPDATE units SET created_at = uploaded_at - :seconds * interval '1 second' WHERE job_id = :job_id "
        "AND uploaded_at IS NOT NULL"
    )
    world.call(lambda session: session.execute(took, {"seconds": seconds, "job_id": job_id}))


def test_hot_spare_follows_checkpoints_and_takes_over_first(world: World, nodes: list[str], job_id: str) -> None:
    spares = [world.node() for _ in range(3)]
    world.dispatch(job_id)
    [first] = [spare for spare in spares if _follow(world, spare)]
    world.dispatch(job_id)
    assert not any(world.pull(spare, LeaseKind.FOLLOW) for spare in spares)
    for round_ in (1, 2):
        world.train_round(job_id, nodes)
        lease = _follow(world, first)
        assert lease is not None
        newest = select(Checkpoint.cid).where(Checkpoint.job_id == job_id, Checkpoint.round == round_)
        assert lease.task["checkpoint_cid"] == world.one(newest)
        assert not any(world.pull(spare, LeaseKind.FOLLOW) for spare in spares)
    _vacate(world, nodes[1])
    world.dispatch(job_id)
    assert world.holders(job_id) == [nodes[0], first, nodes[2], nodes[3]]
    world.deliver(first)
    [second] = [node for node in (*spares, nodes[1]) if _follow(world, node)]  # its place is taken too
    assert second != first


def test_hot_spare_stopping_prefetch_is_replaced_without_loss(world: World, job_id: str) -> None:
    spares = [world.node() for _ in range(2)]
    world.dispatch(job_id)
    [(gone, lease)] = [(one, lease) for one in spares if (lease := world.pull(one, LeaseKind.FOLLOW))]
    world.age(lease.id)
    assert expiry.expire_due(world.database, utc_now()) == 1
    world.dispatch(job_id)
    [other] = [spare for spare in spares if _follow(world, spare)]
    assert other != gone
    assert [unit.status for unit in world.units(job_id)] == ["leased"] * 4


def test_node_follows_only_one_active_job(world: World, nodes: list[str], job_id: str) -> None:
    second = world.running([world.node()], rounds=6)
    [spare] = [world.node()]
    for job in (job_id, second):
        world.dispatch(job)
    lease = _follow(world, spare)
    assert lease is not None
    assert lease.job_id == job_id
    assert world.pull(spare, LeaseKind.FOLLOW) is None
    another = world.node()
    world.dispatch(second)
    assert (lease := _follow(world, another)) is not None
    assert lease.job_id == second
    world.train_round(job_id, nodes[:4])
    open_lease = world.pulled(spare, LeaseKind.FOLLOW)
    with world.database.transaction() as session:
        job = session.get_one(Job, job_id)
        transition_job(session, job, JobEvent.FAIL, reason="a test")
        leases.stop_training(session, job, "a test")
    assert world.call(lambda session: session.get_one(Lease, open_lease.id).reason) == "a test"
    for node in (spare, another):
        assert world.pull(node, LeaseKind.FOLLOW) is None


@pytest.mark.parametrize("seconds", [50, 200])
def test_late_unit_is_replaced_by_next_round(world: World, nodes: list[str], job_id: str, seconds: float) -> None:
    """For a round of 110 s a unit of 100 s is timely after 5 s and late after 50 s."""
    world.settings = world.settings.model_copy(update={"round_grace_seconds": 1.0})
    world.train_round(job_id, nodes)
    spare = world.node()
    world.deliver_all(nodes[:3])
    _taken(world, job_id, 100.0)
    world.start_round(job_id, ago=seconds)
    _vacate(world, nodes[3])
    world.dispatch(job_id)
    assert world.holders(job_id)[3] == spare
    assert world.pull(spare) is None
    assert world.read(job_id).current_round == 1
    world.aggregate(job_id)  # nothing is waited for
    assert world.read(job_id).current_round == 2
    world.dispatch(job_id)
    world.train_round(job_id, [*nodes[:3], spare])
    assert world.read(job_id).current_round == 3


def test_unit_is_offered_when_timely_or_needed(world: World, nodes: list[str], job_id: str) -> None:
    world.settings = world.settings.model_copy(update={"round_grace_seconds": 1.0})
    world.train_round(job_id, nodes)
    spares = [world.node() for _ in range(3)]
    world.deliver_all(nodes[:2])
    _taken(world, job_id, 100.0)
    world.start_round(job_id, ago=5.0)
    _vacate(world, nodes[3])
    world.dispatch(job_id)
    [early] = [spare for spare in spares if spare in world.holders(job_id)]
    world.deliver(early)
    _taken(world, job_id, 100.0)
    world.start_round(job_id, ago=50.0)
    world.aggregate(job_id)
    assert world.read(job_id).current_round == 1  # the last of the four is out, and was offered in time

    world.dispatch(job_id)
    _vacate(world, nodes[2])
    world.dispatch(job_id)  # three are there: a quorum
    [late] = [spare for spare in spares if spare in world.holders(job_id) and spare != early]
    assert world.pull(late) is None
    [unit] = [unit for unit in world.units(job_id, round=1) if unit.provider == nodes[1]]
    world.execute(update(Unit).where(Unit.id == unit.id).values(status="rejected"))  # one of the three is found false
    _vacate(world, nodes[1])
    world.dispatch(job_id)
    assert any(world.pull(spare) for spare in spares)


@pytest.mark.parametrize("demoted", [False, True])
def test_unbonding_node_gets_no_more_units(world: World, nodes: list[str], job_id: str, demoted: bool) -> None:
    """A job can outlast unbonding; a penalty could not reach what is delivered after it."""
    leaving = nodes[0]
    if demoted:
        world.change(Provider, leaving, status=ProviderStatus.DEMOTED)
    args = {"provider": leaving, "amount": 1000 * ZEN, "unbonding": 1000 * ZEN, "releaseAt": 0}
    unstaked = ChainEvent("ProviderStaking", "UnstakeRequested", args, "0x" + "c1" * 32, 9, "0x" + "cd" * 32, 0, 0)
    world.call(lambda session: providers.on_stake_changed(DEVNET, session, unstaked))
    world.train_round(job_id, _holders_of_units(world, job_id))  # takes the units offered before
    assert leaving not in world.holders(job_id)
    assert leaving not in _holders_of_units(world, job_id, round_=1)


def test_jailed_node_gets_no_more_units_despite_stake(world: World, nodes: list[str], job_id: str) -> None:
    jailed = ChainEvent(
        "ProviderStaking", "Jailed", {"provider": nodes[0]}, "0x" + "c1" * 32, 9, "0x" + "cd" * 32, 0, 0
    )
    world.call(lambda session: providers.on_stake_changed(DEVNET, session, jailed))
    world.train_round(job_id, _holders_of_units(world, job_id))  # takes the units offered before
    assert nodes[0] not in world.holders(job_id)
    assert nodes[0] not in _holders_of_units(world, job_id, round_=1)


def _holders_of_units(world: World, job_id: str, round_: int = 0) -> list[str]:
    return [unit.provider for unit in world.units(job_id) if unit.round == round_]
