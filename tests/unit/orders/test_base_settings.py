"""Base models of jobs: settings completed from the manifest, and refusals."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kit.base_models import manifest_of, weights_changed, write_base
from kit.errors import raises_code
from kit.training import TINY

from training_gym.model.base import check_base, completed_settings
from training_gym.model.folder import DEFAULT_LENGTH, ModelManifest
from training_gym.spec.architectures import ARCHITECTURES, read_model
from training_gym.spec.config import TrainingSpec
from training_gym.spec.errors import GymError
from zoo_protocol.content.unixfs import cid_of_file
from zoo_protocol.hashing import canonical_json

BASE = cid_of_file(b"manifest")
Change = Callable[[ModelManifest], ModelManifest]


@pytest.fixture
def manifest(tmp_path: Path) -> ModelManifest:
    write_base(tmp_path)
    return ModelManifest.from_bytes(manifest_of(tmp_path).to_bytes())


@pytest.mark.parametrize("architecture", list(ARCHITECTURES))
def test_base_alone_is_completed(architecture: str, tmp_path: Path) -> None:
    model = read_model({"architecture": architecture, "hidden_size": 16, "sequence_length": 32, "vocab_size": 99})
    write_base(tmp_path, model)
    settings = completed_settings({"base": BASE}, manifest_of(tmp_path))
    spec = TrainingSpec.from_dict({"model_config": settings, "data_config": {"dataset": BASE}})
    assert (spec.model, spec.base) == (model, BASE)
    check_base(manifest_of(tmp_path), spec.model)


@pytest.mark.parametrize(("positions", "length"), [(20, 20), (4096, DEFAULT_LENGTH)])
def test_default_length_fits_the_positions(manifest: ModelManifest, positions: int, length: int) -> None:
    manifest.config["max_position_embeddings"] = positions
    assert completed_settings({"base": BASE}, manifest)["sequence_length"] == length
    assert completed_settings({"base": BASE, "sequence_length": 9}, manifest)["sequence_length"] == 9


def test_completion_of_complete_settings_changes_nothing(manifest: ModelManifest) -> None:
    settings = completed_settings({"base": BASE}, manifest)
    assert completed_settings(settings, manifest) == settings


@pytest.mark.parametrize(
    ("setting", "code", "both"),
    [
        ({"hidden_size": 32}, "contradicts_base", ("32", "8")),
        ({"architecture": "qwen2"}, "contradicts_base", ("'qwen2'", "'llama'")),
        ({"rope_parameters": {"rope_theta": 5}}, "contradicts_base", ("5", "10000.0")),
        ({"hidden_sizes": 8}, "unknown_key", ("hidden_size",)),
    ],
)
def test_contradicting_setting_is_refused(
    manifest: ModelManifest, setting: dict[str, Any], code: str, both: tuple[str, ...]
) -> None:
    with pytest.raises(GymError) as refused:
        completed_settings({"base": BASE} | setting, manifest)
    assert (refused.value.code, refused.value.field) == (code, f"model_config.{next(iter(setting))}")
    assert all(value in refused.value.message for value in both)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda good: ModelManifest(good.config | {"model_type": "bert"}, good.files), "unsupported_value"),
        (lambda good: ModelManifest(good.config | {"auto_map": {"AutoModel": "m.M"}}, good.files), "unsupported_value"),
        (lambda good: ModelManifest(good.config | {"hidden_size": 1 << 30}, good.files), "out_of_range"),
        (lambda good: ModelManifest(good.config | {"hidden_size": 16}, good.files), "contradicts_base"),
        (lambda good: ModelManifest(good.config, {}), "missing_key"),
        (lambda good: weights_changed(good, size=100), "wrong_size"),
        (lambda good: weights_changed(good, size=1 << 30), "wrong_size"),
    ],
)
def test_poisoned_base_is_refused_unread(manifest: ModelManifest, change: Change, code: str) -> None:
    with raises_code(GymError, code):
        check_base(change(manifest), TINY)


def test_too_large_base_names_both_numbers(manifest: ModelManifest) -> None:
    with raises_code(GymError, "too_large") as refused:
        check_base(manifest, TINY, max_parameters=1000)
    assert f"{TINY.num_parameters()} parameters; at most 1000" in str(refused.value)


@pytest.mark.parametrize(
    ("names", "code"),
    [
        (["pytorch_model.bin"], "unsupported_value"),
        (["model.safetensors", "modeling_own.py"], "unsupported_value"),
        ([f"model-{number}.safetensors" for number in range(1000)], "too_large"),
    ],
)
def test_manifest_of_foreign_files_is_refused(manifest: ModelManifest, names: list[str], code: str) -> None:
    [file] = manifest.files.values()
    with raises_code(GymError, code):
        ModelManifest.from_bytes(ModelManifest(manifest.config, dict.fromkeys(names, file)).to_bytes())


def test_huge_config_is_refused(manifest: ModelManifest) -> None:
    document = {"kind": "zoo-model/1", "config": manifest.config | {"id2label": ["x"] * (1 << 19)}, "files": {}}
    with raises_code(GymError, "too_large"):
        ModelManifest.from_bytes(canonical_json(document))
