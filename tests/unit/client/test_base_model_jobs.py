"""Jobs on a base model as the client reads, completes and signs them."""

from pathlib import Path
from typing import Any

import pytest
from kit.base_models import manifest_of, write_base
from kit.errors import raises_code

from training_gym.model.folder import ModelManifest
from training_gym.spec.config import TrainingSpec
from zoo_compute.base.errors import ConfigError
from zoo_compute.client import jobspec, orders
from zoo_protocol.content.unixfs import cid_of_file

DATASET = cid_of_file(b"dataset")


@pytest.fixture
def manifest(tmp_path: Path) -> ModelManifest:
    write_base(tmp_path)
    return manifest_of(tmp_path)


def test_job_file_names_base_and_adapter(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    sections = "model_config: {base: BASE}\nadapter_config: {r: 8}\ndata_config: {dataset: DATA}\nbudget_max: 3\n"
    file.write_text(sections)
    job = jobspec.load(file)
    assert (job.model, job.adapter) == ({"base": "BASE"}, {"r": 8})
    file.write_text(sections.replace("{r: 8}", "8"))
    with raises_code(ConfigError, "job-file-unusable"):
        jobspec.load(file)


def test_client_completes_base_as_the_market_does(manifest: ModelManifest) -> None:
    base = cid_of_file(manifest.to_bytes())
    settings = orders.model_settings({"base": base, "sequence_length": 8}, {base: manifest.to_bytes()}.__getitem__)
    document = {"model_config": settings, "adapter_config": {"r": 2}, "data_config": {"dataset": DATASET}}
    assert TrainingSpec.from_dict(document).model == manifest.model(8)
    assert orders.model_settings({"hidden_size": 8}, {}.__getitem__) == {"hidden_size": 8}


@pytest.mark.parametrize(
    ("given", "content"),
    [
        ({"base": 3}, b""),
        ({"base": DATASET}, b"{}"),
        ({"base": DATASET, "hidden_size": 9}, None),
    ],
)
def test_unusable_base_is_refused_before_signing(
    manifest: ModelManifest, given: dict[str, Any], content: bytes | None
) -> None:
    with raises_code(ConfigError, "base-model-unusable"):
        orders.model_settings(given, lambda _cid: manifest.to_bytes() if content is None else content)
