import hashlib
import json
import threading
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from kit.training import spec_of

from tools import payload_vectors
from training_gym.model import tensors
from training_gym.model.layout import initial_parameters
from training_gym.model.tensors import CHUNK, FlatView, TensorDigest, flatten, save_arrays, tensor_digest, tensor_leaf
from training_gym.runtime import threads
from training_gym.spec.architectures import read_model
from zoo_protocol import merkle
from zoo_protocol.hashing import keccak

VECTORS = Path(__file__).parents[2] / "vectors" / "tensors.json"
SMALL = read_model({"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 1, "sequence_length": 8})
STRIDED = np.arange(24, dtype=np.float32).reshape(4, 6)


@pytest.mark.parametrize(
    "arrays",
    [
        initial_parameters(spec_of(SMALL, seed=1)),
        {"error_feedback": np.linspace(-1, 1, 7, dtype=np.float32)},
        {"b": STRIDED.T, "a.10": STRIDED[:, ::2], "a.9": np.float32([[0.5]]), "ä": STRIDED[1], "Z": np.array(2.0)},
        {},
    ],
    ids=["model", "vector", "names and strides", "nothing"],
)
def test_files_match_library_format(arrays: dict[str, np.ndarray], tmp_path: Path) -> None:
    plain = {name: np.ascontiguousarray(array, "<f4") for name, array in arrays.items()}
    assert save_arrays(arrays) == safetensors.numpy.save(plain)
    tensors.write_arrays(tmp_path / "file", arrays)
    assert (tmp_path / "file").read_bytes() == save_arrays(arrays)


def test_state_digest_is_root_over_tensors() -> None:
    arrays = {"c": np.float32([[3, -0.0]]), "a": np.float32([1, 2]), "b": np.float32(0.5)}

    def leaf(header: bytes, values: bytes) -> bytes:
        encoded = b"zoo-tensor-1" + len(header).to_bytes(8, "big") + header + hashlib.sha256(values).digest()
        return keccak(keccak(encoded))

    leaves = [
        leaf(b'["a","F32",[2]]', bytes.fromhex("0000803f00000040")),
        leaf(b'["b","F32",[]]', bytes.fromhex("0000003f")),
        leaf(b'["c","F32",[1,2]]', bytes.fromhex("0000404000000080")),
    ]
    pair = keccak(min(leaves[:2]) + max(leaves[:2]))
    assert tensor_digest(arrays) == keccak(min(pair, leaves[2]) + max(pair, leaves[2]))
    assert [tensor_leaf(name, arrays[name]) for name in "abc"] == leaves
    assert merkle.verify(tensor_digest(arrays), tensor_leaf("b", arrays["b"]), merkle.proof(leaves, 1))
    streamed = TensorDigest()
    for name in "abc":
        streamed.begin(name, arrays[name].shape)
        for value in arrays[name].ravel():  # in any pieces
            streamed.update(value.reshape(1))
    assert streamed.digest() == tensor_digest(arrays)


def test_leaves_match_vectors() -> None:
    vectors = json.loads(VECTORS.read_text())["tensors"]
    assert [vector["leaf"] for vector in vectors] == [vector["leaf"] for vector in payload_vectors.leaves()]


@pytest.mark.parametrize("size", [CHUNK, CHUNK + 1, 2 * CHUNK, 2 * CHUNK + 5])
def test_large_tensor_is_hashed_by_chunks(size: int) -> None:
    values = np.arange(size, dtype=np.float32)
    chunks = [hashlib.sha256(values[start : start + CHUNK].tobytes()).digest() for start in range(0, size, CHUNK)]
    header = json.dumps(["w", "F32", [size]], separators=(",", ":")).encode()
    version = b"zoo-tensor-1" if size == CHUNK else b"zoo-tensor-2"
    expected = keccak(keccak(version + len(header).to_bytes(8, "big") + header + b"".join(chunks)))
    assert tensor_leaf("w", values) == expected
    assert tensor_digest({"w": values, "v": STRIDED}) == keccak(
        min(expected, tensor_leaf("v", STRIDED)) + max(expected, tensor_leaf("v", STRIDED))
    )
    streamed = TensorDigest()
    streamed.begin("w", values.shape)
    for part in np.split(values, [3, size // 2, size - 2]):
        streamed.update(part)
    assert streamed.digest() == expected


def test_flat_vector_parts_are_changed_in_place() -> None:
    arrays = {"b": np.arange(6, dtype=np.float32).reshape(2, 3), "a": np.float32([7, 8]), "c": np.float32([[9]])}
    view, expected = FlatView(arrays), flatten(arrays)
    assert len(view) == 9
    for start in range(9):
        for stop in range(start + 1, 10):
            out = np.empty(stop - start, np.float32)
            view.copy(slice(start, stop), out)
            assert out.tolist() == expected[start:stop].tolist()
            view.change(slice(start, stop), lambda values: np.negative(values, out=values))
            expected[start:stop] *= -1
            assert flatten(arrays).tolist() == expected.tolist()


def test_flat_view_refuses_strided_array() -> None:
    with pytest.raises(ValueError):
        FlatView({"a": STRIDED.T})


def test_threads_process_items_in_order_and_propagate_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "THREADS", 2)
    done: list[int] = []

    def work(number: int) -> int:
        done.append(number)
        return -number

    assert threads.map_in_threads(work, range(300)) == [-number for number in range(300)]
    assert sorted(done) == list(range(300))
    assert threads.map_in_threads(work, []) == []

    both, caller = threading.Barrier(2, timeout=60), threading.current_thread()

    def fail(_number: int) -> None:
        both.wait()  # each thread has one of the two items
        if threading.current_thread() is not caller:
            raise PermissionError

    with pytest.raises(PermissionError):
        threads.map_in_threads(fail, range(2))
