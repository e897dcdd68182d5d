"""Folders of models: those of the library load here, and ours load there."""

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from kit.errors import raises_code

from training_gym.model.folder import (
    MAX_HEADER_BYTES,
    ModelManifest,
    check_file_name,
    file_tensors,
    load_files,
    write_folder,
)
from training_gym.model.layout import initial_parameters
from training_gym.model.library import library_config, read_config_json
from training_gym.model.network import Network
from training_gym.spec.architectures import ARCHITECTURES, ModelConfig, read_model
from training_gym.spec.config import TrainingConfig, TrainingSpec
from training_gym.spec.errors import ManifestError, SpecError, StateError
from training_gym.spec.manifests import StoredFile

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "sequence_length": 24, "vocab_size": 61}
TOKENS = torch.arange(48).reshape(2, 24)
ARCHITECTURE = pytest.mark.parametrize("architecture", list(ARCHITECTURES))


def model_of(architecture: str, **settings: Any) -> ModelConfig:
    grouped = {} if architecture == "gpt2" else {"num_key_value_heads": 2}
    return read_model(SIZES | grouped | {"architecture": architecture} | settings)


def logits(network: Network) -> torch.Tensor:
    with torch.no_grad():
        return network.eval().logits(network.hidden(TOKENS))


def theirs(folder: Path) -> torch.Tensor:
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        found: torch.Tensor = model(TOKENS).logits
    return found


@ARCHITECTURE
@pytest.mark.parametrize("settings", [{}, {"tie_word_embeddings": True}, {"tie_word_embeddings": False}])
def test_exported_model_loads_with_equal_logits(architecture: str, settings: dict[str, Any], tmp_path: Path) -> None:
    spec = TrainingSpec(model_of(architecture, **settings), "unused", TrainingConfig())
    parameters = initial_parameters(spec)
    write_folder(spec.model, parameters, tmp_path)
    assert torch.equal(theirs(tmp_path), logits(Network(spec, parameters, "cpu")))


@ARCHITECTURE
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_library_folder_loads_with_equal_logits(architecture: str, dtype: torch.dtype, tmp_path: Path) -> None:
    torch.manual_seed(0)
    kind = getattr(transformers, ARCHITECTURES[architecture].class_name)
    config = kind.config_class(**library_config(model_of(architecture)))
    kind(config).to(dtype).save_pretrained(tmp_path, max_shard_size="20KB")
    read = read_config_json(json.loads((tmp_path / "config.json").read_text()), 24)
    assert read == model_of(architecture)
    names = sorted(path.name for path in tmp_path.glob("*.safetensors"))
    assert len(names) > 1
    spec = TrainingSpec(read, "unused", TrainingConfig())
    network = Network(spec, dict(load_files(read, {name: tmp_path / name for name in names})), "cpu")
    assert torch.equal(theirs(tmp_path), logits(network))


def test_llama3_positions_are_the_library_ones(tmp_path: Path) -> None:
    rope = {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "original_max_position_embeddings": 16}
    spec = TrainingSpec(model_of("llama", rope_parameters=rope), "unused", TrainingConfig())
    parameters = initial_parameters(spec)
    write_folder(spec.model, parameters, tmp_path)
    assert torch.equal(theirs(tmp_path), logits(Network(spec, parameters, "cpu")))
    older = json.loads((tmp_path / "config.json").read_text())
    given = older.pop("rope_parameters")
    older |= {"rope_theta": given.pop("rope_theta"), "rope_scaling": given}
    assert read_config_json(older, 24) == spec.model
    both = older | {"rope_parameters": given}
    assert read_config_json(both, 24) == spec.model


@pytest.mark.parametrize(
    ("change", "code", "field"),
    [
        ({"model_type": "rwkv"}, "unsupported_value", "config.json.model_type"),
        ({"auto_map": {"AutoModel": "modeling.Evil"}}, "unsupported_value", "config.json.auto_map"),
        ({"quantization_config": {"bits": 4}}, "unsupported_value", "config.json.quantization_config"),
        ({"attn_implementation": "evil/kernel"}, "unsupported_value", "config.json.attn_implementation"),
        ({"_attn_implementation": ["sdpa"]}, "unsupported_value", "config.json._attn_implementation"),
        ({"rope_scaling": 5}, "wrong_type", "config.json.rope_scaling"),
        (
            {"rope_scaling": {"type": "linear", "factor": 4.0}, "rope_parameters": {"rope_type": "default"}},
            *("unsupported_value", "config.json.rope_scaling"),
        ),
        ({"rope_theta": 1e4, "rope_parameters": [1]}, "wrong_type", "config.json.rope_parameters"),
        ({"hidden_act": "relu"}, "unsupported_value", "config.json.hidden_act"),
        ({"use_bidirectional_attention": True}, "unsupported_value", "config.json.use_bidirectional_attention"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "unsupported_value", "config.json.layer_types"),
        (
            {"model_type": "gemma2", "layer_types": ["full_attention"] * 2},
            *("unsupported_value", "config.json.layer_types"),
        ),
        ({"layer_types": 3}, "unsupported_value", "config.json.layer_types"),
        ({"num_hidden_layers": 10**9}, "out_of_range", "config.json.num_hidden_layers"),
        ({"hidden_size": 10**400}, "out_of_range", "config.json.hidden_size"),
        ({"hidden_size": "64"}, "wrong_type", "config.json.hidden_size"),
        ({"mixture_of_experts": 8}, "unknown_key", "config.json.mixture_of_experts"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "unsupported_value", "config.json.rope_parameters.rope_type"),
        ({"max_position_embeddings": 8}, "out_of_range", "config.json.sequence_length"),
    ],
)
def test_foreign_configuration_is_refused_by_key(change: dict[str, Any], code: str, field: str) -> None:
    config = {"model_type": "llama", "vocab_size": 61, "hidden_size": 32, "max_position_embeddings": 64} | change
    with raises_code(SpecError, code) as refusal:
        read_config_json(config, 24)
    assert refusal.value.field == field


def header(tensors: dict[str, Any], values: bytes) -> bytes:
    text = json.dumps(tensors).encode()
    return struct.pack("<Q", len(text)) + text + values


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"\x80\x04pickle", "malformed"),
        (struct.pack("<Q", 1 << 60) + b"{}", "malformed"),
        (header({}, b"")[:-1], "malformed"),
        (header({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}, bytes(4)), "malformed"),
        (header({"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}, bytes(8)), "malformed"),
        (header({"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}, bytes(4)), "malformed"),
        (header({"a": {"dtype": "F32", "shape": [1] * 9, "data_offsets": [0, 4]}}, bytes(4)), "malformed"),
        (header({"a": {"dtype": "F32", "shape": [0, 10**4000], "data_offsets": [0, 0]}}, b""), "malformed"),
        (header({"a": {"dtype": ["F32"], "shape": [1], "data_offsets": [0, 4]}}, bytes(4)), "wrong_tensors"),
        (header({"a": {"dtype": "I64", "shape": [1], "data_offsets": [0, 8]}}, bytes(8)), "wrong_tensors"),
        (header({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}, bytes(5)), "malformed"),
        (header({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}, bytes(4)), "wrong_tensors"),
    ],
)
def test_foreign_weights_are_refused(content: bytes, code: str, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(content)
    with raises_code(StateError, code):
        dict(load_files(model_of("llama"), {"model.safetensors": tmp_path / "model.safetensors"}))


@ARCHITECTURE
def test_largest_header_is_within_limit(architecture: str) -> None:
    place = {"dtype": "BF16", "shape": [1 << 20] * 2, "data_offsets": [1 << 36] * 2}
    header = json.dumps({tensor.name: place for tensor in model_of(architecture, num_hidden_layers=256).tensors()})
    assert len(header) < MAX_HEADER_BYTES / 2


def test_headers_of_all_files_have_one_limit(tmp_path: Path) -> None:
    files = {f"model-{number}.safetensors": tmp_path / str(number) for number in range(3)}
    for path in files.values():
        path.write_bytes(header({"__metadata__": {"note": "x" * (MAX_HEADER_BYTES // 2 - 99)}}, b""))
    with raises_code(StateError, "too_large") as refusal:
        file_tensors(model_of("llama"), files)
    assert refusal.value.field == "model-2.safetensors"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda arrays: arrays.pop("model.norm.weight"), "wrong_tensors"),
        (lambda arrays: arrays.update(extra=np.zeros(1, np.float32)), "wrong_tensors"),
        (lambda arrays: arrays.update({"lm_head.weight": np.zeros((61, 31), np.float32)}), "wrong_tensors"),
        (lambda arrays: arrays.update({"model.norm.weight": np.full(32, np.nan, np.float32)}), "not_finite"),
    ],
)
def test_weights_unlike_configuration_are_refused(change: Any, code: str, tmp_path: Path) -> None:
    model = model_of("llama")
    arrays = initial_parameters(TrainingSpec(model, "unused", TrainingConfig()))
    change(arrays)
    write_folder(model, arrays, tmp_path)
    with raises_code(StateError, code):
        dict(load_files(model, {"model.safetensors": tmp_path / "model.safetensors"}))


@pytest.mark.parametrize(
    "name",
    [
        *(
            "pytorch_model.bin",
            "modeling_evil.py",
            "../config.json",
            "a/b.safetensors",
            "",
            "../USE.md",
            "LICENSE.txt\n",
        ),
        *(".md", "evil.md.py"),
    ],
)
def test_model_file_of_other_kind_is_refused(name: str) -> None:
    with raises_code(ManifestError, "unsupported_value"):
        check_file_name(name)


@pytest.mark.parametrize("name", ["LICENSE.txt", "USE_POLICY.md", "NOTICE", "tokenizer.model", "merges.txt"])
def test_texts_next_to_a_model_are_accepted(name: str) -> None:
    assert check_file_name(name) == name


def test_manifest_round_trips_and_bounds_its_files() -> None:
    file = StoredFile("b" * 59, 10, "0x" + "ab" * 32)
    manifest = ModelManifest({"model_type": "llama"}, {"model.safetensors": file, "tokenizer.json": file})
    assert ModelManifest.from_bytes(manifest.to_bytes()) == manifest
    assert manifest.weights() == ["model.safetensors"]
    many = ModelManifest({}, {f"model-{number}.safetensors": file for number in range(1000)})
    with raises_code(ManifestError, "too_large"):
        ModelManifest.from_bytes(many.to_bytes())
    with raises_code(ManifestError, "missing_key"):
        ModelManifest({}, {"tokenizer.json": file}).weights()
