"""Inner steps of a unit, in one process or in several (``optimise/processes.py``).

Process 0 leads: it holds the unit's states, trace and payload, and starts each segment. The others only run steps.
"""

import math
from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from training_gym.data.dataset import training_samples
from training_gym.data.samples import Sample, collate, count_of
from training_gym.model.layout import Arrays, NamedArrays, moment_names
from training_gym.model.network import Network, Rows, base_of, rows_on
from training_gym.optimise.inner import clip_gradients, optimizer_step
from training_gym.optimise.ordered_sum import TreeSum, tree_sum
from training_gym.optimise.processes import ONE_PROCESS, OneProcess, receive_steps, send_steps
from training_gym.runtime.determinism import seed_step
from training_gym.spec.config import TrainingConfig
from training_gym.spec.errors import TrainingDiverged
from training_gym.units.replica_state import MAX_STEPS
from training_gym.units.trace import Unit, boundary_shapes, parameters_of

OnStep = Callable[[int, float], None]
Train = Callable[[Unit, NamedArrays, range, OnStep], tuple[Arrays, float]]
"""(unit, state, inner steps, observer) -> the state after them and their mean loss in nats."""


def ignore_step(step: int, loss: float) -> None:
    """Do nothing: the default observer."""


class Group(Protocol):
    """Processes that train a unit together and average gradients at every step.

    Attributes:
        slots: replicas whose batches this process takes; equally many in every process.
    """

    slots: Sequence[int]

    def attach(self, network: Network) -> Callable[[Rows, float], Tensor]:
        """Return the network's loss; its backward pass leaves the group's mean gradients."""


def train_steps(
    unit: Unit,
    state: NamedArrays,
    steps: range,
    on_step: OnStep,
    group: Group | None = None,
    processes: OneProcess = ONE_PROCESS,
) -> tuple[Arrays, float]:
    """Return the state after the inner ``steps``, and mean loss. Raises TrainingDiverged."""
    spec, training = unit.spec, unit.spec.training
    network = network_of(unit, parameters_of(state))
    loss_of = network if group is None else group.attach(network)
    parameters = processes.attach(network)
    kept = {tensor.name: moment_names(training, tensor) for tensor in spec.trained_tensors()}
    moments = {
        name: tuple(processes.own(torch.tensor(state[f"{moment}.{name}"], device=unit.device)) for moment in names)
        for name, names in kept.items()
    }
    slots = [unit.slot] if group is None else group.slots
    train = unit.train
    assert train is not None
    losses = []
    for step in steps:
        batch = [one for slot in slots for one in training_samples(spec, train, unit.round, slot, step)]
        loss, gradients = _gradients(unit, network, loss_of, batch, step, processes)
        losses.append(loss)
        _require_finite(loss, "loss", step)
        for parameter, gradient in zip(parameters.values(), gradients, strict=True):
            parameter.grad = gradient
        _require_finite(clip_gradients(spec, parameters, processes), "gradient", step)
        seen = min(unit.slot_state.steps + step, MAX_STEPS)
        share = rate_share(training, unit.round, step, seen, spec.start_rate_share)
        optimizer_step(spec, parameters, moments, seen, share, processes)
        for parameter in parameters.values():
            parameter.grad = None
        on_step(step, loss)
    after: Arrays = {}
    for tensor in spec.trained_tensors():
        parts = (parameters[tensor.name].detach(), *moments[tensor.name])
        for part, tensors in zip(("parameters", *kept[tensor.name]), parts, strict=True):
            after[f"{part}.{tensor.name}"] = processes.whole(tensors, tensor.shape).cpu().numpy()
    return after, sum(losses) / max(len(losses), 1)


def _require_finite(value: float, name: str, step: int) -> None:
    if not math.isfinite(value):
        raise TrainingDiverged("diverged", "training_config.learning_rate", f"{name} is not finite at step {step}")


def _gradients(
    unit: Unit,
    network: Network,
    loss_of: Callable[[Rows, float], Tensor],
    batch: Sequence[Sample],
    step: int,
    processes: OneProcess,
) -> tuple[float, Sequence[Tensor]]:
    """Return a batch's mean loss and its gradients: the sums over its parts along the tree."""
    training, trained = unit.spec.training, list(network.trained().values())
    length, count = len(batch) // training.gradient_shards, max(1, count_of(batch))
    losses, total = [], TreeSum()
    for shard in processes.shards(training.gradient_shards):
        seed_step(training.seed, unit.spec.start_round + unit.round, unit.slot, step, shard)
        part, loss = batch[shard * length : (shard + 1) * length], 0.0
        micro_batch = training.micro_batch_size or length
        for start in range(0, length, micro_batch):
            processes.complete(network, start + micro_batch >= length)
            partial_loss = loss_of(rows_on(unit.device, collate(part[start : start + micro_batch])), count)
            partial_loss.backward()  # type: ignore[no-untyped-call]
            loss += partial_loss.item()
        losses.append(loss)
        total.add([processes.take_gradient(parameter) for parameter in trained])
    summed = tree_sum(processes.losses(losses, unit.device).view(-1, 1))
    return summed.item(), processes.sum(total.total())


def train_together(processes: OneProcess) -> Train:
    """Return :func:`train_steps` of process 0, in which all ``processes`` take part."""
    if processes.count == 1:
        return train_steps

    def train(unit: Unit, state: NamedArrays, steps: range, on_step: OnStep) -> tuple[Arrays, float]:
        send_steps(steps, state, unit.device)
        return train_steps(unit, state, steps, on_step, processes=processes)

    return train


def follow(unit: Unit, processes: OneProcess) -> None:
    """Run the steps that process 0 sends until :func:`finish`; the unit needs no states."""
    while (given := receive_steps(boundary_shapes(unit.spec), unit.device)) is not None:
        steps, state = given
        train_steps(unit, state, steps, ignore_step, processes=processes)


def finish(processes: OneProcess, device: str) -> None:
    """End the unit of all ``processes``, in process 0."""
    if processes.count > 1:
        send_steps(None, {}, device)


def network_of(unit: Unit, parameters: NamedArrays) -> Network:
    """Return the unit's network with these parameters, on its device."""
    base = None if unit.base is None else base_of(unit.spec.model, unit.base, unit.spec.training.precision)
    return Network(unit.spec, parameters, unit.device, base)


def rate_share(training: TrainingConfig, round_: int, step: int, seen: int, start: float = 1.0) -> float:
    """Return the share of the peak rate: warm-up by steps ``seen``, linear decay from ``start``."""
    warm = min(1.0, (seen + 1) / (training.warmup_steps + 1))
    done = (round_ * training.inner_steps + step) / (training.rounds * training.inner_steps)
    return warm * (start - (start - training.final_rate_share) * done)
