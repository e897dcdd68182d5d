"""Writing of shards in the format of :mod:`training_gym.data.shards`. No torch."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from training_gym.data.dataset import MAX_SHARDS, Shard
from training_gym.data.shards import DTYPES
from training_gym.spec.errors import DataError
from zoo_protocol.content.unixfs import cid_of_file
from zoo_protocol.hashing import sha256, to_hex

SHARD_TOKENS = 1 << 24
"""Tokens of a full shard: 32 or 64 MiB, which a node fetches whole."""


class Row(NamedTuple):
    """One row of a shard: tokens [T], and true for each one that is a target of the loss."""

    tokens: NDArray[np.uint32]
    targets: NDArray[np.bool_]


class SplitWriter:
    """Writer of one split's shards to a folder; memory holds one shard.

    Text fills each shard to its last token. A sample's rows stay in one shard, which ends before the sample that would
    exceed ``shard_tokens``.

    Attributes:
        shards: entries of the manifest so far.
        paths: their files.
    """

    def __init__(self, folder: Path, name: str, dtype: str, shard_tokens: int = SHARD_TOKENS) -> None:
        self.shards: list[Shard] = []
        self.paths: list[Path] = []
        self._folder, self._name, self._size = folder, name, shard_tokens
        self._dtype = DTYPES[dtype]
        self._tokens = np.empty(shard_tokens, self._dtype)
        self._filled = 0
        self._rows: list[Row] = []
        self._samples = 0

    def add_text(self, tokens: Sequence[int]) -> None:
        """Append the tokens of a part of a document. Raises DataError: too many shards."""
        values = np.array(tokens, self._dtype)
        while len(values):
            taken = min(len(values), self._size - self._filled)
            self._tokens[self._filled : self._filled + taken] = values[:taken]
            self._filled += taken
            values = values[taken:]
            if self._filled == self._size:
                self._write_text()

    def add_sample(self, rows: Sequence[Row]) -> None:
        """Append the rows of one sample. Raises DataError: too many shards."""
        length = sum(len(row.tokens) for row in rows)
        if self._samples and self._filled + length > self._size:
            self._write_rows()
        self._rows += rows
        self._filled += length
        self._samples += 1

    def finish(self) -> None:
        """Write the last shard."""
        if self._rows:
            self._write_rows()
        elif self._filled:
            self._write_text()

    def _write_text(self) -> None:
        self._write(self._tokens[: self._filled].tobytes())

    def _write_rows(self) -> None:
        offsets = np.cumsum([0, *(len(row.tokens) for row in self._rows)], dtype=np.uint32).astype("<u4")
        tokens = np.concatenate([row.tokens for row in self._rows]).astype(self._dtype)
        mask = np.packbits(np.concatenate([row.targets for row in self._rows]), bitorder="little")
        self._write(offsets.tobytes() + tokens.tobytes() + mask.tobytes())
        self._rows = []

    def _write(self, content: bytes) -> None:
        if len(self.shards) == MAX_SHARDS:
            raise DataError("too_large", self._name, f"has more than {MAX_SHARDS} shards; build several datasets")
        path = self._folder / f"{self._name}-{len(self.shards):05}.bin"
        path.write_bytes(content)
        self.paths.append(path)
        self.shards.append(Shard(cid_of_file(content), self._filled, to_hex(sha256(content)), self._samples))
        self._filled = self._samples = 0
