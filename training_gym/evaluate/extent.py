"""Number of samples of an evaluation. No torch."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from training_gym.data.dataset import DatasetManifest, validation_size
from training_gym.evaluate.sums import LossSums
from training_gym.spec.config import MAX_EVALUATED, TrainingSpec
from training_gym.spec.costs import flops_per_evaluation, flops_per_unit, targets_per_sample
from training_gym.spec.errors import ResultMismatch

MAX_WINDOWS = 256
MAX_FINAL_WINDOWS = 1 << 14
MAX_FLOPS = 10**14
"""Limit of an evaluation that is more than 1/50 of its job's training: some minutes of a processor."""
WANTED_ERROR = 0.003
"""Share of the loss below which its standard error is small enough."""
TRAINING_PARTS, _SEGMENT_PARTS = 50, 4
"""The evaluation of a unit takes by default 1/50 of its training, and 1/4 of a segment, at most.

Each by verifiers takes 1/50 of the job's. A replay of the last segment repeats a unit's, and is paid as that of
any other segment.
"""
_MIN_REPLICAS = 3
LEAST_SAMPLES = 16
"""Least samples of a round's model: the rule of spikes compares losses, also if some units are lost."""
_FOR_ERROR = 2


def evaluation_limit(spec: TrainingSpec, round_: int) -> int:
    """Return the most samples for a checkpoint: more for the first and the last."""
    if round_ not in (0, spec.training.rounds):
        return _limit(spec, LEAST_SAMPLES, MAX_WINDOWS)
    return _limit(spec, MAX_WINDOWS, MAX_FINAL_WINDOWS)


def _limit(spec: TrainingSpec, least: int, most: int) -> int:
    """Return the most samples: ``least``, or as many as ``MAX_FLOPS`` allow.

    A short job of a large model pays for less. So it has at most 1/50 of its training, or those of ``MAX_FLOPS``.
    """
    paid = _training(spec) // (TRAINING_PARTS * flops_per_evaluation(spec))
    return max(_FOR_ERROR, min(least, paid), min(most, MAX_FLOPS // flops_per_evaluation(spec)))


def is_affordable(spec: TrainingSpec) -> bool:
    """Return whether two samples, the least that have an error, are within the limit."""
    needed = _FOR_ERROR * flops_per_evaluation(spec)
    return needed <= max(MAX_FLOPS, _training(spec) // TRAINING_PARTS)


def _training(spec: TrainingSpec) -> int:
    return flops_per_unit(spec) * spec.replicas * spec.training.rounds


def evaluated_every(spec: TrainingSpec) -> int:
    """Return after how many rounds the market evaluates a checkpoint, not the first or last.

    The payer does not pay for it. So all of a job take at most ``MAX_FLOPS``, or one evaluation. If units evaluate, the
    market does those of which too few records count.
    """
    each = _limit(spec, LEAST_SAMPLES, MAX_WINDOWS) * flops_per_evaluation(spec)
    return math.ceil(spec.training.rounds * each / MAX_FLOPS)


def is_by_verifiers(spec: TrainingSpec, size: int) -> bool:
    """Return whether verifiers evaluate the final model, and the first one unless units do.

    Otherwise the market does. A small job's evaluation can be more work than its training.

    Args:
        size: samples of the validation split.
    """
    most = min(size, evaluation_limit(spec, spec.training.rounds))
    return TRAINING_PARTS * most * flops_per_evaluation(spec) <= _training(spec)


def is_first_by_market(spec: TrainingSpec, size: int) -> bool:
    """Return whether neither units nor verifiers evaluate the first model.

    Args:
        size: samples of the validation split.
    """
    return not spec.validation_samples and not is_by_verifiers(spec, size)


def is_enough_of_first(spec: TrainingSpec, found: LossSums) -> bool:
    """Return whether records of the first round are complete, and as many as the market takes."""
    whole = is_of_units(spec, 0, found.samples)
    return whole and is_enough(spec, 0, found.samples, (found.loss, found.error), MAX_FINAL_WINDOWS)


def is_of_units(spec: TrainingSpec, round_: int, samples: int) -> bool:
    """Return whether a loss may be that of the first model by units of all replicas."""
    return round_ == 0 and spec.replicas >= _MIN_REPLICAS and samples == spec.validation_samples * spec.replicas


def is_enough(spec: TrainingSpec, round_: int, samples: int, loss: tuple[float, float], size: int) -> bool:
    """Return whether the first or the final model was evaluated on enough samples.

    Args:
        round_: 0, or the job's rounds.
        loss: the loss and its standard error.
        size: samples of the split.
    """
    if loss[1] <= WANTED_ERROR * loss[0] or samples >= min(size, evaluation_limit(spec, round_)):
        return True
    return is_of_units(spec, round_, samples) and samples >= min(size, MAX_FLOPS // flops_per_evaluation(spec))


def check_record(spec: TrainingSpec, data: bytes, most: int) -> None:
    """Check the form of a record and its numbers, of at most ``most`` samples; not its sums.

    A false record of more targets than its samples can have would outweigh those of all other units.

    Raises:
        ResultMismatch: malformed, or of too many samples or targets.
    """
    found = LossSums.from_bytes(data)
    if found.samples > most or found.targets > found.samples * targets_per_sample(spec):
        detail = f"has {found.samples} samples and {found.targets} targets, more than the specification"
        raise ResultMismatch("evaluation_malformed", "evaluation", detail)


def check_receipt_record(spec: TrainingSpec, data: bytes, size: int) -> None:
    """Check a verifier's record of the first or the final model; not its sums.

    Args:
        size: samples of the validation split.

    Raises:
        ResultMismatch: malformed, or not of as many samples as :func:`training_gym.evaluate.loss.evaluate` takes.
    """
    rounds = spec.training.rounds
    most = min(size, evaluation_limit(spec, rounds))
    check_record(spec, data, most)
    found = LossSums.from_bytes(data)
    doubled = MAX_WINDOWS << max(0, (found.samples // MAX_WINDOWS).bit_length() - 1)
    if found.samples not in (most, doubled) or not is_enough(
        spec, rounds, found.samples, (found.loss, found.error), size
    ):
        detail = f"has {found.samples} samples; expected {MAX_WINDOWS}, doubled until the error is small, or all {most}"
        raise ResultMismatch("evaluation_malformed", "evaluation", detail)


def affordable_samples(spec: TrainingSpec) -> int:
    """Return the samples that a unit evaluates by default; 0: the market evaluates."""
    if spec.training.averaging != "rounds":
        return 0
    training = flops_per_unit(replace(spec, validation_samples=0))
    share = training // max(TRAINING_PARTS, _SEGMENT_PARTS * spec.segments)
    samples = min(MAX_EVALUATED, share // flops_per_evaluation(spec))
    return samples if samples * spec.replicas >= LEAST_SAMPLES else 0


def settings_with_samples(
    job: Mapping[str, Any], nodes: int, manifest_of: Callable[[TrainingSpec], DatasetManifest]
) -> dict[str, Any]:
    """Return a job's ``data_config`` with ``validation_samples``, at most the split's.

    A given number stays within that limit. One sample becomes none: no error follows from its record, which would be
    paid and not count.

    Market and client call the same function, so that what is priced and what is signed is one specification.

    Args:
        job: document of :meth:`TrainingSpec.from_dict`, with rounds.
        nodes: nodes of the job.
        manifest_of: reads the dataset of the specification; called only if a unit evaluates a sample.

    Raises:
        SpecError: a wrong setting.
        ManifestError, StateError: the dataset does not suit the job, as for :class:`Split`.
    """
    given = dict(job["data_config"])
    spec = TrainingSpec.from_dict(job, nodes)
    samples = spec.validation_samples if "validation_samples" in given else affordable_samples(spec)
    if samples:
        manifest = manifest_of(spec)
        size = validation_size(spec, manifest)
        samples = min(samples, size // spec.replicas)  # each replica has some: a quorum of records counts
    return given | {"validation_samples": samples if samples > 1 else 0}
