"""Inputs of a job in storage: its dataset, and its base model.

Their manifests complete the specification. Only manifests and the headers of a base model's weights are read. The
worker that makes the first checkpoint reads the values (``market/training/checkpoints``).
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from time import monotonic
from typing import TypeVar

from market.orders.errors import BaseModelNotFound, DatasetNotFound, InvalidBaseModel, InvalidDataset, InvalidSpec
from market.orders.schemas import JobSpec
from market.platform.storage.client import Storage
from market.platform.storage.errors import BlobCorrupt, BlobNotFound, BlobTooLarge
from training_gym.aggregate.outer_step import outer_state_shapes
from training_gym.data.dataset import DatasetManifest, check_samples, data_of, order_seed
from training_gym.data.epochs import epochs_of, samples_per_round, settings_with_rounds
from training_gym.evaluate.extent import settings_with_samples
from training_gym.model.base import check_base, completed_settings
from training_gym.model.folder import ModelManifest, read_header, stored_tensors
from training_gym.model.layout import parameter_shapes
from training_gym.model.tensors import file_bytes
from training_gym.spec.architectures import read_model
from training_gym.spec.config import TrainingConfig, TrainingSpec
from training_gym.spec.defaults import FEW_REPLICAS
from training_gym.spec.errors import GymError, ManifestError, SpecError, StateError
from training_gym.spec.manifests import MAX_MANIFEST_BYTES
from training_gym.spec.setting_fields import cid
from training_gym.units.checkpoint import CheckpointManifest
from zoo_protocol.content.cid import InvalidCid

_BASE, _DATASET = "model_config.base", "data_config.dataset"
_HEADER_SECONDS = 30.0
"""Limit on reading the headers of a base model or a start: a peer may have the blocks and answer slowly."""
MAX_MASKED_LENGTH = 32_768
"""Longest sequence with borders of documents: attention then has a mask of 1 GiB for each."""
_MOST_JOBS_BEFORE = 16
"""Jobs before a start checkpoint whose data are compared."""
_LENGTHS = ("sequence_length", "max_position_embeddings")
"""Settings of a model that a continuation may change. Shapes show a table of positions."""
_START_REMEDY = "Take a CID of GET /v1/jobs/{id}/checkpoints: cid for start_checkpoint, model_cid for start_model."
_KEPT_REMEDY = "Keep the settings that the detail names. For others, take another CID of GET /v1/jobs/{id}/checkpoints."
_OF_SETTINGS = ("wrong_size", "wrong_tensors", "wrong_model")
"""Codes of starts that do not fit the job's settings."""
_SAMPLES_REMEDY = "Change the setting that the detail names, or take another dataset."
_SLOW_REMEDY = "If the CID is right, IPFS was too slow: ask again in a minute."
_UNUSABLE = (BlobTooLarge, BlobCorrupt, InvalidCid)
Request = TypeVar("Request", bound=JobSpec)


def with_base_settings(request: Request, storage: Storage, max_parameters: int) -> Request:
    """Return the request with every setting of its base model; one without a base is unchanged.

    Raises:
        InvalidSpec: no CID, an unknown setting, or one that contradicts the base model's configuration.
        BaseModelNotFound: storage lacks the manifest or a file.
        InvalidBaseModel: ``reason`` is the code of the broken rule.
        StorageUnavailable: storage failed.
    """
    named = request.model_settings.get("base")
    if named is None:
        return request
    try:
        base = cid(named, _BASE, "a base model's manifest")
        manifest = _base_manifest(storage, base)
        settings = completed_settings(request.model_settings, manifest)
        model = read_model({name: value for name, value in settings.items() if name != "base"})
    except SpecError as error:
        raise InvalidSpec(str(error), field=error.field, extra={"reason": error.code}) from error
    try:
        check_base(manifest, model, max_parameters)
    except GymError as error:
        raise _invalid_base(base, error, error.code) from error
    storage.once_a_minute(("base", base), lambda: _check_base_files(storage, base, manifest))
    return request.model_copy(update={"model_settings": settings})


def with_rounds(request: Request, storage: Storage, max_units: int) -> Request:
    """Return the request with ``rounds`` in place of ``epochs``, or unchanged without epochs.

    Args:
        request: with every setting of its base model.
        max_units: largest number of units, rounds times nodes.

    Raises:
        InvalidSpec: epochs next to rounds, too many epochs, or another wrong setting.
        DatasetNotFound, InvalidDataset, StorageUnavailable: as for :func:`require_dataset`.
    """
    try:
        read = partial(_checked_manifest, storage)
        settings = settings_with_rounds(request.sections(), request.nodes, read, max_units // request.nodes)
    except SpecError as error:
        raise InvalidSpec(str(error), field=error.field, extra={"reason": error.code}) from error
    return request.model_copy(update={"training_settings": settings})


def with_validation_samples(request: Request, storage: Storage) -> Request:
    """Return the request with the number of samples that each unit evaluates.

    Args:
        request: with every setting of its base model, and with rounds.

    Raises:
        InvalidSpec: a wrong setting.
        DatasetNotFound, InvalidDataset, StorageUnavailable: as for :func:`require_dataset`.
    """
    try:
        settings = settings_with_samples(request.sections(), request.nodes, partial(_checked_manifest, storage))
    except SpecError as error:
        raise InvalidSpec(str(error), field=error.field, extra={"reason": error.code}) from error
    return request.model_copy(update={"data_settings": settings})


def _base_manifest(storage: Storage, base: str) -> ModelManifest:
    """Return a manifest of a supported model; raises as :func:`with_base_settings`."""
    try:
        manifest = ModelManifest.from_bytes(storage.get(base, max_bytes=MAX_MANIFEST_BYTES))
        manifest.default_model()
    except BlobNotFound as error:
        raise BaseModelNotFound(f"Storage did not find {_BASE}: {error}", field=_BASE) from error
    except GymError as error:
        raise _invalid_base(base, error, error.code) from error
    except _UNUSABLE as error:
        raise _invalid_base(base, error, "unreadable") from error
    return manifest


def _check_base_files(storage: Storage, base: str, manifest: ModelManifest) -> None:
    """Compare the files with the manifest, and their tensors with its configuration."""

    def read(name: str, start: int, length: int) -> bytes:
        file = manifest.files[name]
        return storage.get_range(file.cid, start, start + length, max_bytes=file.size, until=until)

    try:
        for name, file in manifest.files.items():
            if (size := storage.stat(file.cid)) != file.size:
                raise ManifestError("wrong_size", f"files.{name}", f"is {file.size}; the file has {size} bytes")
        until = monotonic() + _HEADER_SECONDS
        sizes = {name: manifest.files[name].size for name in manifest.weights()}
        stored_tensors(manifest.default_model(), sizes, read)
    except BlobNotFound as error:
        raise BaseModelNotFound(f"Storage did not find a file of {_BASE}: {error}", field=_BASE) from error
    except GymError as error:
        raise _invalid_base(base, error, error.code) from error
    except _UNUSABLE as error:
        raise _invalid_base(base, error, "unreadable") from error


def _invalid_base(base: str, error: Exception, reason: str) -> InvalidBaseModel:
    return InvalidBaseModel(f"The base model {base} is not usable: {error}", field=_BASE, extra={"reason": reason})


def require_dataset(storage: Storage, spec: TrainingSpec) -> None:
    """Check that storage has the job's fitting dataset. Cached for a minute.

    Content does not change under its CID. A dataset that is lost before training ends its job with a refund.

    Raises:
        DatasetNotFound, InvalidDataset, StorageUnavailable.
    """
    inputs = spec.dataset, spec.model.sequence_length, spec.model.vocab_size, spec.training.objective
    storage.once_a_minute(inputs, lambda: _check_dataset(storage, spec))


def epochs(storage: Storage, spec: TrainingSpec) -> float:
    """Return how often a job reads its training split. Raises as :func:`require_dataset`."""
    return epochs_of(spec, _checked_manifest(storage, spec))


def require_start(storage: Storage, spec: TrainingSpec, spec_of: Callable[[str], TrainingSpec | None]) -> None:
    """Check that storage has the fitting start model or checkpoint, and the place in the data.

    Args:
        spec_of: returns a job's specification; None: the market does not have it.

    Raises:
        InvalidSpec, DatasetNotFound, InvalidDataset, StorageUnavailable.
    """
    if spec.start_checkpoint is not None:
        with _dataset_errors(spec, "data_config.start_checkpoint", f"checkpoint {spec.start_checkpoint}"):
            found = CheckpointManifest.from_bytes(storage.get(spec.start_checkpoint, max_bytes=MAX_MANIFEST_BYTES))
            _check_tensors(storage, "model", found.model, parameter_shapes(spec))
            if (before := spec_of(found.job_id)) is not None:
                _check_function(spec, before)
            if found.outer_state is not None:
                shapes, kept = outer_state_shapes(spec), _outer_settings(spec.training)
                _check_tensors(storage, "outer_state", found.outer_state, shapes, kept)
        _require_new_data(storage, spec, found, spec_of)
    elif spec.start_model is not None:
        with _dataset_errors(spec, "data_config.start_model", f"start model {spec.start_model}"):
            _check_tensors(storage, "model", spec.start_model, parameter_shapes(spec))


def _check_function(spec: TrainingSpec, before: TrainingSpec) -> None:
    """Compare the model's function with the job before. Shapes of tensors do not show it."""
    known = _function(before)
    for name, own in _function(spec).items():
        if own != known.get(name):
            raise ManifestError("wrong_model", name, f"is {own}; expected {known.get(name)}, as in the job before")


def _function(spec: TrainingSpec) -> dict[str, object]:
    """Return the settings that decide what given tensors compute."""
    found: dict[str, object] = {name: one for name, one in spec.model.to_dict().items() if name not in _LENGTHS}
    if spec.adapter is not None:
        found |= {"base": spec.base, "lora_alpha": spec.adapter.lora_alpha}
    return found


def _outer_settings(training: TrainingConfig) -> str:
    return (
        f"the outer settings: which of outer_momentum, now {training.outer_momentum:g}, and down_top_k, now "
        f"{training.down_top_k}, are 0. By default outer_momentum is 0 on up to {FEW_REPLICAS} nodes, and not on more"
    )


def _require_new_data(
    storage: Storage, spec: TrainingSpec, found: CheckpointManifest, spec_of: Callable[[str], TrainingSpec | None]
) -> None:
    least = _least_start_round(storage, spec, found, spec_of)
    if spec.start_round < least:
        raise InvalidSpec(
            f"data_config.start_round is {spec.start_round}; expected at least {least}. Less would read the same data "
            "again as the start checkpoint's job, or as one before it. start_round counts rounds of this job's length "
            "and nodes.",
            field="data_config.start_round",
            extra={"reason": "repeated_data"},
        )


def _require_named_starts(spec: TrainingSpec, before: TrainingSpec) -> None:
    """Refuse an order of data without a model of an earlier job.

    That model may have read any data in this order.
    """
    for field, own, needed in (
        ("data_config.start_model", spec.start_model, before.start_model),
        (_BASE, spec.base, before.base),
    ):
        if own is None and needed is not None:
            raise InvalidSpec(
                f"{field} is missing; expected {needed}, as in the job before. Without it the data come in an order in "
                "which that model may have read them.",
                field=field,
                remedy="Give it in a job file, with the rounds that are read as start_round, 1 at least.",
                extra={"reason": "repeated_data"},
            )


def _least_start_round(
    storage: Storage, spec: TrainingSpec, found: CheckpointManifest, spec_of: Callable[[str], TrainingSpec | None]
) -> int:
    """Return the first round whose data no job has read up to the start checkpoint ``found``.

    Of these jobs the newest one that read in this job's order counts. Raises as :func:`_require_named_starts`.
    """
    before = spec_of(found.job_id)
    if before is None:
        return min(1, found.round)
    for _ in range(_MOST_JOBS_BEFORE):
        if _data_order(before) == _data_order(spec):
            return math.ceil((before.start_round + found.round) * samples_per_round(before) / samples_per_round(spec))
        _require_named_starts(spec, before)
        if before.start_checkpoint is None:
            return 0
        try:
            found = CheckpointManifest.from_bytes(storage.get(before.start_checkpoint, max_bytes=MAX_MANIFEST_BYTES))
        except (BlobNotFound, *_UNUSABLE, ManifestError):
            return 0
        before = spec_of(found.job_id)
        if before is None:
            return 0
    return 0


def _data_order(spec: TrainingSpec) -> tuple[str, int, str, int]:
    return *data_of(spec), order_seed(spec)


def _checked_manifest(storage: Storage, spec: TrainingSpec) -> DatasetManifest:
    require_dataset(storage, spec)
    return _dataset_manifest(storage, spec)


def _dataset_manifest(storage: Storage, spec: TrainingSpec) -> DatasetManifest:
    with _dataset_errors(spec):
        return DatasetManifest.from_bytes(storage.get(spec.dataset, max_bytes=MAX_MANIFEST_BYTES))


@contextmanager
def _dataset_errors(
    spec: TrainingSpec, field: str = _DATASET, what: str = "", remedy: str | None = None
) -> Iterator[None]:
    """Raise errors of storage and manifests as refusals.

    Args:
        what: the start that is read instead of the dataset.
        remedy: for a dataset; default: that of the refusal.
    """
    remedy = _START_REMEDY if what else remedy
    try:
        yield
    except BlobNotFound as error:
        remedy = f"{remedy or DatasetNotFound.default_remedy} {_SLOW_REMEDY}"
        raise DatasetNotFound(f"Storage did not find {field}: {error}", field=field, remedy=remedy) from error
    except (*_UNUSABLE, ManifestError, StateError) as error:
        if what and isinstance(error, ManifestError) and error.code in _OF_SETTINGS:
            remedy = _KEPT_REMEDY
        what = what or f"dataset {spec.dataset}"
        raise InvalidDataset(f"The {what} is not usable: {error}", field=field, remedy=remedy) from error


def _check_tensors(
    storage: Storage, name: str, file: str, shapes: Mapping[str, tuple[int, ...]], kept: str = "the model"
) -> None:
    """Compare a file's size and header with a start's tensors; ``kept`` is what decides them."""
    until, size = monotonic() + _HEADER_SECONDS, storage.stat(file)
    if size != file_bytes(shapes):
        detail = f"has {size} bytes; expected {file_bytes(shapes)}. Keep {kept}"
        raise ManifestError("wrong_size", name, detail)

    def read(start: int, length: int) -> bytes:
        return storage.get_range(file, start, start + length, max_bytes=size, until=until)

    found = {tensor: stored.shape for tensor, stored in read_header(read, size, name).items()}
    if found != shapes:
        wrong = min(dict(found.items() ^ shapes.items()))
        detail = f"has {wrong} as {found.get(wrong)}; expected {shapes.get(wrong)}. Keep {kept}"
        raise ManifestError("wrong_tensors", name, detail)


def _check_dataset(storage: Storage, spec: TrainingSpec) -> None:
    manifest = _dataset_manifest(storage, spec)
    with _dataset_errors(spec, remedy=_SAMPLES_REMEDY):
        check_samples(spec, manifest.samples)
        has_borders = manifest.samples != "text" or manifest.separator is not None
        if has_borders and spec.model.sequence_length > MAX_MASKED_LENGTH:
            detail = f"is {spec.model.sequence_length}; expected at most {MAX_MASKED_LENGTH} for samples with borders, "
            raise ManifestError("out_of_range", "sequence_length", f"{detail}whose mask has its square in bytes")
    with _dataset_errors(spec):
        for shard in (*manifest.train, *manifest.validation):
            if (size := storage.stat(shard.cid)) != manifest.size_of(shard):
                detail = f"has {shard.tokens} tokens, {manifest.size_of(shard)} bytes; the file has {size} bytes"
                raise ManifestError("wrong_size", shard.cid, detail)
    window = spec.model.sequence_length + 1
    for name, shards in (("train", manifest.train), ("validation", manifest.validation)):
        if manifest.samples == "text" and (most := max(shard.tokens for shard in shards)) < window:
            raise InvalidDataset(
                f"The longest shard of the {name} split has {most} tokens; expected at least {window}, one training "
                "sequence.",
                field=_DATASET,
                remedy="Take a shorter sequence_length, or a dataset with longer shards.",
            )
    if manifest.vocab_size > spec.model.vocab_size:
        raise InvalidDataset(
            f"The dataset has tokens up to {manifest.vocab_size - 1}; the model knows {spec.model.vocab_size}.",
            field="model_config.vocab_size",
            remedy=f"Give a vocab_size of at least {manifest.vocab_size}, or take another dataset.",
        )
