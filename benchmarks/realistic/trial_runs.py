"""Training rules of trials: averaged momentum, growing rounds, overlap by mixing."""

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from benchmarks.realistic.corpus import Corpus
from benchmarks.realistic.runs import KeptState, Note, Result, evaluated_loss, rounds, train_units
from training_gym.aggregate.aggregation import aggregate
from training_gym.aggregate.outer_step import initial_outer_state
from training_gym.exchange.early_start import start_parameters
from training_gym.model.layout import NamedArrays, initial_parameters
from training_gym.spec.config import TrainingSpec
from training_gym.units.replica_state import ReplicaState, fresh_slot_state

_SHORTEST_SHARE = 0.4
"""Length of the first round over the mean; the last is as much above it."""
_LOCAL_SHARE = 0.5
"""Share of the local model in a mixed start (Streaming DiLoCo: Douillard et al., 2025)."""


def rounds_of_shared_moments(
    spec: TrainingSpec, corpus: Corpus, held_out: str, kept: KeptState, device: str, note: Note
) -> Result:
    """Run ``rounds``; slots average Muon's momentum after each.

    It travels as float32 and counts as 8 bits a value, so that the loss is the best that this can give.
    """
    result = rounds(spec, corpus, held_out, kept, device, note, _averaged_momentum)
    values = sum(math.prod(tensor.shape) for tensor in spec.trained_tensors() if tensor.role == "matrix")
    sent = values * spec.training.rounds
    return replace(result, up=result.up + sent, down=result.down + sent)


def _averaged_momentum(spec: TrainingSpec, states: Mapping[int, ReplicaState]) -> dict[int, ReplicaState]:
    names = [f"exp_avg.{tensor.name}" for tensor in spec.trained_tensors() if tensor.role == "matrix"]
    mean = {name: np.mean([state.moments[name] for state in states.values()], axis=0) for name in names}
    return {slot: replace(state, moments={**state.moments, **mean}) for slot, state in states.items()}


def growing_rounds(
    spec: TrainingSpec, corpus: Corpus, held_out: str, kept: KeptState, device: str, note: Note
) -> Result:
    """Run ``rounds`` that grow linearly as the rate falls: five units on average."""
    return rounds(spec, corpus, held_out, kept, device, note, plan=growing_plan(spec.training.rounds, 5))


def growing_plan(units: int, mean: int) -> list[range]:
    """Return consecutive ranges of ``units``, on average ``mean`` long, from short to long."""
    count = units // mean
    shares = np.linspace(_SHORTEST_SHARE, 2 - _SHORTEST_SHARE, count)
    ends = np.rint(np.cumsum(shares) * units / count).astype(int)
    return [range(int(first), int(last)) for first, last in zip([0, *ends], ends, strict=False)]


def overlapped_rounds(
    spec: TrainingSpec, corpus: Corpus, held_out: str, kept: KeptState, device: str, note: Note
) -> Result:
    """Run rounds that start before the previous aggregation (``round_delay`` 1)."""
    return _overlapped(spec, corpus, held_out, device, note, mixed=False)


def mixed_rounds(spec: TrainingSpec, corpus: Corpus, held_out: str, kept: KeptState, device: str, note: Note) -> Result:
    """Run rounds that start from the mean of local model and newest aggregate."""
    return _overlapped(spec, corpus, held_out, device, note, mixed=True)


def _overlapped(spec: TrainingSpec, corpus: Corpus, held_out: str, device: str, note: Note, mixed: bool) -> Result:
    """Return the result of a whole run; no state is kept."""
    train, parameters, outer = corpus.split(spec, "train"), initial_parameters(spec), initial_outer_state(spec)
    states = dict.fromkeys(range(spec.replicas), fresh_slot_state(spec))
    starts: dict[int, NamedArrays] = dict.fromkeys(states, parameters)
    up = down = excluded = 0.0
    curve = []
    for round_ in range(spec.training.rounds):
        payloads, losses, ends = {}, [], {}
        for slot, state in states.items():
            trained = train_units(spec, range(round_, round_ + 1), slot, starts[slot], train, state, device)()
            payloads[slot], states[slot], ends[slot] = trained.payload, trained.state, trained.parameters
            losses.append(trained.loss)
        if mixed:
            starts = {slot: _mean(end, parameters) for slot, end in ends.items()}
        else:
            starts = {slot: start_parameters(spec, parameters, payload) for slot, payload in payloads.items()}
        result = aggregate(spec, parameters, payloads, outer_state=outer)
        parameters, outer = result.parameters, result.outer_state
        up += sum(map(len, payloads.values())) / len(payloads)
        down += len(result.update)
        excluded += sum(not verdict.included for verdict in result.verdicts.values())
        curve.append(round(float(np.mean(losses)), 4))
        note(f"round {round_ + 1} of {spec.training.rounds}: {curve[-1]}")
    loss = evaluated_loss(spec, parameters, corpus.split(spec, held_out), device)
    return Result(loss, up, down, int(excluded), curve)


def _mean(local: NamedArrays, shared: NamedArrays) -> NamedArrays:
    return {
        name: np.float32(_LOCAL_SHARE) * local[name] + np.float32(1 - _LOCAL_SHARE) * shared[name] for name in shared
    }
