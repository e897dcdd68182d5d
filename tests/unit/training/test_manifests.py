import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from kit.documents import changed
from kit.training import spec_of

from training_gym.data.dataset import DatasetManifest, describe_shard, one_shard
from training_gym.model.tensors import save_arrays
from training_gym.spec.errors import ManifestError, StateError
from training_gym.units.checkpoint import CheckpointManifest, initial_checkpoint, load_state

CID = "bafkreib" + "a" * 51
HASH = "0x" + "ab" * 32
SPEC = spec_of()
DATASET = DatasetManifest((describe_shard(CID, b"train"),), (describe_shard(CID, b"valid"),))
CHECKPOINT = CheckpointManifest(HASH, 3, None, CID, None, None, None, {"0": CID, "11": CID}, 144, HASH)


def altered(data: bytes, path: str, value: Any) -> bytes:
    return json.dumps(changed(json.loads(data), tuple(path.split(".")), value)).encode()


def test_manifests_survive_file() -> None:
    assert DatasetManifest.from_bytes(DATASET.to_bytes()) == DATASET
    with_state = replace(CHECKPOINT, outer_state=CID)
    assert CheckpointManifest.from_bytes(with_state.to_bytes()) == with_state
    assert CheckpointManifest.from_bytes(CHECKPOINT.to_bytes()) == CHECKPOINT
    assert json.loads(DATASET.to_bytes())["kind"] == "zoo-dataset/2"
    assert json.loads(CHECKPOINT.to_bytes())["slot_states"] == {"0": CID, "11": CID}


@pytest.mark.parametrize(
    ("path", "value", "field", "code"),
    [
        ("kind", "zoo-dataset/1", "manifest.kind", "unsupported_value"),
        ("dtype", "int64", "manifest.kind", "unsupported_value"),
        ("tokenizer", "bpe", "tokenizer", "wrong_type"),
        ("vocab_size", 257, "vocab_size", "out_of_range"),
        ("licence", "a" * 501, "licence", "malformed"),
        ("samples", "images", "samples", "unsupported_value"),
        ("separator", 256, "separator", "out_of_range"),
        ("train", [], "train", "wrong_type"),
        ("train", [{"cid": CID, "tokens": 1, "samples": 0, "sha256": HASH}] * 4097, "train", "wrong_type"),
        ("train", ..., "manifest.train", "missing_key"),
        ("test", {}, "manifest.test", "unknown_key"),
        ("train", [{"cid": CID, "tokens": True, "samples": 0, "sha256": HASH}], "train.0.tokens", "out_of_range"),
        ("train", [{"cid": CID, "tokens": 0, "samples": 0, "sha256": HASH}], "train.0.tokens", "out_of_range"),
        (
            "train",
            [{"cid": CID, "tokens": (1 << 30) + 1, "samples": 0, "sha256": HASH}],
            "train.0.tokens",
            "out_of_range",
        ),
        ("train", [{"cid": CID, "tokens": 9, "samples": 1, "sha256": HASH}], "train.0.samples", "out_of_range"),
        ("validation", [{"cid": CID, "tokens": 1 << 29, "samples": 0, "sha256": HASH}], "validation", "out_of_range"),
        ("validation", [{"cid": CID, "tokens": 1, "samples": 0, "sha256": "0xAB"}], "validation.0.sha256", "malformed"),
        (
            "validation",
            [{"cid": "../secret", "tokens": 1, "samples": 0, "sha256": HASH}],
            "validation.0.cid",
            "malformed",
        ),
    ],
)
def test_wrong_dataset_manifest_is_refused_by_field(path: str, value: Any, field: str, code: str) -> None:
    with pytest.raises(ManifestError) as refusal:
        DatasetManifest.from_bytes(altered(DATASET.to_bytes(), path, value))
    assert (refusal.value.field, refusal.value.code) == (field, code)


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        ("kind", "zoo-checkpoint/1", "manifest.kind"),
        ("round", -1, "round"),
        ("parent", "x", "parent"),
        ("outer_state", "x", "outer_state"),
        ("slot_states", {"01": CID}, "slot_states"),
        ("slot_states", {"1": "x"}, "slot_states.1"),
        ("validation_loss", "1.500000", "manifest.validation_loss"),
        ("spec_hash", ..., "manifest.spec_hash"),
    ],
)
def test_wrong_checkpoint_manifest_is_refused_by_field(path: str, value: Any, field: str) -> None:
    with pytest.raises(ManifestError) as refusal:
        CheckpointManifest.from_bytes(altered(CHECKPOINT.to_bytes(), path, value))
    assert refusal.value.field == field


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data + b"\n",
        lambda data: data.replace(b":", b": ", 1),
        lambda data: data[:-1] + b',"round":3}',
        lambda data: b'{"round":2,' + data[1:],
        lambda data: data.replace(b'{"0":', b'{"0":"' + CID.encode() + b'","0":'),
    ],
)
def test_checkpoint_manifest_round_trips(change: Callable[[bytes], bytes]) -> None:
    data = change(CHECKPOINT.to_bytes())
    assert json.loads(data) == json.loads(CHECKPOINT.to_bytes())
    with pytest.raises(ManifestError) as refusal:
        CheckpointManifest.from_bytes(data)
    assert (refusal.value.field, refusal.value.code) == ("manifest", "not_canonical")


@pytest.mark.parametrize("data", [b"", b"[1]", b"{", b"[" * 200_000, b'"' + b"a" * (1 << 20) + b'"'])
def test_non_manifest_is_refused(data: bytes) -> None:
    with pytest.raises(ManifestError):
        DatasetManifest.from_bytes(data)


def test_foreign_model_file_must_match_specification() -> None:
    good = initial_checkpoint(SPEC)
    arrays = load_state(SPEC, good)
    assert save_arrays(arrays) == good
    missing = {name: array for name, array in arrays.items() if name != "model.norm.weight"}
    wrong = {
        "malformed": good[:-1],
        "too_large": good + bytes(1 << 18),
        "wrong_tensors": save_arrays(missing),
        "not_finite": save_arrays({**arrays, "model.norm.weight": arrays["model.norm.weight"] * float("nan")}),
    }
    for code, data in wrong.items():
        with pytest.raises(StateError) as refusal:
            load_state(SPEC, data)
        assert refusal.value.code == code
    with pytest.raises(StateError, match="expected float32"):
        load_state(SPEC, save_arrays({**arrays, "model.norm.weight": arrays["model.norm.weight"][:4]}))


def test_split_shorter_than_window_is_refused() -> None:
    assert one_shard(SPEC, b"a" * 9).order.size == 1
    with pytest.raises(StateError, match="sequence"):
        one_shard(SPEC, b"a" * 8)
