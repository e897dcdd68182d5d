"""Reasons for which a job waits, each in a market that has it."""

from datetime import timedelta
from typing import Any

import pytest
from kit import records
from kit.jobs.jobs_fixtures import ENVIRONMENT, ZEN, World
from sqlalchemy import update

from market.auctions import service as auctions
from market.domain.network import DEVNET
from market.jobs import repository as jobs_repository
from market.jobs.models import Job, Slot
from market.orders.amendments import longest_pause
from market.orders.reports.match_diagnostics import diagnose_unmatched_job
from market.platform.db.base import utc_now
from market.providers.census import census
from market.providers.models import Attestation, Provider
from market.training.leases.service import cancel_now


def explain(world: World, job_id: str) -> Any:
    with world.database.transaction() as session:
        job = session.get(Job, job_id)
        assert job is not None
        return diagnose_unmatched_job(
            session, world.settings, DEVNET, job, auctions.book_status(session, job.tier_id, job.id)
        )


def codes(found: Any) -> list[str]:
    return [finding.code.value for finding in found.findings]


def steps(found: Any) -> dict[str, tuple[int, int]]:
    return {step.code: (step.removes, step.left) for step in found.constraints}


def test_diagnostics_report_empty_market_or_no_suitable_node(world: World) -> None:
    job_id = world.job(nodes=1, requirements={"attested_only": True, "regions": ["us"]})
    assert codes(explain(world, job_id)) == ["no_nodes"]
    world.node(region="us")
    world.node(region="eu")
    found = explain(world, job_id)
    assert codes(found) == ["no_suitable_nodes"]
    assert (steps(found)["region"], steps(found)["attestation"]) == ((1, 1), (2, 0))
    assert [change.field for change in found.changes] == ["requirements.attested_only"]


def test_diagnostics_count_nodes_too_slow_for_units(world: World) -> None:
    job_id = world.job(nodes=1, requirements={"min_mflops": 4_100})
    for mflops in (None, 4_099, 4_100):
        world.node(mflops=mflops)
    found = explain(world, job_id)
    assert steps(found)["speed"] == (2, 1)
    assert [(change.field, change.sentence) for change in found.changes] == [
        ("training_config.inner_steps", "With shorter units 2 more free nodes are suitable now.")
    ]


def test_diagnostics_count_unreliable_and_unattested_nodes(world: World) -> None:
    """The database counts nodes that requirements cannot tell apart together."""
    job_id = world.job(nodes=1, requirements={"min_reliability_bps": 9_000, "attested_only": True})
    for reliability, is_attested in ((8_999, True), (9_000, False), (9_000, True), (10_000, True)):
        node = world.node()
        world.execute(update(Provider).where(Provider.address == node).values(reliability_bps=reliability))
        if is_attested:
            until = utc_now() + timedelta(hours=1)
            world.add(Attestation(address=node, measurement=node, expires_at=until, gpus=[f"gpu of {node}"] * 8))
    found = explain(world, job_id)
    assert found.nodes_total == 4
    assert (steps(found)["reliability"], steps(found)["attestation"]) == ((1, 3), (1, 2))
    assert [book.free for book in found.books] == [2]
    assert {change.field: change.sentence for change in found.changes} == {
        "requirements.min_reliability_bps": "Without it 1 more free nodes are suitable now.",
        "requirements.attested_only": "Without it 1 more free nodes are suitable now.",
    }


@pytest.mark.parametrize(
    ("job", "prices", "expected", "changed"),
    [
        ({"nodes": 3}, [1, 1], "gang_too_large", "nodes"),
        ({"nodes": 1, "max_price": 2 * ZEN}, [1], "limit_below_reserve", "max_price"),
        ({"nodes": 2, "max_price": 3 * ZEN}, [1, 9], "asks_above_limit", "nodes"),
        ({"nodes": 2}, [1, 1], "next_round", None),
    ],
)
def test_diagnostics_name_obstacles_and_remedies(
    world: World, job: dict[str, Any], prices: list[int], expected: str, changed: str | None
) -> None:
    job_id = world.job(**job)
    for price in prices:
        world.node(price=price * ZEN)
    found = explain(world, job_id)
    assert expected in codes(found)
    assert [change.field for change in found.changes] == ([changed] if changed else [])


def test_busy_nodes_are_expected_by_finished_rounds(world: World) -> None:
    world.be_patient()
    nodes = [world.node() for _ in range(2)]
    running = world.running(nodes, rounds=4)
    waiting = world.job(nodes=2)
    found = explain(world, waiting)
    assert (codes(found), found.expected_at) == (["nodes_busy"], None)  # no round is done, so nothing is measured
    now = utc_now()
    done = {"current_round": 1, "matched_at": now - timedelta(seconds=100), "round_started_at": now}
    world.execute(update(Job).where(Job.id == running).values(done))
    found = explain(world, waiting)
    assert abs(found.expected_at - now - timedelta(seconds=300)) < timedelta(seconds=1)
    assert found.books[0].suitable == 2
    assert found.books[0].free == 0
    assert codes(explain(world, running)) == ["matched", "few_verifiers"]


@pytest.mark.parametrize("runs", [True, False], ids=["running", "waiting"])
def test_paused_job_names_pause_instead_of_nodes(world: World, runs: bool) -> None:
    job_id = world.running([world.node(), world.node()]) if runs else world.job(nodes=2)
    at = utc_now().replace(microsecond=0)
    world.execute(update(Job).where(Job.id == job_id).values(paused_at=at))
    world.dispatch(job_id)
    world.execute(update(Slot).values(provider=None))
    found, job = explain(world, job_id), world.read(job_id)
    assert codes(found) == (["paused", "matched", "few_verifiers"] if runs else ["paused"])
    assert (found.constraints, found.books, found.changes, found.limit_price_wei_per_gpu_hour) == ([], [], [], None)
    sentence, ends = found.findings[0].sentence, job.wait_until + longest_pause(DEVNET) if runs else job.expires_at
    assert sentence.startswith(f"It has been paused since {at.isoformat()}. ")
    assert f" at {ends.isoformat(timespec='seconds')}" in sentence
    assert sentence.endswith(f" zoo-compute job resume {job_id}")


def test_ended_jobs_are_not_called_paused(world: World) -> None:
    waiting, ended = world.job(nodes=2), world.running([world.node()])
    past = utc_now() - timedelta(seconds=1)
    world.execute(update(Job).values(paused_at=past))
    world.execute(update(Job).where(Job.id == waiting).values(amended_wait_until=past))
    assert codes(explain(world, waiting)) == ["wait_over"]
    with world.database.transaction() as session:
        cancel_now(session, session.get_one(Job, ended), "0x00")
    assert "paused" not in codes(explain(world, ended))


def test_payer_is_warned_when_class_lacks_referees(world: World) -> None:
    world.be_patient()
    job_id = world.running([world.node()], rounds=4)
    for _ in range(2):
        assert codes(explain(world, job_id)) == ["matched", "few_verifiers"]
        _verifier(world, ENVIRONMENT)
        _verifier(world, "0x" + "cc" * 32)  # of another class, which can refute nothing
    assert codes(explain(world, job_id)) == ["matched"]


def test_payer_sees_nodes_with_differing_probes(world: World) -> None:
    nodes = [world.node(), world.node()]
    job_id = world.running(nodes)
    for node, digest in zip(nodes, ("0x" + "11" * 32, "0x" + "22" * 32), strict=True):
        world.work(node).report_probe(digest)
    found = explain(world, job_id)
    assert codes(found) == ["matched", "slots_vacant", "probes_differ", "few_verifiers"]
    assert found.findings[2].sentence.startswith("1 node computed its first steps otherwise")


def _verifier(world: World, environment: str) -> None:
    address = str(world.wallet().address)
    node = records.verifier(address, environment_class=environment, last_seen_at=utc_now())
    world.add(node, records.stake(address, 500 * ZEN))


def test_sufficient_price_is_rounded_up(world: World) -> None:
    for _ in range(5):
        world.node(price=3 * ZEN)
    rivals = [world.job(nodes=1, max_price=6 * ZEN + rank) for rank in range(5)]
    poor = world.job(nodes=1, max_price=5 * ZEN)
    found = explain(world, poor)
    assert "outbid" in codes(found)
    price = found.books[0].price_now_wei_per_gpu_hour
    step = DEVNET.tier("bronze").reserve_price_wei // 100
    assert price is not None
    assert price % step == 0
    assert 6 * ZEN < price <= 6 * ZEN + step + 5
    assert [change.field for change in found.changes] == ["max_price"]
    assert len(rivals) == 5


def test_nodes_reserved_for_another_job_are_counted(world: World) -> None:
    for price in (2, 3, 4):
        world.node(price=price * ZEN)
    first, waiting = (world.job(nodes=count, max_price=5 * ZEN) for count in (3, 2))
    until = utc_now() + timedelta(hours=1)
    held = {"reserved_until": until, "reserved_zone": "eu", "reserved_class": ENVIRONMENT}
    world.execute(update(Job).where(Job.id == first).values(held))
    assert steps(explain(world, waiting))["reserved"] == (0, 3)  # enough are free, so they are no longer withheld
    world.execute(update(Job).where(Job.id == first).values(nodes=4))
    found = explain(world, waiting)
    assert steps(found)["reserved"] == (3, 0)
    assert codes(found) == ["nodes_busy", "reserved_for_others"]
    assert (found.books[0].affordable, found.books[0].free) == (3, 0)


def test_database_groups_equal_nodes_of_tier(world: World) -> None:
    busy = [world.node(price=3 * ZEN) for _ in range(2)]
    running = world.running(busy)
    for price in (4, 2, 3, 9):
        world.node(price=price * ZEN)
    with world.database.reading() as session:
        found = census(
            session,
            world.settings,
            DEVNET.tier("bronze").id,
            utc_now(),
            reliabilities=[9_000],
            limit_wei=5 * ZEN,
            held=jobs_repository.held_slots(),
        )
    groups = sorted((group.busy, group.affordable, group.size, sorted(group.asks), group.jobs) for group in found)
    assert groups == [
        (False, False, 1, [9 * ZEN], ()),
        (False, True, 3, [2 * ZEN, 3 * ZEN, 4 * ZEN], ()),
        (True, True, 2, [], (running, running)),
    ]
