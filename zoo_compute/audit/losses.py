"""Validation losses of a job's models, recomputed."""

import math
from collections.abc import Callable
from functools import partial

from training_gym.data.dataset import DatasetManifest, Split, read_split
from training_gym.evaluate.extent import MAX_WINDOWS, evaluation_limit, is_enough, is_first_by_market, is_of_units
from training_gym.evaluate.sums import largest_distance
from training_gym.spec.config import TrainingSpec
from training_gym.spec.errors import GymError
from zoo_compute.audit.rounds import Fetch
from zoo_compute.audit.settlements import Expect
from zoo_compute.content.gateway import UNAVAILABLE
from zoo_protocol.payments.job_record import CheckpointRecord, JobRecord
from zoo_protocol.verification.training_faults import LARGEST_LOSS, KnownLoss, is_worse

LOSS_TOLERANCE = 1e-4  # nats; the order of summation differs between processors
_ROUNDED = 1e-6  # nats; losses and errors are stated with six places

LossFunction = Callable[[bytes, bytes, Split, int], tuple[float, float]]
"""(canonical spec, model file, validation split, number of samples) -> loss and its error in nats per token.

Raises GymError, BlockNotFound, ContentError, GatewayUnavailable: the base model is malformed or not available.
"""
_LossOf = Callable[[int], tuple[float, float]]
"""Number of samples -> loss of a model and its error."""


class LossChecks:
    """Checks of the losses in a job record; each adds its findings.

    Without a loss function only their presence is checked.
    """

    def __init__(
        self, expect: Expect, fetch: Fetch, record: JobRecord, spec: TrainingSpec | None, loss: LossFunction | None
    ) -> None:
        self._expect, self._fetch, self._record, self._spec, self._loss = expect, fetch, record, spec, loss
        has_models = bool(record.checkpoints)  # of an order without nodes not even the data are kept
        self._validation = self._validation_split(spec) if spec is not None and has_models else None

    def checkpoints(self) -> None:
        """Check the stated losses of all checkpoints."""
        record, spec, validation = self._record, self._spec, self._validation
        by_nodes = spec is not None and (validation is None or not is_first_by_market(spec, validation.order.size))
        last, rounds = len(record.checkpoints) - 1, None if spec is None else spec.training.rounds
        needed = (rounds,) if by_nodes or record.outcome != "completed" else (0, rounds)
        for index, checkpoint in enumerate(record.checkpoints):
            where = f"checkpoints[{checkpoint.round}]"
            model = self._fetch(f"{where}.model_cid", checkpoint.model_cid)
            if model is None or spec is None:
                continue
            stated = checkpoint.validation_loss
            if stated is None and checkpoint.round in needed:
                self._expect("wrong_loss", where, "a validation loss", None)  # others can be unknown at settlement
            known = checkpoint.round in (0, rounds) or index == last
            if self._loss is not None and validation is not None and known and stated is not None:
                size = validation.order.size
                loss = partial(self._loss, spec.to_json(), model, validation)
                error = self._check_loss(loss, spec, checkpoint, size, where)
                if error is not None and checkpoint.round in (0, rounds):
                    self._check_samples(spec, checkpoint, error, size, where)
        first, final = (record.checkpoints[0], record.checkpoints[last]) if record.checkpoints else (None, None)
        self._expect("wrong_loss", "initial_loss", first and first.validation_loss, record.initial_loss)
        self._expect("wrong_loss", "final_loss", final and final.validation_loss, record.final_loss)
        self._expect("wrong_model", "final_model_cid", final and final.model_cid, record.final_model_cid)

    def replaced_model(self, model: bytes | None) -> None:
        """Check that a final ``model``, for which an earlier one was delivered, is worse than that.

        Args:
            model: what the payloads of the last round give; None: it was not replaced, or cannot be joined.
        """
        stated, spec, validation = self._record.final_loss, self._spec, self._validation
        if model is None or stated is None or self._loss is None or spec is None or validation is None:
            return
        where = f"rounds[{spec.training.rounds - 1}].rollback_reason"
        try:
            loss, deviation = self._whole(partial(self._loss, spec.to_json(), model, validation), spec, validation)
        except (GymError, *UNAVAILABLE) as error:
            self._expect("unresolvable", where, "the model's inputs", str(error))
            return
        found = KnownLoss(min(loss + _tolerance(spec, deviation), LARGEST_LOSS), deviation)
        if not is_worse(found, KnownLoss.of(stated, None)):
            self._expect("wrong_rollback", where, f"a loss more than 1 % above {stated}", f"{loss:.6f}")

    def _whole(self, loss: _LossOf, spec: TrainingSpec, validation: Split) -> tuple[float, float]:
        """Return loss and error of a final model, on as many samples as the market takes."""
        size, rounds = validation.order.size, spec.training.rounds
        most = min(size, evaluation_limit(spec, rounds))
        samples = min(MAX_WINDOWS, most)
        while not is_enough(spec, rounds, samples, found := loss(samples), size):
            samples = min(2 * samples, most)
        return found

    def _check_loss(
        self, loss: _LossOf, spec: TrainingSpec, checkpoint: CheckpointRecord, size: int, where: str
    ) -> float | None:
        """Compare a stated loss; return its error, recomputed if units state it. None: unknown."""
        samples = checkpoint.validation_samples or 0
        if not 0 < samples <= size:
            self._expect("wrong_loss", f"{where}.validation_samples", f"1 to {size}", checkpoint.validation_samples)
            return None
        # Of a stopped job's last model, units of some replicas alone evaluate other samples than the first ones.
        by_some = spec.validation_samples > 0 and checkpoint.round not in (0, spec.training.rounds)
        count = max(samples, min(size, MAX_WINDOWS)) if by_some else samples
        try:
            recomputed, deviation = (min(one, LARGEST_LOSS) for one in loss(count))
        except (GymError, *UNAVAILABLE) as error:
            self._expect("unresolvable", where, "the model's inputs", str(error))
            return None
        by_units, tolerance = by_some or is_of_units(spec, checkpoint.round, samples), _tolerance(spec, deviation)
        if by_units:  # a false record that no replay has checked moves it at most so far
            tolerance += largest_distance(recomputed, deviation * math.sqrt(count / spec.validation_samples))
        if abs(recomputed - float(checkpoint.validation_loss or "inf")) > tolerance:
            self._expect("wrong_loss", where, f"{recomputed:.6f}", checkpoint.validation_loss)
        stated = float(checkpoint.validation_error or "inf")
        if samples > 1 and not by_units and abs(deviation - stated) > LOSS_TOLERANCE:
            self._expect("wrong_loss", f"{where}.validation_error", f"{deviation:.6f}", checkpoint.validation_error)
        return deviation - _tolerance(spec, deviation) if by_units else stated

    def _check_samples(
        self, spec: TrainingSpec, checkpoint: CheckpointRecord, error: float, size: int, where: str
    ) -> None:
        loss = float(checkpoint.validation_loss or 0), error - _ROUNDED
        samples = checkpoint.validation_samples or 0
        if not is_enough(spec, checkpoint.round, samples, loss, size):
            self._expect("few_samples", f"{where}.validation_samples", "an error below 0.3 % or the limit", samples)

    def _validation_split(self, spec: TrainingSpec) -> Split | None:
        data = self._fetch("spec.data_config.dataset", spec.dataset)
        if data is None:
            return None
        try:
            manifest = DatasetManifest.from_bytes(data)
            return read_split(
                spec, manifest, manifest.validation, lambda shard: self._fetch("dataset.validation", shard.cid) or b""
            )
        except GymError as error:
            self._expect("wrong_dataset", "spec.data_config.dataset", "a dataset", str(error))
            return None


def _tolerance(spec: TrainingSpec, deviation: float) -> float:
    """Return by how much a recomputed loss may differ: kernels of classes round differently."""
    return LOSS_TOLERANCE if spec.training.precision == "float32" else max(LOSS_TOLERANCE, deviation / 10)
