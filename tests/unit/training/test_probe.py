"""Probe of a job's shapes: what its digest depends on."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from kit.training import TEXT, shard_of_rows, spec_of, unit_of

from training_gym.data.dataset import one_shard, training_samples
from training_gym.data.shards import Layout
from training_gym.model.layout import initial_parameters
from training_gym.spec.architectures import read_model
from training_gym.spec.config import TrainingSpec
from training_gym.units import steps
from training_gym.units.probe import STEPS, probe_digest, probe_unit
from training_gym.units.replica_state import ReplicaState, fresh_slot_state
from training_gym.units.steps import train_steps
from training_gym.units.trace import Unit

SIZES = {"architecture": "llama", "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
ROWS = [([1, 2, 3, 4, 5], [0, 0, 1, 1, 1]), ([1, 2, 7, 8], [0, 0, 1, 1])]


def spec_for(**training: Any) -> TrainingSpec:
    return spec_of(read_model(SIZES | {"sequence_length": 16}), **{"batch_size": 4, "warmup_steps": 4} | training)


def job(**training: Any) -> Unit:
    return unit_of(spec_for(**training))


def digest(unit: Unit) -> bytes:
    return probe_digest(probe_unit(unit), train_steps)


def test_probe_depends_on_specification_alone() -> None:
    unit = job()
    state = replace(fresh_slot_state(unit.spec), error_feedback=np.ones(unit.spec.num_parameters(), np.float32))
    changed = {name: array + 1 for name, array in initial_parameters(unit.spec).items()}
    later = replace(unit, round=1, slot=0, job_id="0x" + "33" * 32, checkpoint=changed, slot_state=state)
    assert digest(later) == digest(unit)
    assert digest(replace(unit, train=one_shard(unit.spec, TEXT[7:]))) == digest(unit)
    assert digest(replace(unit, spec=replace(unit.spec, replicas=3))) == digest(unit)
    others = [job(seed=9), job(batch_size=8), job(optimizer="adamw"), job(precision="bfloat16")]
    assert len({digest(one) for one in (unit, *others)}) == 5


def test_last_bit_of_gradient_changes_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    unit, clip = job(), steps.clip_gradients
    expected = digest(unit)

    def clip_otherwise(spec: Any, parameters: dict[str, torch.Tensor], processes: Any) -> float:
        gradient = parameters["model.norm.weight"].grad
        assert gradient is not None
        gradient[0] = torch.nextafter(gradient[0], gradient[0] + 1)
        return clip(spec, parameters, processes)

    monkeypatch.setattr(steps, "clip_gradients", clip_otherwise)
    assert digest(unit) != expected


def with_rows(objective: str, layout: Layout) -> Unit:
    spec = spec_for(objective=objective)
    return unit_of(spec, train=one_shard(spec, shard_of_rows(ROWS), layout, 2 // layout.rows))


@pytest.mark.parametrize(
    ("unit", "rows"),
    [(job(), 1), (with_rows("sft", Layout("chat")), 1), (with_rows("dpo", Layout("preferences")), 2)],
    ids=["text", "chat", "preferences"],
)
def test_probe_reads_full_rows_of_each_objective(unit: Unit, rows: int) -> None:
    probe = probe_unit(unit)
    assert probe.train is not None
    for step in range(STEPS):
        samples = training_samples(probe.spec, probe.train, 0, 0, step)
        assert [len(row.inputs) for sample in samples for row in sample] == [16] * 4 * rows


def test_one_step_of_packed_text_has_a_border() -> None:
    unit = job()
    probe = probe_unit(replace(unit, train=one_shard(unit.spec, TEXT, Layout(separator=32))))
    assert probe.train is not None
    steps_rows = [training_samples(probe.spec, probe.train, 0, 0, step) for step in range(STEPS)]
    assert sorted(sum((row.positions[1:] == 0).sum() for (row,) in rows) for rows in steps_rows) == [0, 1]


def test_probe_makes_no_copy_of_its_state() -> None:
    slot_state = probe_unit(job()).slot_state
    assert isinstance(slot_state, ReplicaState)
    assert slot_state.error_feedback.size == 0
    assert slot_state.moments["exp_avg.model.norm.weight"] is not slot_state.moments["exp_avg.model.norm.weight"]
