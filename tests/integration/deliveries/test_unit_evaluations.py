"""Losses of checkpoints from the records of the units that start from them."""

import numpy as np
import pytest
from kit.errors import raising
from kit.jobs.jobs_fixtures import World
from kit.jobs.rollbacks import spiked_job
from sqlalchemy import select, update

from market.jobs.models import Job
from market.platform.db.base import utc_now
from market.platform.events.models import JobEventRow
from market.training.checkpoints import repository as checkpoints_repository
from market.training.checkpoints.models import Checkpoint
from market.training.evaluation import service as evaluation
from market.training.evaluation.comparison import better_models
from market.training.leases.errors import ResultRefused
from training_gym.compress.payload_format import encode
from training_gym.evaluate.sums import LossSums
from training_gym.spec.config import TrainingSpec
from zoo_protocol.verification.training_faults import KnownLoss


def losses(world: World, job_id: str) -> list[str | None]:
    found = world.call(checkpoints_repository.checkpoints, job_id)
    return [row.validation_loss for row in found]


def test_units_evaluate_their_start(world: World, nodes: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "model_loss", raising(AssertionError("the market evaluated a checkpoint")))
    job_id = evaluated_job(world, nodes, samples=4, rounds=3)
    assert losses(world, job_id) == [None]
    same = LossSums.of([2.5] * 4, [1] * 4).to_bytes().decode()
    for node in nodes:
        world.work(node, evaluation=same).deliver()
    world.end_round(job_id)
    evaluation.validate(world.database, world.settings, world.storage, job_id)  # leaves it to the next units
    assert losses(world, job_id) == ["2.500000", None]

    records = [LossSums.of([2.0 + slot, 3.0], [8, 8]) for slot in range(3)]
    for node, record in zip(nodes, records, strict=False):
        world.work(node, evaluation=record.to_bytes().decode()).deliver()
    refused = world.work(nodes[3], evaluation="1 1 9 1 1 0")
    refused.commit()
    with pytest.raises(ResultRefused) as error:
        refused.complete()
    assert (error.value.field, error.value.extra["reason"]) == ("evaluation", "evaluation_malformed")
    world.dispatch(job_id)
    world.work(nodes[3], evaluation="").deliver()  # without a record, which only a replay can refute
    world.end_round(job_id)
    row = world.call(checkpoints_repository.checkpoint, job_id, 1)
    found = records[0] + records[1] + records[2]
    assert row is not None
    assert (row.validation_loss, row.validation_error) == (f"{found.loss:.6f}", f"{found.error:.6f}")
    assert row.validation_samples == found.samples
    first, second = [
        event.data for event in world.all(select(JobEventRow).order_by(JobEventRow.id)) if event.kind == "validation"
    ]
    assert [(one["round"], one["validation_samples"]) for one in (first, second)] == [(0, 16), (1, 6)]


def test_overlapped_units_evaluate_checkpoint_before(
    world: World, nodes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the second round on, units start from the checkpoint before their round's own."""
    job_id = evaluated_job(world, nodes, samples=4, rounds=3, round_delay=1)
    with monkeypatch.context() as patch:
        patch.setattr(evaluation, "model_loss", raising(AssertionError("the market evaluated a checkpoint")))
        for loss, known in ((2.5, ["2.500000", None]), (3.5, ["2.500000", None, None])):
            for node in nodes:
                world.work(node, evaluation=LossSums.of([loss] * 4, [1] * 4).to_bytes().decode()).deliver()
                world.dispatch(job_id)
            world.end_round(job_id)
            evaluation.validate(world.database, world.settings, world.storage, job_id)  # leaves it to the next units
            assert losses(world, job_id) == known
    assert {unit.start_checkpoint_cid for unit in world.units(job_id, round=2)} == {world.checkpoint(job_id, 1)}
    for node in nodes:
        world.work(node, evaluation=LossSums.of([2.0] * 4, [1] * 4).to_bytes().decode()).deliver()
    world.end_round(job_id)
    first, second, *_ = losses(world, job_id)
    assert (first, second) == ("2.500000", "2.000000")


def test_few_overlapped_records_are_no_loss(world: World, nodes: list[str]) -> None:
    """One replica alone evaluates the last checkpoint before the end, and could feign a spike."""
    job_id = evaluated_job(world, nodes, samples=4, rounds=2, round_delay=1)
    for node in nodes:
        world.work(node, evaluation=LossSums.of([2.5] * 4, [1] * 4).to_bytes().decode()).deliver()
        if node != nodes[3]:
            world.dispatch(job_id)
    world.end_round(job_id)
    for loss, node in enumerate(nodes, start=2):
        world.work(node, evaluation=LossSums.of([float(loss)] * 4, [1] * 4).to_bytes().decode()).deliver()
    [last] = {unit.slot for unit in world.units(job_id, round=1) if unit.start_eager_payload_cid is None}
    assert nodes[last] == nodes[3]
    world.end_round(job_id)
    assert losses(world, job_id)[:2] == ["2.500000", None]


def evaluated_job(world: World, nodes: list[str], samples: int, rounds: int, round_delay: int = 0) -> str:
    """Return a running job whose units evaluate so many samples each."""
    document = world.spec.to_dict()
    training = {**document["training_config"], "rounds": rounds, "round_delay": round_delay}
    data = {**document["data_config"], "validation_samples": samples}
    return world.running(nodes, document={**document, "training_config": training, "data_config": data})


def test_round_before_worse_model_is_flagged(world: World, nodes: list[str]) -> None:
    """One node states a lower loss each time; the last model is worse than the one before."""
    job_id = evaluated_job(world, nodes, samples=4, rounds=6)
    for loss in (2.5, 2.4, 2.41, 2.5):
        for node, own in zip(nodes, [loss, loss + 0.1, loss - 0.1, 2.5 - loss / 10], strict=True):
            world.work(node, evaluation=LossSums.of([own] * 4, [1] * 4).to_bytes().decode()).deliver()
        world.end_round(job_id)
    found = {(unit.round, unit.slot): unit.doubts for unit in world.units(job_id) if unit.uploaded_at}
    assert {place for place, doubts in found.items() if doubts} == {(2, slot) for slot in range(4)}
    assert found[2, 0] == ["worse_model"]
    evaluation.validate(world.database, world.settings, world.storage, job_id)
    assert world.units(job_id, round=2)[0].doubts == ["worse_model"]


def test_better_model_is_found_on_equal_slots(world: World, nodes: list[str]) -> None:
    """The last model is worse for each slot, but that with the highest loss states none."""
    job_id = evaluated_job(world, nodes, samples=4, rounds=4)
    for losses in ([2.5] * 4, [2.0, 2.0, 2.1, 2.2], [2.03, 2.03, 2.13, None]):
        for node, loss in zip(nodes, losses, strict=True):
            record = "" if loss is None else LossSums.of([loss] * 4, [1] * 4).to_bytes().decode()
            world.work(node, evaluation=record).deliver()
        world.end_round(job_id)
    _, first, last, _ = world.call(checkpoints_repository.checkpoints, job_id)
    assert float(last.validation_loss or 9) < float(first.validation_loss or 0)
    spec = TrainingSpec.from_dict(world.read(job_id).spec)
    assert better_models(world.database, spec, job_id, KnownLoss(2.0)) == {1: first.cid}
    assert better_models(world.database, spec, job_id, KnownLoss(2.2)) == {1: first.cid, 2: last.cid}


def test_excluded_unit_spoils_no_model(world: World, nodes: list[str]) -> None:
    """The start model is better than that after the warm-up, as in an extension."""
    job_id = evaluated_job(world, nodes, samples=4, rounds=4)
    for loss in (2.4, 2.5, 2.6):
        for node in nodes:
            work = world.work(node, evaluation=LossSums.of([loss] * 4, [1] * 4).to_bytes().decode())
            if node == nodes[3]:
                work.hand_in(encode(world.spec, np.float32(-1) * work.vector))
            work.deliver()
        world.end_round(job_id)
    assert {one for unit in world.units(job_id, round=0) for one in unit.doubts or []} == set()
    found = {unit.provider: (unit.included, unit.doubts) for unit in world.units(job_id, round=1)}
    assert found == dict.fromkeys(nodes[:3], (True, ["worse_model"])) | {nodes[3]: (False, None)}


def test_market_flags_round_before_worse_model(world: World, nodes: list[str]) -> None:
    job_id = spiked_job(world, nodes, rounds=5)
    flagged = {unit.round for unit in world.units(job_id) if "worse_model" in (unit.doubts or [])}
    assert flagged == {1}


def test_market_evaluates_some_checkpoints(world: World, nodes: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A large model has few, and the last one of a job that trains no more."""
    monkeypatch.setattr(evaluation, "evaluated_every", lambda spec: 2)
    job_id = evaluated_job(world, nodes, samples=0, rounds=5)
    for _ in range(3):
        world.deliver_all(nodes)
        world.end_round(job_id)
        evaluation.validate(world.database, world.settings, world.storage, job_id)
    assert [loss is not None for loss in losses(world, job_id)] == [True, False, True, False]
    world.execute(update(Job).where(Job.id == job_id).values(paused_at=utc_now()))
    evaluation.validate(world.database, world.settings, world.storage, job_id)
    assert [loss is not None for loss in losses(world, job_id)] == [True, False, True, True]


def test_first_model_is_evaluated_before_newer_ones(
    world: World, nodes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its job waited for nodes, and no rollback for a spike happens without its loss."""
    job_id = evaluated_job(world, nodes, samples=0, rounds=5)
    for _ in range(2):
        world.deliver_all(nodes)
        world.end_round(job_id)
    world.execute(update(Checkpoint).where(Checkpoint.job_id == job_id).values(validation_loss=None))
    order = []

    def note(*given: object) -> evaluation.ModelLoss:
        order.append(given[-1])
        return evaluation.ModelLoss("2.500000", "0.100000", 16)

    monkeypatch.setattr(evaluation, "model_loss", note)
    evaluation.validate(world.database, world.settings, world.storage, job_id)
    assert order == [0, 2, 1]


def test_market_evaluates_first_model_of_few_records(world: World, nodes: list[str]) -> None:
    job_id = evaluated_job(world, nodes, samples=4, rounds=2)
    for node in nodes[:3]:
        world.work(node, evaluation=LossSums.of([2.5] * 4, [1] * 4).to_bytes().decode()).deliver()
    world.deliver(nodes[3])
    world.end_round(job_id)
    evaluation.validate(world.database, world.settings, world.storage, job_id)
    first = world.call(checkpoints_repository.checkpoint, job_id, 0)
    assert first is not None
    assert (first.validation_loss != "2.500000", first.validation_samples) == (True, 219)  # the whole split
