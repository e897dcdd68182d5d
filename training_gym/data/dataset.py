"""Byte-token datasets: manifest, and windows of a split. No torch.

A manifest is the canonical JSON of::

    {"kind": "zoo-dataset/1", "tokenizer": "bytes",
     "train":      {"cid": ..., "size": bytes, "sha256": "0x..."},
     "validation": {"cid": ..., "size": bytes, "sha256": "0x..."}}

Each split is one raw file; its tokens are its bytes. The sample order is pure, so nodes choose nothing and replays
need no state.
"""

import hashlib
import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training_gym.spec.config import TrainingSpec
from training_gym.spec.errors import ManifestError, StateError
from training_gym.spec.manifests import read_cid, read_fields, read_hash, read_integer, read_json
from zoo_protocol.hashing import canonical_json, sha256, to_hex

KIND = "zoo-dataset/1"
MAX_TRAIN_BYTES = 1 << 36
MAX_VALIDATION_BYTES = 1 << 30
"""Limit because the market loads the whole split for each checkpoint's loss over 256 windows."""
Tokens = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Split:
    """One file of a dataset: its CID, its size in bytes and its SHA2-256 as 0x hex."""

    cid: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class DatasetManifest:
    """The two splits of a byte-token dataset."""

    train: Split
    validation: Split

    def to_bytes(self) -> bytes:
        """Return the canonical manifest file."""
        splits = {"train": asdict(self.train), "validation": asdict(self.validation)}
        return canonical_json({"kind": KIND, "tokenizer": "bytes", **splits})

    @classmethod
    def from_bytes(cls, data: bytes) -> "DatasetManifest":
        """Parse an untrusted manifest file. Raises ManifestError, which names the wrong field."""
        document = read_json(data, "dataset manifest")
        read_fields(document, "manifest", ["kind", "tokenizer", "train", "validation"])
        if (document["kind"], document["tokenizer"]) != (KIND, "bytes"):
            raise ManifestError("unsupported_value", "manifest.kind", f"must be {KIND!r} with tokenizer 'bytes'")
        return cls(
            _read_split(document["train"], "train", MAX_TRAIN_BYTES),
            _read_split(document["validation"], "validation", MAX_VALIDATION_BYTES),
        )


def describe_split(cid: str, content: bytes) -> Split:
    """Return the manifest entry of a split whose file ``content`` has the CID ``cid``."""
    return Split(cid, len(content), to_hex(sha256(content)))


def _read_split(document: Mapping[str, Any], name: str, limit: int) -> Split:
    read_fields(document, name, ["cid", "size", "sha256"])
    return Split(
        cid=read_cid(document["cid"], f"{name}.cid"),
        size=read_integer(document["size"], f"{name}.size", 1, limit),
        sha256=read_hash(document["sha256"], f"{name}.sha256"),
    )


def tokens_of(content: bytes, spec: TrainingSpec, what: str) -> Tokens:
    """Return the tokens of a split's file. Raises StateError: shorter than one window."""
    window = spec.model.sequence_length + 1
    if len(content) < window:
        raise StateError(
            "too_short", what, f"has {len(content)} tokens; expected at least one window of {window}. Provide more text"
        )
    return np.frombuffer(content, np.uint8)


def window_start(seed: int, round_: int, slot: int, step: int, row: int, windows: int) -> int:
    """Return the window, from 0 to ``windows - 1``, that ``row`` of inner ``step`` reads.

    The start is a keyed hash of its coordinates, so any row is found in constant time. The modulo's bias is below
    2**-64 for any dataset.
    """
    coordinates = struct.pack(">QQQQQ", seed, round_, slot, step, row)
    word = hashlib.sha256(b"zoo-order-1" + coordinates).digest()[:16]
    return int.from_bytes(word, "big") % windows


def training_batch(spec: TrainingSpec, train: Tokens, round_: int, slot: int, step: int) -> Tokens:
    """Return the windows [batch_size, sequence_length + 1] of inner ``step`` of a unit."""
    length = spec.model.sequence_length
    starts = [
        window_start(spec.training.seed, round_, slot, step, row, len(train) - length)
        for row in range(spec.training.batch_size)
    ]
    return np.stack([train[start : start + length + 1] for start in starts])


def validation_windows(spec: TrainingSpec, validation: Tokens, most: int) -> Tokens:
    """Return at most ``most`` windows [W, sequence_length + 1], evenly spread."""
    length = spec.model.sequence_length
    count = min(most, len(validation) // (length + 1))
    last = len(validation) - length - 1
    starts = [last * index // max(count - 1, 1) for index in range(count)]
    return np.stack([validation[start : start + length + 1] for start in starts])
