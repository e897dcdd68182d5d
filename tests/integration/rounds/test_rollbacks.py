"""Training that goes wrong: a spike, a divergence; rolled back, shown, and without fault."""

import math
from dataclasses import replace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from kit.api.clients import Cli, accepted, refusal, sign_in
from kit.jobs.jobs_fixtures import FakeChain, World
from kit.jobs.rollbacks import (
    checkpoints,
    deliver_spike,
    end_round,
    manifest,
    rollbacks,
    spiked_job,
    unoffered_spike,
    why,
)
from sqlalchemy import func, select

from market.chain.views import ChainViews
from market.domain.lifecycle import JobStatus
from market.platform.events.service import announce
from market.providers.models import ProviderEpoch
from market.training.aggregation import service as aggregation
from market.training.aggregation.rollback import best_round, known_losses
from market.training.checkpoints.service import kept_checkpoints, loss_in
from market.training.evaluation import service as evaluation
from market.training.leases import service as leases
from market.webhooks import service as webhooks
from training_gym.aggregate.outer_step import initial_outer_state, save_outer_state
from training_gym.exchange.deadlines import quorum
from training_gym.model.layout import initial_parameters
from training_gym.units.checkpoint import CheckpointManifest, save_state
from zoo_protocol.payments.job_record import MAX_ROLLBACKS, AggregationRecord
from zoo_protocol.verification.training_faults import LOSS_NOT_FINITE, LOSS_SPIKE, KnownLoss, has_diverged, loss_fault


def test_loss_spike_is_rolled_back_to_best_checkpoint(world: World, nodes: list[str]) -> None:
    job_id = spiked_job(world, nodes, rounds=5)
    losses = [loss_in(one).known() for one in checkpoints(world, job_id)]
    best = losses.index(min(losses))
    assert loss_fault(losses) == LOSS_SPIKE
    work = world.deliver_all(nodes)
    end_round(world, job_id)

    made = checkpoints(world, job_id)[3]
    repeated, after = manifest(world, checkpoints(world, job_id)[best]), manifest(world, made)
    assert (made.rolled_back_to, made.model_cid, after.update, after.slot_states) == (best, repeated.model, None, {})
    assert made.validation_loss == checkpoints(world, job_id)[best].validation_loss
    assert made.validation_error == checkpoints(world, job_id)[best].validation_error is not None
    record = AggregationRecord.from_bytes(world.storage.get(after.aggregation or "", max_bytes=2**20))
    assert record.rollback_reason == "loss_spike"
    assert (record.rolled_back_to, {one.verdict for one in record.payloads}) == (best, {"rolled_back"})
    assert rollbacks(world, job_id) == [{"round": 3, "to": best, "reason": "loss_spike"}]
    [shown] = why(world, job_id, "rolled_back")
    assert shown.startswith(f"Rollback 1 of at most 2: round 3 repeats the model after round {best}, because the valid")
    units = world.units(job_id, round=2)
    assert {(unit.included, unit.exclusion_reason) for unit in units} == {(False, "rolled_back")}
    assert 3 not in {unit.slot_state_round for unit in world.units(job_id)}  # no manifest names their states
    assert len(units) == len(work)
    with world.database.transaction() as session:
        assert best in {one.round for one in kept_checkpoints(session, world.read(job_id))}

    again = world.deliver_all(nodes)
    assert {one.lease.task["slot_state_cid"] for one in again} == {None}
    end_round(world, job_id)
    assert all(unit.included for unit in world.units(job_id, round=3))


def test_rollback_is_sent_to_payer_by_webhook(api: httpx.Client, app: FastAPI, world: World, nodes: list[str]) -> None:
    job_id = spiked_job(world, nodes, rounds=5)
    payer = sign_in(api, world.wallets[world.read(job_id).payer])
    asked = {"url": "https://93.184.215.14/zoo", "events": ["rollback"]}
    made = accepted(payer.post("/v1/webhooks", json=asked), 201)
    world.deliver_all(nodes)
    end_round(world, job_id)
    announce(world.database, app.state.services.redis, webhooks.fan_out)
    [sent] = accepted(payer.get(f"/v1/webhooks/{made['id']}/deliveries"))["items"]
    [rollback] = rollbacks(world, job_id)
    assert sent["payload"]["type"] == "job.rollback"
    assert sent["payload"]["data"].items() >= {"job_id": job_id, **rollback}.items()


def test_metrics_mark_rolled_back_rounds(cli: Cli, world: World, nodes: list[str]) -> None:
    job_id = spiked_job(world, nodes, rounds=5)
    world.deliver_all(nodes)
    end_round(world, job_id)
    cli.be(bytes(world.wallets[world.read(job_id).payer].key))
    reasons = [point["rollback_reason"] for point in cli.json("job", "metrics")]
    assert reasons == [None, None, None, "loss_spike"]
    rows = cli("job", "metrics").splitlines()
    assert [row.rpartition("\t")[2] for row in rows] == ["rollback_reason", "-", "-", "-", "loss_spike"]


def job_ahead_of_rollback(world: World, nodes: list[str]) -> str:
    """Return a job due for a rollback of its third round; units of the fourth have begun."""
    world.spec = replace(world.spec, training=replace(world.spec.training, round_delay=1, rounds=6))
    job_id = world.running(nodes, document=world.spec.to_dict())
    world.deliver_and_go_on(job_id, *nodes)
    end_round(world, job_id)
    deliver_spike(world, nodes)
    world.dispatch(job_id)
    end_round(world, job_id)
    world.deliver_and_go_on(job_id, *nodes)
    assert {unit.start_checkpoint_cid for unit in world.units(job_id, round=3)} == {world.checkpoint(job_id, 2)}
    return job_id


def test_units_begun_before_rollback_are_excluded(world: World, nodes: list[str]) -> None:
    job_id = job_ahead_of_rollback(world, nodes)
    world.deliver(nodes[0])
    committed = world.commit_and_go_on(job_id, nodes[1])
    end_round(world, job_id)
    [rollback] = rollbacks(world, job_id)
    assert (rollback["round"], rollback["reason"]) == (3, "loss_spike")

    committed.complete()
    world.deliver_all(nodes[2:])
    world.dispatch(job_id)
    units = world.units(job_id, round=3)
    excluded = "uploaded", False, "rolled_back"
    assert [(one.status, one.included, one.exclusion_reason) for one in units] == [excluded] * 4
    ahead = world.units(job_id, round=4)
    assert {one.start_checkpoint_cid for one in ahead} == {world.checkpoint(job_id, 3)}
    assert {(one.start_slot_state_cid, one.start_eager_payload_cid) for one in ahead} == {(None, None)}
    end_round(world, job_id)
    best, *repeated = (world.manifest(job_id, round_) for round_ in (rollback["to"], 3, 4))
    assert [one.model for one in repeated] == [best.model] * 2
    record = AggregationRecord.from_bytes(world.storage.get(repeated[1].aggregation or "", max_bytes=2**20))
    assert (record.rolled_back_to, record.payloads) == (None, [])

    world.deliver_and_go_on(job_id, *nodes)
    assert None not in {one.start_eager_payload_cid for one in world.units(job_id, round=5)}
    end_round(world, job_id)
    assert {one.included for one in world.units(job_id, round=4)} == {True}
    world.verify_uploaded(job_id)
    assert {one.status for one in world.units(job_id, round=3)} == {"verified"}


def test_few_payloads_after_rollback_join_next_round(world: World, nodes: list[str]) -> None:
    job_id = job_ahead_of_rollback(world, nodes)
    lost = world.work(nodes[0])
    world.call(leases.fail, lost.lease.id, nodes[0], lost.lease.token, "out_of_memory", "")
    world.deliver_all(nodes[1:])
    end_round(world, job_id)
    [rollback] = rollbacks(world, job_id)
    begun = world.attempt(job_id, 3, 0)
    assert begun.start_checkpoint_cid == world.checkpoint(job_id, 3)
    world.deliver_and_go_on(job_id, nodes[0])
    end_round(world, job_id)
    assert world.manifest(job_id, 4).model == world.manifest(job_id, rollback["to"]).model
    assert [unit.included for unit in world.units(job_id, round=3, status="uploaded")] == [None, False, False, False]

    world.deliver_and_go_on(job_id, *nodes)
    end_round(world, job_id)
    assert world.attempt(job_id, 3, 0).included
    assert {unit.included for unit in world.units(job_id, round=4)} == {True}


def test_late_unit_from_before_rollback_is_excluded(world: World, nodes: list[str]) -> None:
    job_id = world.running(nodes, rounds=5)
    late = world.work(nodes[3])
    late.commit()
    world.diverge(nodes[:3])
    end_round(world, job_id)
    assert rollbacks(world, job_id) == [{"round": 1, "to": 0, "reason": "diverged"}]
    late.complete()
    world.dispatch(job_id)
    [unit] = world.units(job_id, round=0, slot=3, status="uploaded")
    assert (unit.included, unit.exclusion_reason) == (False, "rolled_back")
    assert world.attempt(job_id, 1, 3).start_slot_state_cid is None


def test_diverged_quorum_is_rolled_back_without_fault(world: World, nodes: list[str]) -> None:
    job_id = world.running(nodes, rounds=5)
    for round_ in range(3):
        world.diverge(nodes[:3])
        world.aggregate(job_id)
        if round_ < 2:
            assert rollbacks(world, job_id)[-1] == {"round": round_ + 1, "to": 0, "reason": "diverged"}
            world.dispatch(job_id)
    job = world.read(job_id)
    assert (job.status, job.reason) == (JobStatus.FAILED, "diverged")
    [shown] = why(world, job_id, "diverged")
    assert "Lower the learning rates or check the data." in shown
    losses = [float(one.validation_loss or 0) for one in checkpoints(world, job_id)]
    assert f"lowest validation loss was {losses[0]:.3f} after round 0, the last {losses[2]:.3f} after round 2." in shown
    assert world.all(select(func.coalesce(func.sum(ProviderEpoch.lost), 0))) == [0]


@pytest.mark.parametrize(("earlier", "step"), [(0, "_repeat_checkpoint"), (MAX_ROLLBACKS, "_may_roll_back")])
def test_unit_committed_during_rollback_prevents_it(
    world: World, nodes: list[str], monkeypatch: pytest.MonkeyPatch, earlier: int, step: str
) -> None:
    job_id = world.running(nodes, rounds=5)
    for _ in range(earlier):
        world.diverge(nodes[:3])
        world.aggregate(job_id)
        world.dispatch(job_id)
    world.diverge(nodes[:3])
    spare = world.node()
    world.dispatch(job_id)
    again, original = world.work(spare), getattr(aggregation, step)

    def commit_meanwhile(*arguments: Any) -> Any:
        again.commit()
        return original(*arguments)

    monkeypatch.setattr(aggregation, step, commit_meanwhile)
    world.aggregate(job_id)
    world.aggregate(job_id)
    job = world.read(job_id)
    assert (job.status, job.current_round, len(rollbacks(world, job_id))) == ("running", earlier, earlier)


def test_diverging_replica_of_two_is_rolled_back(world: World, nodes: list[str]) -> None:
    job_id = world.running(nodes[:2], rounds=3)
    world.deliver(nodes[0])
    for node in nodes[1:]:  # the other nodes try the same unit
        world.aggregate(job_id)
        assert not rollbacks(world, job_id)
        world.diverge([node])
        world.dispatch(job_id)
    end_round(world, job_id)
    assert rollbacks(world, job_id) == [{"round": 1, "to": 0, "reason": "diverged"}]


def test_single_replica_is_rolled_back_after_three_claims(world: World, nodes: list[str]) -> None:
    job_id = world.running(nodes[:1], rounds=3)
    for _ in range(3):
        world.aggregate(job_id)
        assert not rollbacks(world, job_id)
        [node] = world.holders(job_id)
        world.diverge([node or ""])
        world.dispatch(job_id)
    end_round(world, job_id)
    assert rollbacks(world, job_id) == [{"round": 1, "to": 0, "reason": "diverged"}]


@pytest.mark.parametrize("down_top_k", [0, 4096])
def test_step_beyond_float32_is_rolled_back(world: World, nodes: list[str], down_top_k: int) -> None:
    """The payer's own start checkpoint has huge outer momentum."""
    training = replace(world.spec.training, rounds=4, outer_momentum=0.99, outer_learning_rate=2.0)
    spec = replace(world.spec, training=replace(training, down_top_k=down_top_k))
    state = initial_outer_state(spec)
    files = save_state(initial_parameters(spec)), save_outer_state(spec, replace(state, momentum=state.momentum + 3e38))
    model, outer_state = (world.storage.put(file, max_bytes=2**24).cid for file in files)
    start = CheckpointManifest("0x" + "ff" * 32, 1, None, model, outer_state, None, None, {}, 0, spec.spec_hash())
    spec = replace(spec, start_checkpoint=world.storage.put(start.to_bytes(), max_bytes=2**20).cid, start_round=1)
    job_id = world.running(nodes, document=spec.to_dict())
    for _ in range(MAX_ROLLBACKS):
        world.deliver_all(nodes)
        end_round(world, job_id)
    assert [one["reason"] for one in rollbacks(world, job_id)] == ["step_not_finite"] * MAX_ROLLBACKS
    assert len({one.model_cid for one in checkpoints(world, job_id)}) == 1


def test_spoiled_job_is_extended_from_best_checkpoint(
    app: FastAPI, api: httpx.Client, world: World, nodes: list[str]
) -> None:
    app.state.services = app.state.services.with_part(ChainViews, FakeChain())
    job_id = unoffered_spike(world, nodes, rounds=9)
    evaluation.validate(world.database, world.settings, world.storage, job_id)
    payer = sign_in(api, world.wallets[world.read(job_id).payer])

    def extended() -> tuple[str, int, bool]:
        made = payer.post(f"/v1/jobs/{job_id}/extend", json={}).json()
        data, advice = made["request"]["data_config"], {point["code"] for point in made["quote"]["advice"]}
        return data["start_checkpoint"], data["start_round"], "diverged_rates" in advice

    best = best_round(known_losses(checkpoints(world, job_id)))
    payer.post(f"/v1/jobs/{job_id}/pause")
    world.dispatch(job_id)
    assert extended() == (world.checkpoint(job_id, best), 2, False)
    payer.post(f"/v1/jobs/{job_id}/resume")
    world.dispatch(job_id)
    for _ in range(2):
        world.deliver_all(nodes)
        end_round(world, job_id)
        deliver_spike(world, nodes)
        end_round(world, job_id)
    world.deliver_all(nodes)
    world.aggregate(job_id)
    job = world.read(job_id)
    assert (job.status, job.reason, job.current_round) == (JobStatus.FAILED, "diverged", 6)
    assert extended() == (world.checkpoint(job_id, best), 6, True)


def test_job_cancelled_before_rollback_is_extended_from_best(
    app: FastAPI, api: httpx.Client, world: World, nodes: list[str]
) -> None:
    app.state.services = app.state.services.with_part(ChainViews, FakeChain())
    job_id = world.running(nodes, rounds=5)
    world.train_round(job_id, nodes)
    world.diverge(nodes[:3])
    payer = sign_in(api, world.wallets[world.read(job_id).payer])
    payer.post(f"/v1/jobs/{job_id}/cancel")
    assert [one.validation_loss is None for one in checkpoints(world, job_id)] == [False, True]
    data = payer.post(f"/v1/jobs/{job_id}/extend", json={}).json()["request"]["data_config"]
    assert (data["start_checkpoint"], data["start_round"]) == (world.checkpoint(job_id, 0), 1)


def test_paused_job_is_extended_from_best_checkpoint(
    app: FastAPI, api: httpx.Client, world: World, nodes: list[str]
) -> None:
    """Its units evaluate, but none of the next round begins."""
    app.state.services = app.state.services.with_part(ChainViews, FakeChain())
    world.spec = replace(world.spec, validation_samples=16)
    job_id = unoffered_spike(world, nodes, rounds=9)
    payer = sign_in(api, world.wallets[world.read(job_id).payer])
    payer.post(f"/v1/jobs/{job_id}/pause")
    refused = refusal(payer.post(f"/v1/jobs/{job_id}/extend", json={}), 409, "nothing-to-continue")
    assert refused["detail"] == "Its nodes have begun a round, whose data a continuation would read and pay again."
    world.dispatch(job_id)
    refused = refusal(payer.post(f"/v1/jobs/{job_id}/extend", json={}), 409, "nothing-to-continue")
    assert refused["detail"] == "The loss after round 2 is not known yet, so the model may be spoiled."
    evaluation.validate(world.database, world.settings, world.storage, job_id)
    data = payer.post(f"/v1/jobs/{job_id}/extend", json={}).json()["request"]["data_config"]
    assert data["start_checkpoint"] == world.checkpoint(job_id, 1)


@pytest.mark.parametrize("count", [1, 2])
def test_diverging_long_units_end_job_as_diverged(world: World, count: int) -> None:
    """Three tries would take longer than a round may."""
    own = [world.node() for _ in range(count)]
    job_id = world.running(own, rounds=6)
    for tries in range(1, 4):
        world.diverge([own[-1]])
        world.start_round(job_id, ago=0.4 * tries * world.settings.round_timeout_seconds)
        world.dispatch(job_id)
        if world.read(job_id).status != JobStatus.RUNNING:
            break
    assert (world.read(job_id).status, world.read(job_id).reason) == (JobStatus.FAILED, "diverged")


@pytest.mark.parametrize(
    ("given_up", "nodes", "expected"),
    [
        ({0: 1, 1: 1, 2: 1}, 4, True),
        ({0: 1, 1: 1}, 4, False),
        ({0: 3, 1: 2}, 4, False),
        ({0: 3, 1: 3}, 4, True),
        ({0: 2}, 2, False),
        ({0: 3}, 2, True),
        ({0: 3}, 3, False),
        ({}, 1, False),
        ({0: 1}, 1, False),
        ({0: 3}, 1, True),
    ],
)
def test_round_has_diverged_without_a_quorum(given_up: dict[int, int], nodes: int, expected: bool) -> None:
    assert has_diverged(given_up, nodes, quorum(nodes)) == expected


@pytest.mark.parametrize(
    ("losses", "fault"),
    [
        ([], None),
        ([5.5], None),
        ([5.5, 3.0, 3.6], None),
        ([5.5, 3.0, 3.7], LOSS_SPIKE),
        ([3.0, 2.9, 3.4], None),
        ([3.0, 2.9, 3.5], LOSS_SPIKE),
        ([5.5, 7.0], LOSS_SPIKE),
        ([5.5, float("nan")], LOSS_NOT_FINITE),
        ([5.5, 999_999.0], LOSS_NOT_FINITE),
    ],
)
def test_loss_fault_has_its_code(losses: list[float], fault: str | None) -> None:
    assert loss_fault([KnownLoss(loss) for loss in losses]) == fault


@pytest.mark.parametrize(
    ("first", "newest", "fault"),
    [
        (KnownLoss(2.17, 0.01), KnownLoss(3.02, 0.5), None),
        (KnownLoss(2.17, 0.01), KnownLoss(3.02, 0.1), LOSS_SPIKE),
        (KnownLoss(2.17, 0.3), KnownLoss(3.02, 0.1), None),
        (KnownLoss(2.17, 0.3), KnownLoss(512.0, 510.0), LOSS_SPIKE),
    ],
    ids=["few_samples", "many_samples", "few_before", "one_not_finite"],
)
def test_spike_exceeds_errors_of_losses(first: KnownLoss, newest: KnownLoss, fault: str | None) -> None:
    assert loss_fault([first, newest]) == fault


def test_best_round_is_first_of_lowest_loss() -> None:
    assert best_round({0: KnownLoss(5.0), 2: KnownLoss(3.0, 0.2), 3: KnownLoss(3.0, 0.1), 4: KnownLoss(9.0)}) == 2
    assert best_round({}) == best_round({2: KnownLoss(math.inf)}) == 0
