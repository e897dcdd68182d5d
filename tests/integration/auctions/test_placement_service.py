"""Requirements, reservations and the choice of nodes in the running market."""

from datetime import timedelta

from kit.jobs.auction_rounds import clear_when_due
from kit.jobs.jobs_fixtures import ZEN, World
from sqlalchemy import func, select, update

from market.accounts.service import Principal
from market.jobs.models import Job, Slot
from market.orders import amendments
from market.platform.db.base import utc_now
from market.providers.models import Attestation, Provider
from market.training.checkpoints.models import Checkpoint, Pin
from market.training.leases import expiry
from market.training.matching import book


def declare(world: World, address: str, **values: object) -> str:
    world.execute(update(Provider).where(Provider.address == address).values(**values))
    return address


def attest(world: World, address: str, *, hours: float = 1) -> str:
    with world.database.transaction() as session:
        until = utc_now() + timedelta(hours=hours)
        session.merge(Attestation(address=address, measurement="0x" + "0a" * 32, expires_at=until))
    return address


def test_attested_only_excludes_tiers_with_unattested_gpus(world: World) -> None:
    world.settings = world.settings.model_copy(update={"network": "mainnet"})
    attest(world, world.node())
    world.job(nodes=1, requirements={"attested_only": True})
    assert clear_when_due(world) == 0
    world.settings = world.settings.model_copy(update={"network": "devnet"})  # where a processor meets every tier
    assert clear_when_due(world) == 1


def cancel(world: World, job_id: str) -> None:
    world.call(amendments.cancel, Principal(world.read(job_id).payer, False, 1, "session"), job_id)


def test_job_gets_matching_nodes_and_others_get_rest(world: World) -> None:
    plain = world.node()
    big = declare(world, world.node(), hardware={"gpu_memory_gb": 80})
    safe = attest(world, declare(world, world.node(), hardware={"gpu_memory_gb": 80}))
    stale = attest(world, world.node(), hours=-1)
    secret = world.job(nodes=1, requirements={"attested_only": True, "min_gpu_memory_gb": 80})
    roomy = world.job(nodes=2, requirements={"min_gpu_memory_gb": 80})
    for _ in range(3):
        clear_when_due(world)
    placed = {job: world.holders(job) for job in (secret, roomy)}
    if placed[secret]:  # whichever part of the book had its turn first
        assert (placed[secret], placed[roomy]) == ([safe], [])
    else:
        assert sorted(map(str, placed[roomy])) == sorted([big, safe])
    anyone = world.job(nodes=2)
    clear_when_due(world)
    assert {plain, stale} >= set(world.holders(anyone)) - {big, safe}
    assert world.read(anyone).status == "running"


def test_job_requirement_of_reliability_is_met(world: World) -> None:
    good, bad = (world.node() for _ in range(2))
    declare(world, bad, reliability_bps=7_999)
    picky = [world.job(nodes=1, requirements={"min_reliability_bps": 8_000}) for _ in range(2)]
    clear_when_due(world)
    clear_when_due(world)
    assert sorted(str(holder) for job in picky for holder in world.holders(job)) == [good]  # the bad one stays free


def test_replacement_node_meets_requirements_and_stands_apart(world: World) -> None:
    first, second = (
        attest(world, declare(world, world.node(), site=site, asn=1, owner=site, round_trip_ms=10)) for site in "ab"
    )
    job_id = world.running([first, second], requirements={"attested_only": True})
    declare(world, world.node(price=ZEN // 2), site="z", asn=9, owner="z", round_trip_ms=1)  # better, but not attested
    attest(world, declare(world, world.node(), site="b", asn=1, owner="b", round_trip_ms=10))  # next to the second
    apart = attest(world, declare(world, world.node(), site="c", asn=2, owner="c", round_trip_ms=10))
    lease = world.pulled(first)
    world.age(lease.id)
    assert expiry.expire_due(world.database, utc_now()) == 1
    world.dispatch(job_id)
    assert world.holders(job_id) == [apart, second]


def test_flexible_replica_leaves_scarce_node_to_waiting_job(world: World) -> None:
    first = world.node()
    job_id = world.running([first])
    scarce, plain = attest(world, world.node()), world.node()  # the scarce one offered first
    waiting = world.job(nodes=1, requirements={"attested_only": True})
    lease = world.pulled(first)
    world.age(lease.id)
    assert expiry.expire_due(world.database, utc_now()) == 1
    world.dispatch(job_id)
    assert world.holders(job_id) == [plain]
    clear_when_due(world)
    assert world.holders(waiting) == [scarce]


def test_unattested_node_is_replaced_and_not_placed(world: World) -> None:
    lapsed = attest(world, world.node())
    job_id = world.running([lapsed], requirements={"attested_only": True}, rounds=3)
    spare = attest(world, world.node())
    attest(world, lapsed, hours=-1)
    world.dispatch(job_id)
    assert world.holders(job_id) == [lapsed]  # its unit is out
    world.deliver(lapsed)
    world.close_round(job_id)
    assert world.holders(job_id) == [spare]
    late = world.job(nodes=1, requirements={"attested_only": True})
    assert not world.call(book.assign, world.settings, late, 5 * ZEN // 2, None, [lapsed], "0x")


def test_nodes_sold_together_go_to_jobs_holding_data(world: World) -> None:
    nodes = [declare(world, world.node(), site=str(i), asn=i + 1, owner=str(i), round_trip_ms=1) for i in range(4)]
    jobs = [world.job(nodes=2) for _ in range(2)]
    with world.database.transaction() as session:  # the first one's checkpoint is on the last two nodes
        kept = Checkpoint(job_id=jobs[0], round=0, cid="c", model_cid="m", file_cids=[], validation_loss="1")
        session.add(kept)
        session.flush()
        session.add_all(Pin(checkpoint_id=kept.id, provider=node, nonce="0x", proof="0x") for node in nodes[2:])
    assert clear_when_due(world) == 2
    assert sorted(map(str, world.holders(jobs[0]))) == sorted(nodes[2:])
    assert sorted(map(str, world.holders(jobs[1]))) == sorted(nodes[:2])


def churn(world: World, singles: list[str], steps: int, gang: str) -> int | None:
    for step in range(steps):
        running = [job for job in singles if world.read(job).status == "running"]
        if running:
            cancel(world, running[0])
        singles.append(world.job(nodes=1))
        clear_when_due(world)
        if world.read(gang).status == "running":
            return step
    return None


def test_gang_is_not_starved_by_smaller_jobs(world: World) -> None:
    for _ in range(3):
        world.node()
    singles = [world.job(nodes=1) for _ in range(4)]
    clear_when_due(world)
    gang = world.job(nodes=3)
    # Blocks count whole seconds; it came before the others to come.
    world.execute(update(Job).where(Job.id == gang).values(funded_at=utc_now() - timedelta(minutes=1)))
    world.settings = world.settings.model_copy(update={"reservation_after_seconds": 3600.0})
    assert churn(world, singles, 5, gang) is None  # it would wait for ever
    world.settings = world.settings.model_copy(update={"reservation_after_seconds": 0.001})
    for job in [job for job in singles if world.read(job).status == "matching"]:
        cancel(world, job)
    assert churn(world, singles, 4, gang) is not None
    assert world.read(gang).reserved_until is not None


def test_useless_reservation_ends_and_frees_others(world: World) -> None:
    nodes = [world.node() for _ in range(2)]
    busy = world.job(nodes=1)
    clear_when_due(world)
    gang = world.job(nodes=2)
    world.settings = world.settings.model_copy(update={"reservation_after_seconds": 0.001})
    assert clear_when_due(world) == 0
    late = world.job(nodes=1)
    assert clear_when_due(world) == 0  # the free node is held back
    world.execute(update(Job).where(Job.id == gang).values(reserved_until=utc_now()))
    assert clear_when_due(world) == 1
    assert world.read(late).status == "running"
    free = world.scalar(select(func.count()).select_from(Slot))
    assert (free, len(nodes), world.read(busy).status) == (2, 2, "running")


def test_unfillable_jobs_do_not_alternate_reservations(world: World) -> None:
    for _ in range(2):
        world.node()
    busy = world.job(nodes=1)
    clear_when_due(world)
    gangs = [world.job(nodes=2) for _ in range(2)]
    world.execute(update(Job).where(Job.id.in_(gangs)).values(funded_at=utc_now() - timedelta(minutes=1)))
    late = world.job(nodes=1)
    world.settings = world.settings.model_copy(update={"reservation_after_seconds": 0.001})
    reserved = []
    for _ in range(4):  # each time a reservation has led to nothing and is over
        assert world.read(late).status == "matching"
        clear_when_due(world)
        reserved = [job for job in (*gangs, late) if world.read(job).reserved_until is not None]
        world.execute(update(Job).where(Job.reserved_until.is_not(None)).values(reserved_until=utc_now()))
        if world.read(late).status == "running":
            break
    assert world.read(late).status == "running"
    assert (len(reserved), world.read(busy).status) == (1, "running")
    cancel(world, late)
    past = utc_now() - timedelta(days=1)
    world.execute(update(Job).where(Job.reserved_until.is_not(None)).values(reserved_until=past))
    clear_when_due(world)
    assert all(world.read(job).reserved_until is not None for job in gangs)  # now it is the other's turn


def test_job_below_lowest_price_gets_no_reservation(world: World) -> None:
    for _ in range(2):
        world.node()
    world.job(nodes=1)
    clear_when_due(world)
    cheap = world.job(nodes=2, max_price=2 * ZEN)  # both nodes ask less, but the reserve is 2.5
    world.settings = world.settings.model_copy(update={"reservation_after_seconds": 0.001})
    clear_when_due(world)
    late = world.job(nodes=1)
    clear_when_due(world)
    assert world.read(late).status == "running"
    assert world.read(cheap).reserved_until is None
