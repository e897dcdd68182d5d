from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from kit.errors import raises_code
from kit.training import SMALL, TEXT, spec_of, unit_of

from training_gym.aggregate.aggregation import aggregate
from training_gym.data.dataset import one_shard, training_samples, unit_places
from training_gym.data.samples import collate
from training_gym.evaluate.loss import validation_loss
from training_gym.model.layout import initial_parameters
from training_gym.runtime.determinism import configure
from training_gym.runtime.profile import CPU, CUDA
from training_gym.spec.config import TrainingConfig
from training_gym.spec.errors import (
    GymError,
    ProfileError,
    ResultMismatch,
    StartStateMismatch,
    StateError,
    TrainingDiverged,
)
from training_gym.units import environment_class as classes
from training_gym.units.replica_state import ReplicaState, error_feedback_digest, fresh_slot_state
from training_gym.units.steps import rate_share
from training_gym.units.trace import (
    Unit,
    UnitResult,
    check_result,
    inner_leaf,
    load_boundary_state,
    start_state,
    state_path,
)
from training_gym.units.unit import replay_segment, run_unit
from zoo_compute.devnet.adversaries.fabrication import fabricate_unit

SPEC = spec_of(SMALL, rounds=2, inner_steps=12, segment_steps=4, batch_size=4, learning_rate=1e-2, seed=3)


@pytest.fixture
def unit() -> Unit:
    noise = np.random.default_rng(0).normal(0, 1e-3, SPEC.num_parameters()).astype(np.float32)
    fresh = fresh_slot_state(SPEC)
    moments = {name: np.full_like(moment, 1e-3) for name, moment in fresh.moments.items()}
    return unit_of(SPEC, slot_state=ReplicaState(noise, moments, 12))


def test_replay_of_any_segment_gives_committed_leaf(unit: Unit, tmp_path: Path) -> None:
    result = run_unit(unit, tmp_path)
    assert len(result.leaves) == SPEC.segments + 1
    for segment in range(SPEC.segments):
        state = None if segment == 0 else state_path(tmp_path, segment).read_bytes()
        assert replay_segment(unit, segment, result.leaves[segment], state) == result.leaves[segment + 1]
    check_result(unit, result)
    assert run_unit(unit, tmp_path) == result


@pytest.mark.parametrize(
    "settings",
    [
        {"optimizer": "muon", "final_rate_share": 0.1},
        {"top_k": 4096, "value_bits": 8, "error_feedback_decay": 0.0, "outer_momentum": 0.9},
        {"optimizer": "muon", "outer_momentum": 0.5, "down_top_k": 1024, "down_value_bits": 2, "value_bits": 2},
    ],
)
def test_every_method_trace_replays(unit: Unit, tmp_path: Path, settings: dict[str, Any]) -> None:
    spec = replace(SPEC, training=replace(SPEC.training, **settings))
    unit = replace(unit, spec=spec)
    result = run_unit(unit, tmp_path)
    check_result(unit, result)
    for segment in range(spec.segments):
        state = state_path(tmp_path, segment).read_bytes()
        assert replay_segment(unit, segment, result.leaves[segment], state) == result.leaves[segment + 1]
    joined = aggregate(spec, unit.checkpoint, {2: result.payload})
    assert joined.verdicts[2].included
    validation = one_shard(spec, TEXT[:4000])
    assert validation_loss(spec, joined.parameters, validation) < validation_loss(spec, unit.checkpoint, validation)


def test_rates_warm_up_with_moments_and_decay() -> None:
    training = TrainingConfig(rounds=4, inner_steps=10, segment_steps=10, warmup_steps=4, final_rate_share=0.2)
    shares = [rate_share(training, round_, step, 10 * round_ + step) for round_ in range(4) for step in range(10)]
    assert shares[0] == 0.2
    assert shares[4] == pytest.approx(1 - 0.8 * 4 / 40)
    assert shares[10] == pytest.approx(1 - 0.8 * 10 / 40)
    assert shares[39] == pytest.approx(1 - 0.8 * 39 / 40)
    assert rate_share(training, 1, 0, 0) == pytest.approx(0.2 * shares[10])  # a slot that begins in a later round
    assert rate_share(TrainingConfig(warmup_steps=2, final_rate_share=1.0), 7, 47, 2) == 1.0


def test_default_rates_decay_to_zero() -> None:
    training = TrainingConfig()
    last = training.rounds, training.inner_steps - 1
    assert rate_share(training, last[0] - 1, last[1], 1_000) == pytest.approx(1 / (last[0] * training.inner_steps))


@pytest.mark.parametrize(
    "change",
    [
        {"round": 0},
        {"slot": 3},
        {"job_id": "0x" + "12" * 32},
        {"environment": "0x" + "23" * 32},
        {"slot_state": fresh_slot_state(SPEC)},
        {"checkpoint": initial_parameters(spec_of(SPEC.model, seed=4))},
    ],
)
def test_trace_is_bound_to_all_unit_inputs(unit: Unit, tmp_path: Path, change: dict[str, Any]) -> None:
    result = run_unit(unit, tmp_path)
    other = replace(unit, **change)
    with pytest.raises(StartStateMismatch):
        replay_segment(other, 0, result.leaves[0], None)


def test_altered_start_state_is_not_replayed(unit: Unit, tmp_path: Path) -> None:
    result = run_unit(unit, tmp_path)
    state = bytearray(state_path(tmp_path, 1).read_bytes())
    state[-1] ^= 1
    with raises_code(StartStateMismatch, "start_state_mismatch"):
        replay_segment(unit, 1, result.leaves[1], bytes(state))
    with raises_code(StartStateMismatch, "start_state_missing"):
        replay_segment(unit, 1, result.leaves[1], None)
    for malformed in (b"", b"{}", bytes(state[:-4]), bytes(state) * 2):
        with pytest.raises(StateError):
            replay_segment(unit, 1, result.leaves[1], malformed)


@pytest.mark.parametrize(
    ("tamper", "code"),
    [
        (lambda r: replace(r, payload=r.payload[:-1] + bytes([r.payload[-1] ^ 1])), "wrong_end_leaf"),
        (lambda r: replace(r, slot_state_digest=bytes(32)), "wrong_end_leaf"),
        (lambda r: replace(r, end_parameters_digest=bytes(32)), "wrong_end_leaf"),
        (lambda r: replace(r, state_digests=[bytes(32), *r.state_digests[1:]]), "wrong_start_leaf"),
        (lambda r: replace(r, state_digests=r.state_digests[1:]), "wrong_leaf_count"),
    ],
)
def test_delivered_result_must_match_trace(
    unit: Unit, tmp_path: Path, tamper: Callable[[UnitResult], UnitResult], code: str
) -> None:
    with raises_code(ResultMismatch, code):
        check_result(unit, tamper(run_unit(unit, tmp_path)))


def test_fabricated_unit_looks_valid_and_fails_all_replays(unit: Unit, tmp_path: Path) -> None:
    cheat, feedback = fabricate_unit(unit, tmp_path), error_feedback_digest(unit.slot_state.error_feedback)
    check_result(unit, cheat)
    for segment in range(1, SPEC.segments):
        state = load_boundary_state(SPEC, state_path(tmp_path, segment).read_bytes())
        assert inner_leaf(unit, segment, state, feedback) == cheat.leaves[segment]
    honest = {slot: run_unit(replace(unit, slot=slot), tmp_path).payload for slot in range(2)}
    assert aggregate(SPEC, unit.checkpoint, {**honest, 2: cheat.payload}).verdicts[2].included
    fabricate_unit(unit, tmp_path)  # the honest units wrote their states over the false ones
    for segment in range(SPEC.segments):
        state_file = state_path(tmp_path, segment).read_bytes()
        assert replay_segment(unit, segment, cheat.leaves[segment], state_file) != cheat.leaves[segment + 1]


def test_training_learns_and_continues_over_rounds(unit: Unit, tmp_path: Path) -> None:
    parameters = unit.checkpoint
    validation = one_shard(SPEC, TEXT[-4000:])
    states = {slot: fresh_slot_state(SPEC) for slot in range(2)}
    losses = [validation_loss(SPEC, parameters, validation)]
    for round_ in range(2):
        payloads = {}
        for slot in states:
            now = replace(unit, round=round_, slot=slot, checkpoint=parameters, slot_state=states[slot])
            result = run_unit(now, tmp_path)
            payloads[slot], states[slot] = result.payload, result.slot_state
        parameters = aggregate(SPEC, parameters, payloads).parameters
        losses.append(validation_loss(SPEC, parameters, validation))
    assert losses[0] > 5.3
    assert losses[1] < losses[0] - 0.5
    assert losses[2] < losses[1] - 0.5


def test_diverged_training_is_reported(unit: Unit, tmp_path: Path) -> None:
    broken = dict(unit.checkpoint)
    broken["model.norm.weight"] = np.full_like(broken["model.norm.weight"], 3e38)
    with pytest.raises(TrainingDiverged) as refusal:
        run_unit(replace(unit, checkpoint=broken), tmp_path)
    assert isinstance(refusal.value, GymError)
    assert refusal.value.field == "training_config.learning_rate"


def test_non_finite_gradient_diverges_in_its_own_step(unit: Unit, tmp_path: Path) -> None:
    """A large head after small embeddings overflows the gradients of the only step."""
    embedding, head = (unit.checkpoint[f"{name}.weight"] for name in ("model.embed_tokens", "lm_head"))
    scaled = {"model.embed_tokens.weight": embedding * np.float32(1e-10), "lm_head.weight": head * np.float32(1e37)}
    start = {**unit.checkpoint, **scaled}
    one_step = replace(unit.spec, training=replace(unit.spec.training, inner_steps=1, segment_steps=1))
    poisoned, losses = replace(unit, checkpoint=start, spec=one_step), list[float]()
    leaf = inner_leaf(poisoned, 0, start_state(poisoned), error_feedback_digest(unit.slot_state.error_feedback))
    for run in (
        lambda: run_unit(poisoned, tmp_path, lambda step, loss: losses.append(loss)),
        lambda: replay_segment(poisoned, 0, leaf, None, lambda step, loss: losses.append(loss)),
    ):
        with raises_code(TrainingDiverged, "diverged", match="gradient is not finite at step 0"):
            run()
    assert losses == []


@pytest.mark.parametrize(("value", "diverges"), [(63.0, False), (65.0, True)])
def test_unit_beyond_aggregation_has_diverged(unit: Unit, tmp_path: Path, value: float, diverges: bool) -> None:
    """No aggregation would take its payload, so the model would stay as it is."""
    feedback = np.full(unit.spec.num_parameters(), value, np.float32)
    spec = replace(unit.spec, training=replace(unit.spec.training, error_feedback_decay=1.0))
    far = replace(unit, spec=spec, slot_state=replace(unit.slot_state, error_feedback=feedback))
    if diverges:
        with raises_code(TrainingDiverged, "diverged", match="moved a parameter by more than 64"):
            run_unit(far, tmp_path)
    else:
        run_unit(far, tmp_path)


def test_training_with_non_finite_end_has_diverged(unit: Unit, tmp_path: Path) -> None:
    """The decay of a large row that no text uses, added to a large error feedback, overflows."""
    largest, embedding = np.finfo(np.float32).max, unit.checkpoint["model.embed_tokens.weight"].copy()
    embedding[255] = largest
    feedback = np.full(unit.spec.num_parameters(), largest)
    start = {**unit.checkpoint, "model.embed_tokens.weight": embedding}
    spec = replace(unit.spec, training=replace(unit.spec.training, error_feedback_decay=1.0))
    poisoned = replace(unit, spec=spec, checkpoint=start, slot_state=replace(unit.slot_state, error_feedback=feedback))
    losses = list[float]()
    with raises_code(TrainingDiverged, "diverged", match="the unit's end"):
        run_unit(poisoned, tmp_path, lambda step, loss: losses.append(loss))
    assert np.isfinite(losses).all()
    assert len(losses) == 12


def test_batches_depend_on_all_coordinates_only() -> None:
    tokens = one_shard(SPEC, np.random.default_rng(0).bytes(100_000))
    coordinates = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)]
    batches = [collate(training_samples(SPEC, tokens, *where)).inputs for where in coordinates]
    assert all((batches[0] != other).any() for other in batches[1:])
    assert (collate(training_samples(SPEC, tokens, 0, 0, 0)).inputs == batches[0]).all()
    assert batches[0].shape == (4, 16)
    assert len({tuple(row) for row in batches[0]}) == 4


def test_round_reads_each_sequence_once() -> None:
    """Two replicas of 12 steps of 4 sequences each read all 96 of one epoch."""
    spec = replace(SPEC, replicas=2)
    tokens = one_shard(spec, bytes(range(96)) * 16 + b"!")
    places = [unit_places(spec, tokens.order, 0, slot, range(12)) for slot in range(2)]
    assert sorted(places[0] + places[1]) == [(0, sample) for sample in range(96)]


def test_process_without_profile_variables_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MKL_CBWR", "COMPATIBLE")
    with pytest.raises(ProfileError) as refusal:
        configure(CPU)
    assert refusal.value.field == "MKL_CBWR"


def test_class_names_processor_unless_intel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cpu_info = tmp_path / "cpuinfo"
    monkeypatch.setattr(classes, "CPU_INFO", cpu_info)
    monkeypatch.setattr(classes, "probe", lambda _: bytes(32))

    def class_of(vendor: str, model: int) -> str:
        one = f"vendor_id\t: {vendor}\ncpu family\t: 25\nmodel\t\t: {model}\nmodel name\t: {vendor} Processor\n"
        cpu_info.write_text(f"{one}\n{one}")
        return classes.environment_class(CPU)

    intel = class_of("GenuineIntel", 85)
    assert class_of("GenuineIntel", 106) == intel
    assert len({intel, class_of("AuthenticAMD", 1), class_of("AuthenticAMD", 17)}) == 3


_NVRM = [
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\nGCC version:  12.3.0",
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.14  Release Build  (builder)  Thu Feb 22",
]


def test_class_names_gpu_and_its_libraries(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    driver, card = tmp_path / "version", {"name": "RTX 4080", "major": 8, "minor": 9}
    monkeypatch.setattr(classes, "DRIVER", driver)
    monkeypatch.setattr(classes, "probe", lambda _: bytes(32))

    def class_of(nvrm: int = 0, blas: str = "12.8.4", cores: int = 76, mib: int = 16_000) -> str:
        driver.write_text(_NVRM[nvrm])
        properties = SimpleNamespace(**card, multi_processor_count=cores, total_memory=mib << 20)
        monkeypatch.setattr("torch.cuda.get_device_properties", lambda _: properties)
        installed = [SimpleNamespace(name=name, version=blas) for name in ("nvidia-cublas-cu12", "numpy")]
        monkeypatch.setattr(classes, "distributions", lambda: installed)
        assert classes._graphics(driver)["driver"] == [["535.104.05"], ["550.54.14"]][nvrm]
        return classes.environment_class(CUDA)

    other = [class_of(), class_of(nvrm=1), class_of(blas="12.8.5"), class_of(cores=38), class_of(mib=24_000)]
    assert len(set(other)) == 5
    assert class_of() == other[0]
