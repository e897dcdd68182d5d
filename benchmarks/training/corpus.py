"""Real text on every machine with Python: the sources of its standard library, about 30 MB."""

import sysconfig
from pathlib import Path

import numpy as np

from training_gym.data.shards import Tokens


def whole_library() -> tuple[Tokens, Tokens, Tokens]:
    """Return all sources, about 30 MB, as training, tuning and validation tokens.

    Of every twenty files one whole file is for tuning and one for validation. Settings are chosen on files that no
    result is reported on.
    """
    contents = [path.read_bytes() for path in _sources()]
    splits = [
        b"".join(content for number, content in enumerate(contents) if number % 20 in numbers)
        for numbers in ({*range(20)} - {9, 19}, {9}, {19})
    ]
    train, tuning, validation = (np.frombuffer(split, np.uint8) for split in splits)
    return train, tuning, validation


def standard_library(max_bytes: int) -> tuple[Tokens, Tokens]:
    """Return the first ``max_bytes`` of the sorted sources as training and validation tokens.

    Every tenth file is held out whole, so that no file is in both.
    """
    files = [path for path in _sources() if "test" not in path.parts]
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


def _sources() -> list[Path]:
    root = Path(sysconfig.get_path("stdlib"))
    return sorted(path for path in root.rglob("*.py") if "site-packages" not in path.parts)
