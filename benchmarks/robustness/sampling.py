"""The market's sampling of attackers' units, and attackers that avoid its outlier flags."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

import numpy as np

from market.domain.network import BPS, MAINNET
from market.domain.verification.sampling import COMPARED_MODELS, FLAGGED_UNITS
from training_gym.aggregate.aggregation import aggregate
from training_gym.aggregate.outer_step import OuterState
from training_gym.compress.link_adaptation import decode_adapted, with_top_k
from training_gym.compress.payload_format import encode, top_k_of
from training_gym.data.dataset import Split, evaluated_numbers
from training_gym.data.samples import Sample
from training_gym.evaluate.extent import MAX_WINDOWS, affordable_samples
from training_gym.evaluate.loss import mean_loss, sums_of
from training_gym.model.layout import Arrays
from training_gym.model.network import Network
from training_gym.spec.config import TrainingSpec
from zoo_protocol.verification.rules import sampling_rate_bps
from zoo_protocol.verification.training_faults import KnownLoss, has_risen, is_worse, rise

REPLAY_ROUNDS = 2
"""Rounds that a provider goes on for while its unit is replayed."""
_CLEAN_UNITS = 1000
"""Verified units of a provider with the lowest sampling rate."""
_HALVINGS = 5
MARKET = -1
"""The market as an evaluator, beside slots."""
_LIE = KnownLoss(0.0)
"""Loss that attackers state of every model, so that none rises."""


@dataclass(slots=True)
class Sampling:
    """Losses, flags and ended nodes that the market knows of a run.

    Attributes:
        ends: by slot, first round of the honest node that follows a slashed one.
        flagged: by slot, round of the newest outlier flag.
        models: losses of the models by evaluator, a slot or ``MARKET``.
        parameters: of these models.
    """

    ends: dict[int, int] = field(default_factory=dict)
    flagged: dict[int, int] = field(default_factory=dict)
    models: list[dict[int, KnownLoss]] = field(default_factory=list)
    parameters: list[Arrays] = field(default_factory=list)

    def has_worse(self, losses: Mapping[int, KnownLoss]) -> bool:
        """Return True if the market flags the round before the model with these ``losses``."""
        best = min(self.models[-COMPARED_MODELS:], key=_whole_loss, default={})
        return has_risen(best, losses)

    def close_round(
        self,
        round_: int,
        parameters: Arrays,
        losses: dict[int, KnownLoss],
        false: Collection[int],
        excluded: Collection[int],
        dice: np.random.Generator,
    ) -> None:
        """Sample the last segment of each ``false`` unit, then set the flags for later rounds.

        Args:
            parameters, losses: model that the round started from.
            excluded: slots that aggregation excluded.
        """
        for slot in false:
            is_flagged = slot in self.flagged and round_ - self.flagged[slot] <= FLAGGED_UNITS
            rate = sampling_rate_bps(
                _CLEAN_UNITS, MAINNET.newcomer_sampling_bps, MAINNET.sampling_floor_bps, flagged=is_flagged
            )
            if dice.random() * BPS < rate:
                self.ends.setdefault(slot, round_ + 1 + REPLAY_ROUNDS)
            if slot in excluded or self.has_worse(losses):
                self.flagged[slot] = round_
        self.models.append(losses)
        self.parameters.append(parameters)

    def delivered_loss(self, spec: TrainingSpec, loss: float, samples: Sequence[Sample]) -> float:
        """Return the delivered model's loss: the final one's, ``loss``, or the best one's.

        A rise of the slots' losses decides which model is compared, not the final loss.
        """
        rises = [rise(one, self.models[-1]) for one in self.models]
        if max(rises) <= 0:
            return loss
        best = mean_loss(spec, self.parameters[int(np.argmax(rises))], samples)
        return best if is_worse(KnownLoss(loss), KnownLoss(best)) else loss


def losses_of(spec: TrainingSpec, parameters: Arrays, validation: Split, bad: Collection[int]) -> dict[int, KnownLoss]:
    """Return a model's losses by evaluator: slots, of which ``bad`` ones lie, or the market."""
    network, share = Network(spec, parameters, "cpu"), affordable_samples(spec)
    samples = {MARKET: range(MAX_WINDOWS)}
    if share:
        units = replace(spec, validation_samples=share)
        samples = {slot: evaluated_numbers(units, slot, validation.order) for slot in range(spec.replicas)}
    found = {}
    for one, numbers in samples.items():
        sums = sums_of(spec, network, validation, numbers, "cpu")
        found[one] = _LIE if one in bad else KnownLoss(sums.loss, sums.error)
    return found


def _whole_loss(losses: Mapping[int, KnownLoss]) -> float:
    """Return the loss of all samples, without the attackers' records, as the market does."""
    return fmean(one.loss for one in losses.values() if one != _LIE)


def quiet(
    spec: TrainingSpec,
    sampling: Sampling,
    parameters: Arrays,
    outer: OuterState,
    honest: Mapping[int, bytes],
    false: Mapping[int, bytes],
    validation: Split,
) -> Mapping[int, bytes]:
    """Return the ``false`` payloads, as long as the model after the round raises no flag."""

    def shorter(share: float) -> dict[int, bytes]:
        return {
            slot: encode(with_top_k(spec, top_k_of(sent)), np.float32(share) * decode_adapted(spec, sent).dense())
            for slot, sent in false.items()
        }

    def is_seen(sent: Mapping[int, bytes]) -> bool:
        result = aggregate(spec, parameters, {**honest, **sent}, outer_state=outer)
        return sampling.has_worse(losses_of(spec, result.parameters, validation, false))

    if not is_seen(false):
        return false
    unseen, seen = 0.0, 1.0
    for _ in range(_HALVINGS):
        share = (unseen + seen) / 2
        unseen, seen = (unseen, share) if is_seen(shorter(share)) else (share, seen)
    return shorter(unseen)
