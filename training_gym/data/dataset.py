"""Token datasets: manifest, and sequences of a split. No torch.

A manifest is the canonical JSON of::

    {"kind": "zoo-dataset/2", "tokenizer": {"cid": ..., "size": bytes, "sha256": "0x..."} or null,
     "vocab_size": above every token, "dtype": "uint8" | "uint16" | "uint32", "source": text, "licence": text,
     "samples": "text" | "chat" | "preferences", "separator": token that ends a document, or null,
     "train": [{"cid": ..., "tokens": number, "samples": number, "sha256": "0x..."}, ...], "validation": [...]}

A shard of ``text`` is one raw file of little-endian tokens, with 0 ``samples``. Without a tokenizer the tokens are
bytes. A sequence has ``sequence_length`` + 1 tokens and shares its last one with the next; none crosses the end of a
shard. A shard of the other kinds has rows (:mod:`training_gym.data.shard_files`). The order of samples
(:mod:`training_gym.data.order`) is pure, so nodes choose nothing and replays need no state.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training_gym.data.order import SampleOrder, position_of
from training_gym.spec.config import TrainingSpec
from training_gym.spec.errors import ManifestError, StateError
from training_gym.spec.manifests import (
    StoredFile,
    read_cid,
    read_fields,
    read_file,
    read_hash,
    read_integer,
    read_json,
    read_pattern,
)
from zoo_protocol.hashing import canonical_json, sha256, to_hex

KIND = "zoo-dataset/2"
DTYPES: dict[str, np.dtype[Any]] = {"uint8": np.dtype("<u1"), "uint16": np.dtype("<u2"), "uint32": np.dtype("<u4")}
ROWS_PER_SAMPLE = {"text": 0, "chat": 1, "preferences": 2}
"""Rows of a sample, by kind; samples of ``text`` follow from the sequence length."""
OFFSET_BYTES = 4
MAX_SHARDS = 4096
MAX_SHARD_TOKENS = 1 << 30
MAX_TRAIN_TOKENS = MAX_SHARDS * MAX_SHARD_TOKENS
MAX_VALIDATION_TOKENS = 1 << 28
"""Limit because the market loads the whole split for each checkpoint's loss over 256 sequences."""
MAX_TOKENIZER_BYTES = 1 << 26
MAX_TEXT = 500
Tokens = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Shard:
    """One file of a split: CID, numbers of tokens and samples, and SHA2-256 as 0x hex."""

    cid: str
    tokens: int
    sha256: str
    samples: int = 0


@dataclass(frozen=True, slots=True)
class DatasetManifest:
    """Shards of both splits, and how their tokens came about."""

    train: tuple[Shard, ...]
    validation: tuple[Shard, ...]
    vocab_size: int = 256
    dtype: str = "uint8"
    tokenizer: StoredFile | None = None
    source: str = ""
    licence: str = ""
    samples: str = "text"
    separator: int | None = None

    def to_bytes(self) -> bytes:
        """Return the canonical manifest file."""
        return canonical_json({"kind": KIND, **asdict(self)})

    @classmethod
    def from_bytes(cls, data: bytes) -> "DatasetManifest":
        """Parse an untrusted manifest file. Raises ManifestError, which names the wrong field."""
        document = read_fields(read_json(data, "dataset manifest"), "manifest", ["kind", *cls.__slots__])
        if document["kind"] != KIND or document["dtype"] not in DTYPES:
            raise ManifestError("unsupported_value", "manifest.kind", f"must be {KIND!r} of {', '.join(DTYPES)}")
        tokenizer, kind, separator = (document[name] for name in ("tokenizer", "samples", "separator"))
        if kind not in ROWS_PER_SAMPLE:
            raise ManifestError("unsupported_value", "samples", f"is {kind!r:.80}; choose {', '.join(ROWS_PER_SAMPLE)}")
        vocab_size = read_integer(document["vocab_size"], "vocab_size", 1, 1 << (8 * _width(document["dtype"])))
        return cls(
            train=_read_split(document["train"], "train", MAX_TRAIN_TOKENS, kind),
            validation=_read_split(document["validation"], "validation", MAX_VALIDATION_TOKENS, kind),
            vocab_size=vocab_size,
            samples=kind,
            separator=None if separator is None else read_integer(separator, "separator", 0, vocab_size - 1),
            dtype=document["dtype"],
            tokenizer=None if tokenizer is None else read_file(tokenizer, "tokenizer", MAX_TOKENIZER_BYTES),
            source=read_pattern(document["source"], "source", f"[^\\0]{{0,{MAX_TEXT}}}", "a short text"),
            licence=read_pattern(document["licence"], "licence", f"[^\\0]{{0,{MAX_TEXT}}}", "a short text"),
        )

    def size_of(self, shard: Shard) -> int:
        """Return the size in bytes of a shard's file."""
        rows = shard.samples * ROWS_PER_SAMPLE[self.samples]
        return shard.tokens * _width(self.dtype) + (OFFSET_BYTES * (rows + 1) + -(-shard.tokens // 8) if rows else 0)


def _width(dtype: str) -> int:
    return DTYPES[dtype].itemsize


def describe_shard(cid: str, content: bytes, dtype: str = "uint8") -> Shard:
    """Return the manifest entry of a shard whose file ``content`` has the CID ``cid``."""
    return Shard(cid, len(content) // _width(dtype), to_hex(sha256(content)))


def _read_split(document: object, name: str, most: int, kind: str) -> tuple[Shard, ...]:
    if not isinstance(document, list) or not 1 <= len(document) <= MAX_SHARDS:
        raise ManifestError("wrong_type", name, f"must be a list of 1 to {MAX_SHARDS} shards")
    found = tuple(_read_shard(shard, f"{name}.{number}", kind) for number, shard in enumerate(document))
    if (total := sum(shard.tokens for shard in found)) > most:
        raise ManifestError("out_of_range", name, f"has {total} tokens, beyond {most}")
    return found


def _read_shard(document: Mapping[str, Any], path: str, kind: str) -> Shard:
    fields = read_fields(document, path, ["cid", "tokens", "samples", "sha256"])
    tokens = read_integer(fields["tokens"], f"{path}.tokens", 1, MAX_SHARD_TOKENS)
    rows = ROWS_PER_SAMPLE[kind]
    samples = read_integer(fields["samples"], f"{path}.samples", min(rows, 1), tokens // rows if rows else 0)
    return Shard(read_cid(fields["cid"], f"{path}.cid"), tokens, read_hash(fields["sha256"], f"{path}.sha256"), samples)


class Split:
    """Sequences of a split whose shards may be present or not.

    Attributes:
        order: order of the training samples.
    """

    def __init__(self, spec: TrainingSpec, tokens: Sequence[int], present: Mapping[int, Tokens]) -> None:
        """Describe a split of shards with these numbers of ``tokens``; ``present`` ones have their tokens.

        Raises:
            StateError: there is no whole sequence, a shard has another length, or a token is not in the vocabulary.
        """
        self._length = spec.model.sequence_length
        counts = [max(0, number - 1) // self._length for number in tokens]
        if not any(counts):
            most = max(tokens, default=0)
            detail = f"has {most} tokens; expected at least one sequence of {self._length + 1}. Provide more text"
            raise StateError("too_short", "dataset", detail)
        for shard, values in present.items():
            if len(values) != tokens[shard]:
                detail = f"has {len(values)} tokens; the manifest says {tokens[shard]}"
                raise StateError("wrong_size", f"dataset.{shard}", detail)
            if int(values.max()) >= spec.model.vocab_size:
                detail = f"has the token {values.max()}; the model knows {spec.model.vocab_size}"
                raise StateError("out_of_range", f"dataset.{shard}", detail)
        self._present = present
        self.order = SampleOrder(counts, spec.training.seed)

    def sequence(self, shard: int, sample: int) -> Tokens:
        """Return the tokens [sequence_length + 1] of a sample. Raises StateError: its shard is not present."""
        if shard not in self._present:
            raise StateError("missing", f"dataset.{shard}", "is not on this node; fetch it")
        start = sample * self._length
        found: Tokens = self._present[shard][start : start + self._length + 1]
        return found

    def with_changed_token(self, shard: int, sample: int) -> "Split":
        """Return the split with another first token of a sample, for adversaries."""
        changed = self._present[shard].copy()
        changed[sample * self._length] ^= 1
        other = copy.copy(self)
        other._present = {**self._present, shard: changed}
        return other


def one_shard(spec: TrainingSpec, content: bytes | Tokens, dtype: str = "uint8") -> Split:
    """Return the split of one shard's file or tokens. Raises StateError: see :class:`Split`."""
    tokens = np.frombuffer(content, DTYPES[dtype])
    return Split(spec, [len(tokens)], {0: tokens})


def read_split(
    spec: TrainingSpec, manifest: DatasetManifest, shards: Sequence[Shard], fetch: Callable[[Shard], bytes]
) -> Split:
    """Return the split of these ``shards`` of the manifest, all fetched and compared with their digests.

    Raises:
        ManifestError: a file is not the one that the manifest describes.
        StateError: see :class:`Split`.
    """
    present = {}
    for number, shard in enumerate(shards):
        content = fetch(shard)
        if to_hex(sha256(content)) != shard.sha256:
            raise ManifestError("wrong_hash", f"shard {number}", "has another digest; publish the dataset again")
        present[number] = np.frombuffer(content, DTYPES[manifest.dtype])
    return Split(spec, [shard.tokens for shard in shards], present)


def unit_places(spec: TrainingSpec, order: SampleOrder, round_: int, slot: int, steps: range) -> list[tuple[int, int]]:
    """Return shard and sample of each sequence that a unit reads in these inner ``steps``, in order."""
    training = spec.training
    first = (round_ * training.inner_steps + steps.start) * training.batch_size
    read = range(first, first + len(steps) * training.batch_size)
    return [order.place(position_of(slot, spec.replicas, sample)) for sample in read]


def training_batch(spec: TrainingSpec, train: Split, round_: int, slot: int, step: int) -> Tokens:
    """Return the sequences [batch_size, sequence_length + 1] of inner ``step`` of a unit."""
    places = unit_places(spec, train.order, round_, slot, range(step, step + 1))
    return np.stack([train.sequence(*place) for place in places])


def validation_sequences(validation: Split, most: int) -> Tokens:
    """Return at most ``most`` sequences [W, sequence_length + 1], evenly spread."""
    size = validation.order.size
    count = min(most, size)
    chosen = [(size - 1) * index // max(count - 1, 1) for index in range(count)]
    return np.stack([validation.sequence(*validation.order.in_order(index)) for index in chosen])


def drawn_sequences(validation: Split, count: int, seed: int) -> Tokens:
    """Return sequences [count, sequence_length + 1] drawn by ``seed``."""
    drawn = np.random.default_rng(seed).integers(0, validation.order.size, count)
    return np.stack([validation.sequence(*validation.order.in_order(int(index))) for index in drawn])
