"""Losses of checkpoints from the records of the units that start from them."""

import pytest
from kit.errors import raising
from kit.jobs.jobs_fixtures import World
from sqlalchemy import select

from market.platform.events.models import JobEventRow
from market.training.checkpoints import repository as checkpoints_repository
from market.training.evaluation import service as evaluation
from market.training.leases.errors import ResultRefused
from training_gym.evaluate.sums import LossSums


def losses(world: World, job_id: str) -> list[str | None]:
    found = world.call(checkpoints_repository.checkpoints, job_id)
    return [row.validation_loss for row in found]


def test_units_evaluate_their_start(world: World, nodes: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "model_loss", raising(AssertionError("the market evaluated a checkpoint")))
    document = world.spec.to_dict()
    training = {**document["training_config"], "rounds": 3}
    data = {**document["data_config"], "validation_samples": 4}
    job_id = world.running(nodes, document={**document, "training_config": training, "data_config": data})
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
    first, second = [event.data for event in world.all(select(JobEventRow)) if event.kind == "validation"]
    assert [(one["round"], one["validation_samples"]) for one in (first, second)] == [(0, 16), (1, 6)]


def test_market_evaluates_first_model_of_few_records(world: World, nodes: list[str]) -> None:
    document = world.spec.to_dict()
    data = {**document["data_config"], "validation_samples": 4}
    job_id = world.running(nodes, document={**document, "data_config": data})
    for node in nodes[:3]:
        world.work(node, evaluation=LossSums.of([2.5] * 4, [1] * 4).to_bytes().decode()).deliver()
    world.deliver(nodes[3])
    world.end_round(job_id)
    evaluation.validate(world.database, world.settings, world.storage, job_id)
    first = world.call(checkpoints_repository.checkpoint, job_id, 0)
    assert first is not None
    assert (first.validation_loss != "2.500000", first.validation_samples) == (True, 219)  # the whole split
