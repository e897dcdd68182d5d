"""Real text that every machine with Python has: the sources of its standard library, about 30 MB."""

import sysconfig
from pathlib import Path

import numpy as np

from training_gym.data.dataset import Tokens


def standard_library(max_bytes: int) -> tuple[Tokens, Tokens]:
    """The first ``max_bytes`` of the sources in sorted order, as training and validation tokens.

    Every tenth file is held out whole, so that no file is in both.
    """
    root = Path(sysconfig.get_path("stdlib"))
    files = sorted(
        path for path in root.rglob("*.py") if "site-packages" not in path.parts and "test" not in path.parts
    )
    train: list[bytes] = []
    validation: list[bytes] = []
    taken = 0
    for number, path in enumerate(files):
        content = path.read_bytes()
        (validation if number % 10 == 9 else train).append(content)
        taken += len(content)
        if taken >= max_bytes:
            break
    return np.frombuffer(b"".join(train), np.uint8), np.frombuffer(b"".join(validation), np.uint8)
