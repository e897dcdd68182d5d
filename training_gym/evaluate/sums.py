"""Sums over evaluated samples, for a mean loss and its standard error. No torch."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from statistics import median, median_low

from training_gym.spec.errors import ResultMismatch

_ONE = 1 << 20
"""Fixed point of a loss: integers add up exactly, in any order."""
_LARGEST = 1 << 60  # nats; stands for a sample's loss that is not finite, so that no mean is
MAX_BYTES = 512
_MAX_SHARE, _MAX_ERRORS = 0.1, 6.0
"""Distance of a record from the median: shares of its loss, and standard errors of a usual record."""
_SAMPLES_OF_ERROR = 6
_FORM = re.compile(rb"(?:(?:0|[1-9][0-9]{0,79})(?: (?!$)|$)){6}")


@dataclass(frozen=True, slots=True)
class LossSums:
    """Exact sums over samples with losses l, in nats / 2**20, and numbers of targets t.

    Attributes:
        samples: number of samples.
        targets, losses: sums of t and of l.
        target_squares, loss_squares, products: sums of t², of l² and of l·t.
    """

    samples: int = 0
    targets: int = 0
    losses: int = 0
    target_squares: int = 0
    loss_squares: int = 0
    products: int = 0

    @classmethod
    def of(cls, losses: Sequence[float], counts: Sequence[int]) -> "LossSums":
        """Return the sums of samples with these losses in nats and numbers of targets."""
        whole = [round(_ONE * (one if 0 <= one < _LARGEST else _LARGEST)) for one in losses]
        return cls(
            samples=len(whole),
            targets=sum(counts),
            losses=sum(whole),
            target_squares=sum(count**2 for count in counts),
            loss_squares=sum(one**2 for one in whole),
            products=sum(one * count for one, count in zip(whole, counts, strict=True)),
        )

    def __add__(self, other: "LossSums") -> "LossSums":
        return LossSums(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))

    @property
    def loss(self) -> float:
        """The mean loss of a target in nats."""
        return float(self._mean() / _ONE)

    @property
    def error(self) -> float:
        """The standard error of :attr:`loss`, as of a ratio of sums; infinite for one sample."""
        if self.samples < 2:
            return math.inf
        mean = self._mean()
        squares = self.loss_squares - 2 * mean * self.products + mean**2 * self.target_squares
        return math.sqrt(squares * self.samples / (self.samples - 1)) / (_ONE * max(1, self.targets))

    def _mean(self) -> Fraction:
        return Fraction(self.losses, max(1, self.targets))

    def to_bytes(self) -> bytes:
        """Return the record: the six integers in decimal, in order, between spaces."""
        return " ".join(str(getattr(self, one.name)) for one in fields(self)).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> "LossSums":
        """Return a node's record. Raises ResultMismatch: malformed, or of no samples."""
        if not _FORM.fullmatch(data) or not (found := cls(*map(int, data.split())))._is_possible():
            raise ResultMismatch("evaluation_malformed", "evaluation", "is not a record of sums over samples")
        return found

    def _is_possible(self) -> bool:
        return (  # Cauchy's inequality, which any samples satisfy
            self.samples > 0
            and self.losses**2 <= self.samples * self.loss_squares
            and self.targets**2 <= self.samples * self.target_squares
            and self.products**2 <= self.loss_squares * self.target_squares
        )


def largest_distance(loss: float, error: float) -> float:
    """Return how far a record may be from a loss, by the standard error of a usual record."""
    return _MAX_SHARE * loss + _MAX_ERRORS * error


def pooled(records: Sequence[LossSums]) -> LossSums | None:
    """Return the sum of one model's records near the median; None if none is."""
    near = near_median(dict(enumerate(records)))
    found = LossSums()
    for one in near.values():
        found += one
    return found if near else None


def near_median(records: Mapping[int, LossSums]) -> dict[int, LossSums]:
    """Return one model's records near the median, by slot.

    No replay has checked the records yet. A false one could feign a spike, or hide one by a large error. Of two that
    differ widely, none is the majority.

    Args:
        records: at least one, by slot.
    """
    middle, error = median(one.loss for one in records.values()), median_low(one.error for one in records.values())
    within = largest_distance(middle, error)
    if len(records) > 1 and not math.isfinite(error):  # of one sample each: none is known to be far away
        return {}
    if len(records) == 2:
        within /= 2  # both are as far from the middle
    # The errors of honest records differ widely if they are of few samples. Of two, either may be the usual one.
    is_usual = len(records) > 2 and median_low(one.samples for one in records.values()) >= _SAMPLES_OF_ERROR
    usual = _MAX_ERRORS * error if is_usual else math.inf
    return {slot: one for slot, one in records.items() if abs(one.loss - middle) <= within and one.error <= usual}
