"""Final models that are worse than the best one; the best one is delivered."""

from dataclasses import replace

import pytest
from kit.jobs.jobs_fixtures import World
from kit.jobs.rollbacks import checkpoints, deliver_spike, end_round, rollbacks, spiked_job, why

from market.domain.lifecycle import JobStatus
from market.training.aggregation import service as aggregation
from market.training.aggregation.rollback import final_rollback
from training_gym.evaluate.sums import LossSums
from zoo_protocol.payments.job_record import MAX_ROLLBACKS
from zoo_protocol.verification.training_faults import KnownLoss


def test_spike_of_last_round_is_rolled_back(world: World, nodes: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    build, built = aggregation._build_checkpoint, []
    monkeypatch.setattr(aggregation, "_build_checkpoint", lambda *given: built.append(build(*given)) or built[-1])
    monkeypatch.delattr(aggregation, "repeated_loss")  # the comparison evaluated the best model
    job_id = spiked_job(world, nodes, rounds=2)
    *earlier, final = checkpoints(world, job_id)
    best = min(earlier, key=lambda one: float(one.validation_loss or 0))
    assert (final.rolled_back_to, final.model_cid) == (best.round, best.model_cid)
    assert rollbacks(world, job_id) == [{"round": 2, "to": best.round, "reason": "final_loss"}]
    assert (world.read(job_id).status, float(final.validation_loss or 9) < 6) == (JobStatus.VERIFYING, True)
    spoiled, _ = built[-1]
    assert [world.storage.is_pinned(cid) for cid in spoiled.files] == [False] * 5
    named = {cid for one in (*earlier[1:], final) for cid in one.file_cids}  # the first has the job's own pins
    assert {world.storage.is_pinned(cid) for cid in named} == {True}


@pytest.mark.parametrize(("share", "earlier"), [(0.02, 0), (0.05, 0), (0.05, MAX_ROLLBACKS)])
def test_worse_final_model_is_rolled_back(world: World, nodes: list[str], share: float, earlier: int) -> None:
    """It rose by half a hundredth, or by more than one. That needs no rollback that is left."""
    world.spec = replace(world.spec, training=replace(world.spec.training, rounds=earlier + 4))
    job_id = world.running(nodes, document=world.spec.to_dict())
    for _ in range(earlier):
        world.diverge(nodes[:3])
        world.aggregate(job_id)
        world.dispatch(job_id)
    for _ in range(2):
        world.deliver_all(nodes)
        end_round(world, job_id)
    deliver_spike(world, nodes, share)
    end_round(world, job_id)
    world.deliver_all(nodes)
    world.aggregate(job_id)
    *good, worse, final = checkpoints(world, job_id)
    best = min(good, key=lambda one: float(one.validation_loss or 0))
    is_repeated = share > 0.02
    assert final.rolled_back_to == (best.round if is_repeated else None)
    assert (float(final.validation_loss or 0) < float(worse.validation_loss or 0)) == is_repeated
    assert len(rollbacks(world, job_id)) == earlier + is_repeated
    assert world.read(job_id).status == JobStatus.VERIFYING
    shown = why(world, job_id, "rolled_back")[earlier:]
    reason = "the validation loss after the last round was higher than the best one, or not finite (final_loss)."
    expected = f"Round {earlier + 4} repeats the model after round {best.round}, because {reason}"
    assert shown == ([expected] if is_repeated else [])


@pytest.mark.parametrize("share", [0.02, 0.05])
def test_last_round_with_worse_model_is_rolled_back(world: World, nodes: list[str], share: float) -> None:
    """Only the final model's own loss shows it."""
    world.spec = replace(world.spec, training=replace(world.spec.training, rounds=3))
    job_id = world.running(nodes, document=world.spec.to_dict())
    for _ in range(2):
        world.deliver_all(nodes)
        end_round(world, job_id)
    deliver_spike(world, nodes, share)
    world.aggregate(job_id)
    assert [one["reason"] for one in rollbacks(world, job_id)] == (["final_loss"] if share > 0.02 else [])
    assert world.read(job_id).status == JobStatus.VERIFYING


@pytest.mark.parametrize(
    ("found", "compared", "final", "expected"),
    [
        ({1: 8.0, 4: 3.0}, {1}, 5.5, 4),  # false records name another one than that below which the loss spikes
        ({0: 2.0}, {}, 2.05, None),  # a false record of a spike: the start of an extension may be better
        ({0: 2.0, 3: 2.3}, {3}, 2.6, 0),
        ({0: 2.0, 3: 2.3}, {3}, 2.35, 3),
        ({0: 2.0, 3: 2.3}, {3}, 2.31, None),
        ({2: 3.0, 3: 2.9}, {2, 3}, 3.0, 3),
        ({3: 2.9}, {3}, 1e6, 3),
        ({3: 20.0}, {}, 20.1, None),  # the first loss is false
    ],
)
def test_rollback_of_final_model_follows_from_own_losses(
    found: dict[int, float], compared: set[int], final: float, expected: int | None
) -> None:
    first = KnownLoss(found.get(0, 10.0))
    losses = {round_: KnownLoss(loss) for round_, loss in found.items()}
    rollback = final_rollback(first, losses, compared, KnownLoss(final))
    assert (rollback and rollback.to) == expected


def test_false_rise_of_losses_undoes_no_training(world: World, nodes: list[str]) -> None:
    world.spec = replace(world.spec, training=replace(world.spec.training, rounds=4), validation_samples=4)
    job_id = world.running(nodes, document=world.spec.to_dict())
    for loss in (2.5, 2.4, 2.3, 2.5):
        for node in nodes:
            world.work(node, evaluation=LossSums.of([loss] * 4, [1] * 4).to_bytes().decode()).deliver()
        world.end_round(job_id)
    assert "worse_model" in (world.units(job_id, round=2)[0].doubts or [])
    assert (world.read(job_id).status, rollbacks(world, job_id)) == (JobStatus.VERIFYING, [])


@pytest.mark.parametrize("count", [1, 2, 4])
def test_spike_of_only_round_is_rolled_back(world: World, nodes: list[str], count: int) -> None:
    """Its units evaluate too few samples of the first model, or nothing."""
    world.spec = replace(world.spec, training=replace(world.spec.training, rounds=1), validation_samples=2)
    job_id = world.running(nodes[:count], document=world.spec.to_dict())
    deliver_spike(world, nodes[:count])
    world.aggregate(job_id)
    assert [one["reason"] for one in rollbacks(world, job_id)] == ["final_loss"]
    assert all(one.validation_loss is not None for one in checkpoints(world, job_id))
