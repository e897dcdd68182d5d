from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from training_gym.config import ModelConfig
from training_gym.models.layout import initial_parameters
from training_gym.tensors import save_arrays, write_arrays

SMALL = ModelConfig(hidden_size=8, num_layers=2, num_heads=1, sequence_length=8)
STRIDED = np.arange(24, dtype=np.float32).reshape(4, 6)


@pytest.mark.parametrize(
    "arrays",
    [
        initial_parameters(SMALL, 1),
        {"error_feedback": np.linspace(-1, 1, 7, dtype=np.float32)},
        {"b": STRIDED.T, "a.10": STRIDED[:, ::2], "a.9": np.float32([[0.5]]), "ä": STRIDED[1], "Z": np.array(2.0)},
        {},
    ],
    ids=["model", "vector", "names and strides", "nothing"],
)
def test_files_are_those_of_the_library(arrays: dict[str, np.ndarray], tmp_path: Path) -> None:
    plain = {name: np.ascontiguousarray(array, "<f4") for name, array in arrays.items()}
    assert save_arrays(arrays) == safetensors.numpy.save(plain)
    write_arrays(tmp_path / "file", arrays)
    assert (tmp_path / "file").read_bytes() == save_arrays(arrays)
