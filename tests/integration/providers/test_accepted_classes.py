"""Nodes of a retired environment class: no work, no replays, and a notice."""

from dataclasses import replace
from datetime import timedelta

import httpx
from fastapi import FastAPI
from kit.api.clients import sign_in
from kit.api.provider_calls import CLASS_A, beat, register
from kit.jobs.auction_rounds import Blocks, clear_when_due, thick
from kit.jobs.jobs_fixtures import ENVIRONMENT, World
from kit.verification.verification_fixtures import VerificationWorld, verification_world  # noqa: F401  (fixture)
from sqlalchemy import update

from market.auctions import clearing
from market.auctions import service as auctions
from market.domain.network import DEVNET
from market.orders.reports.match_diagnostics import diagnose_unmatched_job
from market.platform.db.base import utc_now
from market.platform.http.services import Services
from market.providers import service as providers
from market.training.leases.schemas import LeaseKind
from market.verification.samples.models import Comparison, Sample

OTHER = "0x" + "0f" * 32


def accept(world: World, *classes: str) -> None:
    world.settings = world.settings.model_copy(update={"environment_classes": ",".join(classes) or None})


def test_node_is_matched_again_when_class_is_restored(world: World) -> None:
    node = world.node(environment=OTHER)
    jobs = [world.job(nodes=1), world.job(nodes=1)]
    accept(world, ENVIRONMENT)
    assert clear_when_due(world) == 0
    with world.database.transaction() as session:
        job = world.read(jobs[0])
        found = diagnose_unmatched_job(
            session, world.settings, DEVNET, job, auctions.book_status(session, job.tier_id, job.id)
        )
    assert next((step.removes, step.left) for step in found.constraints if step.code == "not_active") == (1, 0)
    assert "environment class" in found.constraints[0].sentence
    assert clear_when_due(world) == 0
    accept(world, OTHER, ENVIRONMENT)
    assert clear_when_due(world) == 1
    assert world.call(providers.working_among, world.settings, [node]) == {node}


def test_without_names_any_class_is_matched(world: World) -> None:
    world.node(environment=OTHER)
    world.job(nodes=1)
    accept(world)
    assert clear_when_due(world) == 1


def test_closed_round_places_no_node_of_dropped_class(world: World) -> None:
    jobs, _ = thick(world)
    blocks = Blocks()
    assert clear_when_due(world) == 0  # the random tie-break decides
    accept(world, OTHER)
    clearing.draw_due(world.database, world.settings, DEVNET, blocks)
    blocks.head += 10
    assert clearing.draw_due(world.database, world.settings, DEVNET, blocks) == 0
    assert [world.read(job_id).status for job_id in jobs] == ["matching"] * 5


def test_hot_spare_of_dropped_class_joins_no_job(world: World, nodes: list[str]) -> None:
    job_id = world.running(nodes, rounds=6)
    spare = world.node()
    accept(world, OTHER)
    world.dispatch(job_id)
    assert world.pull(spare, LeaseKind.FOLLOW) is None
    accept(world, ENVIRONMENT)
    world.dispatch(job_id)
    assert world.pull(spare, LeaseKind.FOLLOW) is not None


def live_of(world: World, name: str) -> int:
    return world.call(providers.verifiers_of_class, world.settings, name, "", utc_now())


def test_verifier_of_dropped_class_is_not_selected(world: VerificationWorld) -> None:
    verifiers = [world.verifier() for _ in range(3)]
    accept(world, OTHER)
    unit_id = world.drawn_unit(world.node())
    assert world.replays() == []
    assert world.unit(unit_id).status == "checking"  # and so it is not paid
    assert live_of(world, ENVIRONMENT) == 0  # reported to the provider
    accept(world, ENVIRONMENT)
    world.advance()
    assert world.asked(verifiers) in verifiers
    assert live_of(world, ENVIRONMENT) == 3


def test_dropped_class_verifier_gets_no_cross_class_check(world: VerificationWorld) -> None:
    dropped = world.verifier(environment="0x" + "1f" * 32)
    accept(world, ENVIRONMENT, OTHER)
    world.drawn_unit(world.node())
    world.execute(update(Sample).values(reveal_deadline_at=utc_now() - timedelta(seconds=1)))
    world.advance()
    assert world.replays() == []
    named = world.verifier(environment=OTHER)
    world.advance()
    assert world.asked([dropped, named]) == named
    assert world.call(lambda session: session.query(Comparison).count()) == 1


def test_node_of_dropped_class_receives_reason(api: httpx.Client, services: Services, app: FastAPI) -> None:
    node = sign_in(api)
    assert register(node).status_code == 201
    before = beat(node, services.domain)
    settings = services.settings.model_copy(update={"environment_classes": OTHER})
    app.state.services = replace(services, settings=settings)
    after = beat(node, services.domain)
    assert after["counted"]  # its uptime counts as ever
    assert (after["status"], after["reason"]) == (before["status"], "environment_not_accepted")
    assert api.get(f"/v1/providers/{node.address}").json()["reason"] == "environment_not_accepted"
    app.state.services = replace(services, settings=settings.model_copy(update={"environment_classes": CLASS_A}))
    assert beat(node, services.domain)["reason"] == before["reason"]
