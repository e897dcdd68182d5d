"""Length of a job in epochs. No torch.

Market and client call the same function, so that what is priced and what is signed is one specification, which has
``rounds`` only.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from training_gym.data.dataset import DatasetManifest, Split
from training_gym.spec.config import MAX_ROUNDS, TrainingSpec
from training_gym.spec.errors import SpecError
from training_gym.spec.setting_fields import number_field, read_settings

_FIELD = "training_config.epochs"


@dataclass(frozen=True, slots=True)
class _Length:
    epochs: float = number_field(1.0, 1e-6, 1e6)


def samples_per_round(spec: TrainingSpec) -> int:
    """Return the samples that all replicas together read in a round."""
    return spec.training.inner_steps * spec.training.batch_size * spec.replicas


def epochs_of(spec: TrainingSpec, manifest: DatasetManifest) -> float:
    """Return how often the job reads its training split, with the rounds before ``start_round``.

    Raises:
        StateError: the dataset does not suit the job, as for :class:`Split`.
    """
    return (spec.start_round + spec.training.rounds) * samples_per_round(spec) / _samples(spec, manifest)


def _samples(spec: TrainingSpec, manifest: DatasetManifest) -> int:
    return Split(spec, manifest.layout, [shard.size for shard in manifest.train], {}).order.size


def settings_with_rounds(
    job: Mapping[str, Any],
    nodes: int,
    manifest_of: Callable[[TrainingSpec], DatasetManifest],
    max_rounds: int = MAX_ROUNDS,
) -> dict[str, Any]:
    """Return a job's ``training_config`` with ``rounds`` in place of ``epochs``.

    Without epochs it is unchanged. With them the job takes the fewest rounds whose units together read at least that
    many epochs of samples.

    Args:
        job: document of :meth:`TrainingSpec.from_dict`; ``training_config.epochs`` may be a fraction.
        nodes: nodes of the job.
        manifest_of: reads the dataset of a specification that is complete but for its rounds.
        max_rounds: largest number of rounds.

    Raises:
        SpecError: epochs next to rounds, out of range or of a wrong type, too many rounds, or another wrong setting.
        ManifestError, StateError: the dataset does not suit the job, as for :class:`Split`.
    """
    given = dict(job.get("training_config", {}))
    if "epochs" not in given:
        return given
    if "rounds" in given:
        detail = f"is {given['epochs']!r:.80}, and rounds is {given['rounds']!r:.80}; expected one of them. Remove one"
        raise SpecError("contradicts_rounds", _FIELD, detail)
    epochs = read_settings(_Length, {"epochs": given.pop("epochs")}, "training_config").epochs
    # No setting that an epoch's rounds depend on depends on rounds; the most allow every warm-up.
    spec = TrainingSpec.from_dict({**job, "training_config": given | {"rounds": MAX_ROUNDS}}, nodes)
    manifest = manifest_of(spec)
    samples, read = _samples(spec, manifest), samples_per_round(spec)
    rounds = math.ceil(Fraction(str(epochs)) * samples / read)  # the decimal as written: 0.1 is a tenth
    if rounds > max_rounds:
        detail = (
            f"is {epochs:g}; {samples} samples an epoch take {rounds} rounds of {read} samples on {spec.replicas} "
            f"nodes, beyond {max_rounds}. Take fewer epochs, more inner_steps or a larger batch_size"
        )
        raise SpecError("out_of_range", _FIELD, detail)
    return given | {"rounds": rounds}
