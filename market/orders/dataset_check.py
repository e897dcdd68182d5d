"""Check of a job's dataset and start model in storage."""

from market.orders.errors import DatasetNotFound, InvalidDataset
from market.platform.http.errors import StorageDown
from market.platform.storage.client import Storage
from market.platform.storage.errors import BlobCorrupt, BlobNotFound, BlobTooLarge, StorageUnavailable
from market.platform.storage.recently_seen import record_verified, was_recently_verified
from training_gym.data.dataset import DatasetManifest
from training_gym.spec.config import TrainingSpec
from training_gym.spec.errors import ManifestError
from training_gym.spec.manifests import MAX_MANIFEST_BYTES
from zoo_protocol.content.cid import InvalidCid


def require_dataset(storage: Storage, spec: TrainingSpec) -> None:
    """Check that storage has the job's fitting dataset and start model. Cached for a minute.

    Content does not change under its CID. A dataset that is lost before training ends its job with a refund.

    Raises:
        DatasetNotFound, InvalidDataset, StorageDown.
    """
    inputs = (spec.dataset, spec.start_model, spec.model.sequence_length)
    if not was_recently_verified(storage, inputs):
        _check_dataset(storage, spec)
        record_verified(storage, inputs)


def _check_dataset(storage: Storage, spec: TrainingSpec) -> None:
    field = "data_config.dataset"
    try:
        manifest = DatasetManifest.from_bytes(storage.get(spec.dataset, max_bytes=MAX_MANIFEST_BYTES))
        for name, split in (("train", manifest.train), ("validation", manifest.validation)):
            if (size := storage.stat(split.cid)) != split.size:
                raise ManifestError("wrong_size", f"{name}.size", f"is {split.size}; the file has {size} bytes")
        if spec.start_model is not None:
            field = "data_config.start_model"
            storage.stat(spec.start_model)
    except BlobNotFound as error:
        raise DatasetNotFound(f"Storage did not find {field}: {error}", field=field) from error
    except (BlobTooLarge, BlobCorrupt, InvalidCid, ManifestError) as error:
        raise InvalidDataset(f"The dataset {spec.dataset} is not usable: {error}", field=field) from error
    except StorageUnavailable as error:
        raise StorageDown(str(error)) from error
    window = spec.model.sequence_length + 1
    for name, split in (("train", manifest.train), ("validation", manifest.validation)):
        if split.size < window:
            raise InvalidDataset(
                f"The {name} split has {split.size} tokens; expected at least {window}, one training sequence.",
                field=field,
            )
