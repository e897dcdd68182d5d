"""A job's rounds: leases, commitments, results, lost nodes, aggregation, pins."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from kit.errors import raising
from kit.jobs.jobs_fixtures import ENVIRONMENT, ZEN, World, at_once
from sqlalchemy import select

from market.domain.lifecycle import JobStatus, UnitStatus
from market.orders.reports.progress import progress_of
from market.platform.db.base import utc_now
from market.platform.events.models import JobEventRow
from market.platform.storage.errors import StorageUnavailable
from market.training.aggregation import final_model
from market.training.aggregation import service as aggregation
from market.training.checkpoints import repository as checkpoints_repository
from market.training.checkpoints.models import Checkpoint
from market.training.evaluation import service as evaluation
from market.training.leases import expiry, verification_hooks
from market.training.leases import service as leases
from market.training.leases.errors import LeaseLost, ResultRefused
from market.training.leases.models import Lease
from market.training.leases.schemas import CompletePin, LeaseKind
from market.training.matching import book
from market.training.replication import pins
from market.training.rounds import service as rounds
from market.training.units import service as units
from market.training.units.models import Unit
from training_gym.compress.payload_format import encode
from training_gym.units.checkpoint import CheckpointManifest
from zoo_protocol.hashing import sha256, to_hex


def test_trained_job_waits_for_decisions_and_pins(world: World, nodes: list[str]) -> None:
    job_id = world.running(nodes)
    for round_ in range(2):
        world.deliver_all(nodes)
        world.wakes.seen.clear()
        world.dispatch(job_id)
        assert ("jobs.aggregate", (job_id,)) in world.wakes.seen
        world.aggregate(job_id)
        assert world.read(job_id).current_round == round_ + 1
        world.dispatch(job_id)
    job = world.read(job_id)
    assert job.status == JobStatus.VERIFYING
    assert job.first_step_at is not None
    assert job.trained_at is not None
    assert world.call(leases.busy_providers) == set()
    assert [unit.included for unit in world.units(job_id)] == [True] * 8
    assert world.units(job_id, round=1, slot=2)[0].start_slot_state_cid == (
        world.units(job_id, round=0, slot=2)[0].slot_state_cid
    )

    rows = world.all(select(Checkpoint).order_by(Checkpoint.round))
    manifests = [CheckpointManifest.from_bytes(world.storage.get(row.cid, max_bytes=2**20)) for row in rows]
    assert [manifest.parent for manifest in manifests] == [None, rows[0].cid, rows[1].cid]
    assert len({row.model_cid for row in rows}) == 3

    world.verify_uploaded(job_id)
    assert world.read(job_id).status == JobStatus.VERIFYING  # checkpoints are not yet proven to be kept
    while sum(world.pin(node) for node in nodes):
        world.dispatch(job_id)
    assert world.read(job_id).status == JobStatus.SETTLING
    assert world.read(job_id).reason == "completed"
    assert ("settlement.settle", ()) in world.wakes.seen
    assert all(len(pins) == 3 for pins in _pins(world, job_id).values())


def test_next_round_opens_before_loss_is_known(world: World, nodes: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    job_id = world.running(nodes)
    with monkeypatch.context() as broken:  # evaluating fails while the first round closes, and delays nothing
        broken.setattr(final_model, "model_loss", lambda *_: pytest.fail("the round waited for a loss"))
        broken.setattr(
            evaluation, "model_loss", raising(StorageUnavailable("injected: the validation split cannot be read"))
        )
        world.deliver_all(nodes)
        world.aggregate(job_id)
        assert ("jobs.validate", (job_id,)) in world.wakes.seen
        with pytest.raises(StorageUnavailable):
            evaluation.validate(world.database, world.settings, world.storage, job_id)
        world.dispatch(job_id)
    assert len(world.units(job_id, round=1)) == 4
    first, unknown = _losses(world, job_id)
    assert first is not None
    assert unknown is None
    shown = world.call(progress_of, [job_id])[job_id].checkpoints
    assert [mark.validation_loss for mark in shown] == [first, None]

    assert evaluation.jobs_to_validate(world.database) == [job_id]
    for _ in range(2):
        evaluation.validate(world.database, world.settings, world.storage, job_id)
    assert evaluation.jobs_to_validate(world.database) == []
    events = world.all(select(JobEventRow).where(JobEventRow.job_id == job_id))
    [report] = [event.data for event in events if event.kind == "validation"]
    assert report["round"] == 1
    assert _losses(world, job_id) == [first, report["validation_loss"]]

    world.deliver_all(nodes)
    world.aggregate(job_id)
    assert None not in _losses(world, job_id)  # the final model's is known at once
    errors = [row.validation_error for row in world.call(checkpoints_repository.checkpoints, job_id)]
    assert all(0 < float(error or 0) < 1 for error in errors)


def test_first_model_of_waiting_job_is_not_evaluated(world: World, nodes: list[str]) -> None:
    """It may never train. Its payer would cancel it at no cost."""
    job_id = world.job(nodes=4)
    world.dispatch(job_id)
    assert (_losses(world, job_id), evaluation.jobs_to_validate(world.database)) == ([None], [])
    world.place(job_id, nodes)
    assert evaluation.jobs_to_validate(world.database) == [job_id]
    evaluation.validate(world.database, world.settings, world.storage, job_id)
    assert None not in _losses(world, job_id)


@pytest.mark.parametrize("rounds", [1, 2])
def test_short_job_has_first_loss_at_its_end(world: World, nodes: list[str], rounds: int) -> None:
    job_id = world.job(nodes=4, rounds=rounds)
    world.dispatch(job_id)
    world.place(job_id, nodes)
    for round_ in range(rounds):
        world.deliver_all(nodes)
        world.aggregate(job_id)
        world.dispatch(job_id)
        assert (_losses(world, job_id)[0] is None) == (round_ + 1 < rounds)
    assert world.read(job_id).status == "verifying"
    assert _losses(world, job_id)[-1] is not None


def test_rolled_back_only_round_has_first_loss(world: World, nodes: list[str]) -> None:
    job_id = world.job(nodes=4, rounds=1)
    world.dispatch(job_id)
    world.place(job_id, nodes)
    world.diverge(nodes[:3])
    world.aggregate(job_id)
    assert world.read(job_id).status == "verifying"
    assert None not in _losses(world, job_id)


def _losses(world: World, job_id: str) -> list[str | None]:
    found = world.call(checkpoints_repository.checkpoints, job_id)
    return [row.validation_loss for row in found]


def test_repeated_aggregation_gives_same_checkpoint(
    world: World, nodes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = world.delivered_job(nodes)
    built = []
    original = aggregation._apply

    def crash(session: Any, job: str, round_: Any, stored: Any, verdicts: Any) -> None:
        built.append(stored.cid)
        raise RuntimeError("injected crash before the change is applied")

    monkeypatch.setattr(aggregation, "_apply", crash)
    with pytest.raises(RuntimeError):
        world.aggregate(job_id)
    assert world.read(job_id).current_round == 0
    monkeypatch.setattr(aggregation, "_apply", original)
    for _ in range(2):
        world.aggregate(job_id)
    assert world.read(job_id).current_round == 1
    rows = world.all(select(Checkpoint.cid).where(Checkpoint.round == 1))
    assert rows == built


def test_replica_with_excluded_payload_continues_from_its_unit(world: World, nodes: list[str]) -> None:
    job_id = world.running(nodes)
    world.deliver_all(nodes[:3])
    outlier = world.work(nodes[3])
    outlier.hand_in(encode(outlier.spec, np.ones(outlier.spec.num_parameters(), np.float32)))
    outlier.deliver()
    world.aggregate(job_id)
    [unit] = world.units(job_id, round=0, slot=3)
    assert (unit.included, unit.exclusion_reason) == (False, "norm_outlier")
    world.dispatch(job_id)
    [after] = world.units(job_id, round=1, slot=3)  # otherwise its optimiser would start again, and lag behind
    assert (after.start_slot_state_cid, after.start_restored_payload_cid) == (unit.slot_state_cid, None)
    assert world.units(job_id, round=1, slot=0)[0].start_slot_state_cid is not None


def test_payload_differing_from_trace_end_is_refused(world: World, nodes: list[str]) -> None:
    world.running(nodes)
    work = world.work(nodes[0])
    work.payload = encode(work.spec, -work.vector)  # well-formed and committed to, but not what was trained
    work.commit()
    with pytest.raises(ResultRefused) as caught:
        work.complete()
    assert caught.value.extra == {"reason": "wrong_end_leaf"}


def test_trace_with_wrong_start_is_refused(world: World, nodes: list[str]) -> None:
    world.running(nodes)
    work = world.work(nodes[0])
    work.leaves[0] = bytes(32)
    work.commit()
    with pytest.raises(ResultRefused) as caught:
        work.complete()
    assert caught.value.extra == {"reason": "wrong_start_leaf"}


def test_rejected_unit_leaves_pending_aggregation(
    world: World, nodes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = world.delivered_job(nodes)
    bad = world.units(job_id, slot=1)[0]
    original = aggregation._build_checkpoint

    def reject_meanwhile(*arguments: Any) -> Any:
        result = original(*arguments)
        world.call(units.reject_unit, bad.id, "incorrect_computation")
        return result

    monkeypatch.setattr(aggregation, "_build_checkpoint", reject_meanwhile)
    world.aggregate(job_id)
    assert world.read(job_id).current_round == 0
    world.call(leases.remove_node_from_jobs, nodes[1], "jailed")
    spare = world.node()
    world.dispatch(job_id)
    assert [unit.provider for unit in world.units(job_id, slot=1)] == [nodes[1], spare]


def test_hot_spare_takes_over_unit_of_silent_node(world: World, nodes: list[str]) -> None:
    job_id = world.running(nodes)
    spare = world.node()
    stale = world.work(nodes[0])
    stale.commit()
    world.deliver_all(nodes[1:])
    world.age(stale.lease.id)
    with pytest.raises(LeaseLost):  # it has expired, although no sweep has run yet
        stale.complete()
    assert expiry.expire_due(world.database, utc_now()) == 1
    world.dispatch(job_id)
    first, second = world.units(job_id, round=0, slot=0)
    assert (first.status, first.reason) == (UnitStatus.LOST, "node_silent")
    assert (second.status, second.provider) == (UnitStatus.LEASED, spare)
    with pytest.raises(LeaseLost):
        stale.complete()
    assert world.pull(nodes[0]) is None  # nothing stale for a node that comes back
    world.deliver(spare)
    world.aggregate(job_id)
    assert world.read(job_id).current_round == 1


def test_lost_node_returns_only_without_better_candidate(world: World, nodes: list[str]) -> None:
    job_id = world.running(nodes)
    for _ in range(3):
        work = world.work(nodes[0])
        world.call(leases.fail, work.lease.id, nodes[0], work.lease.token, "out_of_memory", "too small")
        world.dispatch(job_id)
    assert [unit.reason for unit in world.units(job_id, slot=0)] == ["out_of_memory"] * 3
    assert world.pull(nodes[0]) is None
    expensive, foreign = world.node(price=3 * ZEN), world.node(environment=to_hex(sha256(b"other")))
    world.dispatch(job_id)
    assert world.pull(expensive) is None
    assert world.pull(foreign) is None


def test_round_closes_without_stragglers_at_its_deadline(world: World, nodes: list[str]) -> None:
    job_id = world.running(nodes)
    straggler = world.work(nodes[3])
    world.deliver_all(nodes[:3])
    world.aggregate(job_id)
    assert world.read(job_id).current_round == 0  # a node is still at work in time
    world.start_round(job_id, ago=world.settings.round_deadline_seconds + 1)
    world.aggregate(job_id)
    assert world.read(job_id).current_round == 1
    [unit] = world.units(job_id, round=0, slot=3)
    assert (unit.status, unit.reason) == (UnitStatus.LOST, "round_closed")
    with pytest.raises(LeaseLost):
        straggler.commit()


def test_round_deadline_follows_recent_deliveries(world: World, nodes: list[str]) -> None:
    job_id = world.delivered_job(nodes)
    _took(world, job_id, seconds=100)
    world.close_round(job_id)
    world.deliver_all(nodes[:3])
    _took(world, job_id, seconds=100)
    slack = world.settings.round_grace_seconds
    for ago, closed in ((100 + slack - 15, 1), (100 + slack + 1, 2)):  # 15 s for a slow machine
        world.start_round(job_id, ago=ago)
        world.aggregate(job_id)
        assert world.read(job_id).current_round == closed


def test_dispatchers_at_once_offer_each_unit_once(world: World, nodes: list[str]) -> None:
    job_id = world.job(nodes=4)
    assert world.call(book.assign, world.settings, job_id, 5 * ZEN // 2, None, nodes, ENVIRONMENT)
    assert at_once([lambda: world.dispatch(job_id)] * 6) == [None] * 6
    world.dispatch(job_id)
    assert len(world.units(job_id)) == 4
    kinds = world.all(select(Lease.kind).where(Lease.job_id == job_id))
    assert sorted(kinds) == ["pin"] * 3 + ["train"] * 4
    pulled: list[Any] = []
    assert at_once([lambda: pulled.append(world.pull(nodes[0]))] * 6) == [None] * 6
    assert sum(lease is not None for lease in pulled) == 1


def test_concurrent_matches_place_node_once(world: World, nodes: list[str]) -> None:
    jobs = [world.job(nodes=4) for _ in range(3)]
    placed: list[bool] = []

    def match(job_id: str) -> None:
        with world.database.transaction() as session:
            placed.append(book.assign(session, world.settings, job_id, 5 * ZEN // 2, None, nodes, ENVIRONMENT))  # type: ignore[arg-type]

    assert at_once([lambda job_id=job_id: match(job_id) for job_id in jobs]) == [None] * 3  # type: ignore[misc]
    assert sorted(placed) == [False, False, True]
    assert sorted(world.read(job_id).status for job_id in jobs) == ["matching", "matching", "running"]


def test_wrong_pin_proof_leads_to_other_node(world: World, nodes: list[str]) -> None:
    job_id = world.running(nodes)
    lease = world.pulled(nodes[0], LeaseKind.PIN)
    with pytest.raises(ResultRefused):
        world.complete(lease, nodes[0], CompletePin(token=lease.token, proof=to_hex(b"\0" * 32)))
    world.dispatch(job_id)
    assert world.pin(nodes[3])  # the fourth node was not needed before
    assert world.pin(nodes[1])
    assert world.pin(nodes[2])
    assert sorted(next(iter(_pins(world, job_id).values()))) == sorted(nodes[1:])


def test_checkpoint_is_released_after_three_newer_pin_proofs(world: World, nodes: list[str]) -> None:
    job_id = world.delivered_job(nodes)
    world.aggregate(job_id)
    for node in nodes[:3]:
        assert world.pin(node)  # the initial checkpoint
    world.dispatch(job_id)
    first, second = world.all(select(Checkpoint).order_by(Checkpoint.round))
    leases = [world.pull(node, LeaseKind.PIN) for node in nodes[:3]]
    assert [(lease.task["checkpoint_cid"], lease.task["release"]) for lease in leases if lease] == [
        (second.cid, [])
    ] * 3

    holders = {first.id: ["a", "b", "c"], second.id: ["a", "b", "b"]}
    assert pins.releasable([first, second], holders, 3) == []  # two of them are one
    assert pins.releasable([first, second], holders | {second.id: ["a", "b", "c"]}, 3) == [first.cid]
    assert pins.releasable([first, second], {second.id: ["a", "b", "c"]}, 3) == []  # still being asked for


def test_abandoned_replay_is_reported_to_verification(
    world: World, nodes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    abandoned: list[str] = []
    recording = replace(verification_hooks.hooks(), replay_abandoned=lambda session, lease: abandoned.append(lease.id))
    monkeypatch.setattr(verification_hooks, "_registered", [recording])
    job_id = world.running(nodes)
    lease = world.call(
        leases.create_lease, kind="replay", holder=nodes[0], job_id=job_id, task={"segment": 0}, seconds=-1
    )
    assert expiry.expire_due(world.database, utc_now()) == 1
    assert abandoned == [lease.id]


def test_progress_and_first_step_are_reported_live(world: World, nodes: list[str]) -> None:
    job_id = world.running(nodes)
    lease = world.pulled(nodes[0])
    for step in (0, 1, 1):
        world.call(leases.heartbeat, lease.id, nodes[0], lease.token, step, 30)
        assert (world.read(job_id).first_step_at is None) == (step == 0)
    steps = world.all(select(JobEventRow.data).filter_by(kind="step"))
    assert steps == [{"round": 0, "slot": 0, "provider": nodes[0], "step": 1}]


def _pins(world: World, job_id: str) -> dict[int, list[str]]:
    return world.call(checkpoints_repository.pins_of_job, job_id)


def _took(world: World, job_id: str, *, seconds: float) -> None:
    with world.database.transaction() as session:
        for unit in session.scalars(select(Unit).where(Unit.job_id == job_id, Unit.uploaded_at.is_not(None))):
            assert unit.uploaded_at is not None
            unit.created_at = unit.uploaded_at - timedelta(seconds=seconds)


def test_sweep_ignores_waiting_job_with_first_checkpoint(world: World) -> None:
    job_id = world.job()
    assert rounds.due_jobs(world.database) == [job_id]
    world.dispatch(job_id)
    assert rounds.due_jobs(world.database) == []
    running = world.running([world.node()])
    assert rounds.due_jobs(world.database) == [running]
