"""Files of a dataset's shards: tokens, rows and loss masks. No torch.

A shard of ``text`` is its little-endian tokens. One of ``chat`` or ``preferences`` has three parts without gaps:

- offsets: the first token of each row, and the number of tokens, as little-endian uint32
- tokens: little-endian
- mask: one bit for each token, least significant bit first; 1 if the token is a target of the loss

A conversation is one row. A preference is two rows: prompt and preferred answer, prompt and other answer.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from training_gym.spec.errors import StateError

DTYPES: dict[str, np.dtype[Any]] = {"uint8": np.dtype("<u1"), "uint16": np.dtype("<u2"), "uint32": np.dtype("<u4")}
ROWS_PER_SAMPLE = {"text": 0, "chat": 1, "preferences": 2}
"""Rows of a sample by the kind of samples; a sample of text is a part of the tokens."""
MIN_ROW = 2
"""A row of fewer tokens has no target."""
Tokens = NDArray[Any]
Bytes = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Layout:
    """Properties that all shards of a dataset share.

    Attributes:
        samples: kind of samples, a key of :data:`ROWS_PER_SAMPLE`.
        dtype: type of the tokens, a key of :data:`DTYPES`.
        separator: token that ends a document of text; None if documents have no borders.
    """

    samples: str = "text"
    dtype: str = "uint8"
    separator: int | None = None

    @property
    def width(self) -> int:
        """Return the bytes of a token."""
        return DTYPES[self.dtype].itemsize

    @property
    def rows(self) -> int:
        """Return the rows of a sample; 0 for text."""
        return ROWS_PER_SAMPLE[self.samples]

    def file_size(self, size: "ShardSize") -> int:
        """Return the bytes of a shard's file."""
        rows = self.rows * size.samples
        return size.tokens * self.width + (4 * (rows + 1) + -(-size.tokens // 8) if rows else 0)


class ShardSize(NamedTuple):
    """Numbers of a shard's tokens and samples; 0 samples for text."""

    tokens: int
    samples: int


class ShardFile(NamedTuple):
    """Parts of a shard's file; text has tokens only.

    Attributes:
        tokens: [N].
        offsets: first token of each row, and N.
        mask: bits of the loss mask.
    """

    tokens: Tokens
    offsets: NDArray[np.uint32]
    mask: Bytes

    def targets(self, start: int, end: int) -> NDArray[np.bool_]:
        """Return which of the tokens from ``start`` to ``end`` are targets of the loss."""
        bits = np.unpackbits(self.mask[start // 8 : -(-end // 8)], bitorder="little")
        return bits[start % 8 :][: end - start].astype(bool)


def open_shard(content: Bytes, layout: Layout, size: ShardSize, vocab_size: int, path: str) -> ShardFile:
    """Return the parts of an untrusted shard file as views of ``content``.

    Args:
        content: the file's bytes, which may be mapped into memory.
        layout, size: those of the manifest.
        vocab_size: number of the tokens that the model knows.
        path: name of the shard, for errors.

    Raises:
        StateError: another size, rows that do not ascend, bits behind the mask, or a token beyond the vocabulary.
    """
    if len(content) != layout.file_size(size):
        detail = f"has {len(content)} bytes; the manifest's {size.tokens} tokens make {layout.file_size(size)}"
        raise StateError("wrong_size", path, detail)
    start = 4 * (layout.rows * size.samples + 1) if layout.rows else 0
    end = start + size.tokens * layout.width
    found = ShardFile(content[start:end].view(DTYPES[layout.dtype]), content[:start].view("<u4"), content[end:])
    if layout.rows:
        _check_rows(found, path)
    if (most := int(found.tokens.max())) >= vocab_size:
        raise StateError("out_of_range", path, f"has the token {most}; the model knows {vocab_size}")
    return found


def _check_rows(shard: ShardFile, path: str) -> None:
    rows = shard.offsets.astype(np.int64)
    if rows[0] != 0 or rows[-1] != len(shard.tokens) or (np.diff(rows) < MIN_ROW).any():
        detail = f"has rows that do not ascend by {MIN_ROW} tokens at least; publish the dataset again"
        raise StateError("malformed", path, detail)
    if len(shard.tokens) % 8 and shard.mask[-1] >> len(shard.tokens) % 8:
        raise StateError("malformed", path, "has bits behind its loss mask; publish the dataset again")
