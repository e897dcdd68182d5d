"""Kept runs, and the attack that knows the rules."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from benchmarks.byzantine import ATTACKS, MODEL
from benchmarks.robustness import long_runs
from benchmarks.robustness.adaptive import Wide, accepted_payloads, unit
from benchmarks.robustness.ascent import ascent
from benchmarks.robustness.kept import KeptRuns
from benchmarks.robustness.sampling import MARKET, Sampling, losses_of, quiet
from training_gym.aggregate.aggregation import Aggregate, aggregate
from training_gym.aggregate.outer_step import OuterState, initial_outer_state, outer_step
from training_gym.compress.payload_format import decode, encode
from training_gym.data.dataset import one_shard, validation_samples
from training_gym.evaluate.loss import mean_loss
from training_gym.model.layout import Arrays, initial_parameters
from training_gym.spec.config import TrainingSpec
from zoo_protocol.verification.training_faults import KnownLoss

SPEC = long_runs.spec_of(MODEL, 1, 3, 4, inner_steps=2, segment_steps=2, batch_size=2)
TEXTS = (np.frombuffer(bytes(range(256)) * 16, np.uint8), np.frombuffer(bytes(range(256)) * 8, np.uint8))


def test_interrupted_run_continues_to_same_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_runs, "_ROUNDS_PER_STATE", 1)
    whole = long_runs.train(SPEC, TEXTS, "ipm", 1, ATTACKS, KeptRuns(tmp_path / "a", tmp_path / "a-states"))
    kept, rounds = KeptRuns(tmp_path / "b", tmp_path / "b-states"), []
    one = long_runs._round

    def interrupted(*arguments: object) -> None:
        rounds.append(arguments)
        if len(rounds) == 3:
            raise KeyboardInterrupt
        one(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(long_runs, "_round", interrupted)
    with pytest.raises(KeyboardInterrupt):
        long_runs.train(SPEC, TEXTS, "ipm", 1, ATTACKS, kept)
    assert long_runs.train(SPEC, TEXTS, "ipm", 1, ATTACKS, kept) == whole
    assert len(rounds) == 4
    again = KeptRuns(tmp_path / "b", tmp_path / "b-states", can_measure=False)
    assert long_runs.train(SPEC, TEXTS, "ipm", 1, ATTACKS, again) == whole
    assert long_runs.train(SPEC, TEXTS, "alie", 1, ATTACKS, again) is None
    assert list((tmp_path / "b-states").iterdir()) == []


def test_long_rows_have_names_of_aims(tmp_path: Path) -> None:
    kept = KeptRuns(tmp_path / "kept", tmp_path)
    eight = replace(SPEC, replicas=8)
    other = replace(eight, training=replace(SPEC.training, seed=2))
    losses = dict.fromkeys(long_runs.ATTACKS[8], 2.1) | {"none": 2.0, "flip_25": 2.2, "adaptive_37": 9.0}
    for spec, name in [*((eight, name) for name in losses), (other, "none"), (other, "flip_25")]:
        attack, bad = name.partition("_")[0], long_runs.ATTACKS[8][name]
        kept.add(long_runs.identity(spec, attack, bad, long_runs.TEXT), losses[name])
    kept = KeptRuns(tmp_path / "kept", tmp_path, can_measure=False)  # whatever text this machine has
    rows = {one.name: (one.value, one.repetitions) for one in long_runs.rows_of([eight, other], TEXTS, ATTACKS, kept)}
    assert rows.keys() == {
        "rounds",
        "adaptive_25_ours",
        *(f"long_{name}_25_ours" for name in ("flip", "alie", "mimic", "stale", "noise")),
        *(f"long_{name}{low}_25_ours" for name in long_runs.ALONG_GRADIENT for low in ("", "_low")),
        "adaptive_37_ours",
        "long_ascent_37_ours",
        "worst_25_ours",
        "diverged_37_ours",
    }
    assert rows["adaptive_25_ours"] == pytest.approx((0.05, 1))
    assert rows["adaptive_37_ours"] == pytest.approx((3.5, 1))
    assert rows["long_flip_25_ours"] == pytest.approx((0.1, 2))
    assert rows["worst_25_ours"] == pytest.approx((0.1, 1))
    assert rows["diverged_37_ours"] == (1, 1)


def test_long_rows_of_four_workers_have_own_names(tmp_path: Path) -> None:
    kept = KeptRuns(tmp_path / "kept", tmp_path)
    for attack, bad, loss in (("none", 0, 2.0), ("adaptive", 1, 2.1)):
        kept.add(long_runs.identity(SPEC, attack, bad, long_runs.TEXT), loss)
    kept = KeptRuns(tmp_path / "kept", tmp_path, can_measure=False)
    rows = {one.name: one.value for one in long_runs.rows_of([SPEC], TEXTS, ATTACKS, kept)}
    assert rows == {"four_rounds": 3, "four_adaptive_25_ours": pytest.approx(0.05)}


def test_run_on_other_text_is_measured_again(tmp_path: Path) -> None:
    kept = KeptRuns(tmp_path / "kept", tmp_path)
    kept.add(long_runs.identity(SPEC, "none", 0, long_runs.TEXT), 2.0)
    assert long_runs.train(SPEC, TEXTS, "none", 0, ATTACKS, kept) != 2.0


def test_changed_attack_is_measured_again(tmp_path: Path) -> None:
    kept = KeptRuns(tmp_path / "kept", tmp_path)
    run = long_runs.identity(SPEC, "alie", 1, long_runs.text_digest(TEXTS)) | {"attack": "alie"}
    kept.add(run, 2.0)
    assert long_runs.train(SPEC, TEXTS, "alie", 1, ATTACKS, kept) != 2.0


def test_stale_attackers_repeat_their_first_payloads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds: list[dict[int, bytes]] = []

    def watched(spec: TrainingSpec, start: Arrays, payloads: dict[int, bytes], *, outer_state: OuterState) -> Aggregate:
        rounds.append(payloads)
        return aggregate(spec, start, payloads, outer_state=outer_state)

    monkeypatch.setattr(long_runs, "aggregate", watched)
    long_runs.train(SPEC, TEXTS, "stale", 2, ATTACKS, KeptRuns(tmp_path / "kept", tmp_path))
    sent = [(payloads[2], payloads[3]) for payloads in rounds]
    assert sent == [sent[0]] * 3
    assert sent[0][0] != sent[0][1]


@pytest.mark.parametrize("attack", ["alie", "ipm", "mimic"])
def test_attackers_payloads_are_accepted_and_harm(attack: str) -> None:
    common, honest = _honest(6)
    vectors = _dense(honest)
    lie, state = ATTACKS[attack](vectors, np.random.default_rng(1)), initial_outer_state(SPEC)
    sent = accepted_payloads(SPEC, honest, range(6, 8), state, lie, np.random.default_rng(1))
    result = aggregate(SPEC, initial_parameters(SPEC), honest | sent, outer_state=state)
    assert all(verdict.included for verdict in result.verdicts.values())
    mean = vectors.mean(axis=0)
    assert (result.outer_state.aggregate - mean) @ lie > 0
    assert result.outer_state.aggregate @ common < 0.97 * (mean @ common)


def test_many_attackers_send_payloads_beyond_clip_radius() -> None:
    _, honest = _honest(5)
    vectors, state = _dense(honest), initial_outer_state(SPEC)
    lie = -vectors.mean(axis=0)
    sent = _dense(accepted_payloads(SPEC, honest, range(5, 8), state, lie, np.random.default_rng(1)))
    assert np.linalg.norm(sent, axis=1).min() > 3 * np.linalg.norm(vectors, axis=1).max()


def test_ascent_raises_loss_more_than_opposite_of_mean() -> None:
    _, honest = _honest(6)
    vectors, start, state = _dense(honest), initial_parameters(SPEC), initial_outer_state(SPEC)
    samples = validation_samples(one_shard(SPEC, TEXTS[0]), 16)
    losses = []
    for direction in (ascent(SPEC, start, state, vectors, 2, TEXTS[0]), unit(-vectors.mean(axis=0))):
        lie = (direction * np.linalg.norm(vectors[0])).astype(np.float32)
        sent = honest | {slot: encode(SPEC, lie) for slot in (6, 7)}
        mean = _dense(sent).mean(axis=0).astype(np.float32)
        losses.append(mean_loss(SPEC, outer_step(SPEC, start, mean, state).parameters, samples))
    assert losses[0] > 1.01 * losses[1]


@pytest.mark.parametrize(("excluded", "losses"), [([3], [2.0, 2.0]), ([], [2.0, 2.1])], ids=["excluded", "worse"])
def test_sampled_attackers_begin_late_and_are_replaced(excluded: list[int], losses: list[float]) -> None:
    spec = replace(SPEC, training=replace(SPEC.training, rounds=60))
    dice = Mock(random=Mock(side_effect=[0.4] * 3))  # above the lowest rate, below that after a flag
    state = long_runs._State({}, initial_outer_state(spec), {}, dice, round=53)
    assert not long_runs._attacks(spec, state, "sampled", 3)
    for state.round, loss in zip((54, 55, 56), [*losses, 2.0], strict=True):
        assert long_runs._attacks(spec, state, "sampled", 3)
        state.sampling.close_round(state.round, {}, {MARKET: KnownLoss(loss)}, [3], excluded, dice)
    state.round = 58 if excluded else 59
    assert state.sampling.ends == {3: state.round}
    assert not long_runs._attacks(spec, state, "sampled", 3)


def test_best_model_replaces_worse_final_one() -> None:
    split = one_shard(SPEC, TEXTS[1])
    samples = validation_samples(split, 8)
    best = initial_parameters(SPEC)
    loss = mean_loss(SPEC, best, samples)
    sampling = Sampling()
    for round_, known in enumerate((2.0, 1.9, 2.1)):
        sampling.close_round(round_, best if round_ == 1 else {}, {MARKET: KnownLoss(known)}, [], [], Mock())
    assert sampling.delivered_loss(SPEC, 1.02 * loss, samples) == loss
    assert sampling.delivered_loss(SPEC, 1.005 * loss, samples) == 1.005 * loss
    sampling.models.append({MARKET: KnownLoss(1.9)})  # has not risen
    assert sampling.delivered_loss(SPEC, 1.02 * loss, samples) == 1.02 * loss


def test_quiet_attackers_avoid_flags() -> None:
    spec, (text, held_out) = replace(SPEC, replicas=8), TEXTS
    start, state, split = initial_parameters(spec), initial_outer_state(spec), one_shard(spec, held_out)
    sampling, (_, honest) = Sampling(), _honest(6)
    direction = ascent(spec, start, state, _dense(honest), 2, text)
    false = accepted_payloads(spec, honest, [6, 7], state, direction, np.random.default_rng(0))

    def loss_after(sent: Mapping[int, bytes]) -> float:
        found = losses_of(spec, aggregate(spec, start, {**honest, **sent}, outer_state=state).parameters, split, [])
        return found[MARKET].loss

    usual, worse = loss_after({}), loss_after(false)
    assert worse > 1.01 * usual
    sampling.models = [{MARKET: KnownLoss(worse)}]
    assert quiet(spec, sampling, start, state, honest, false, split) == false
    sampling.models = [{MARKET: KnownLoss((usual + worse) / 2)}]
    assert usual < loss_after(quiet(spec, sampling, start, state, honest, false, split)) < worse
    sampling.models = [{MARKET: KnownLoss(usual / 2)}]
    assert not np.any(_dense(quiet(spec, sampling, start, state, honest, false, split)))


def _honest(number: int) -> tuple[Wide, dict[int, bytes]]:
    noise = np.random.default_rng(0)
    common = noise.standard_normal(SPEC.num_parameters())
    vectors = [0.01 * (common + 2 * noise.standard_normal(len(common))) for _ in range(number)]
    return common, {slot: encode(SPEC, vector.astype(np.float32)) for slot, vector in enumerate(vectors)}


def _dense(payloads: Mapping[int, bytes]) -> Wide:
    return np.stack([decode(SPEC, payload).dense().astype(np.float64) for payload in payloads.values()])
