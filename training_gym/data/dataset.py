"""Token datasets: manifest, and sequences of a split. No torch.

A manifest is the canonical JSON of :class:`DatasetManifest` and the kind ``zoo-dataset/2``. ``train`` and
``validation`` list their shards. ``separator`` and ``tokenizer`` may be null.

:mod:`training_gym.data.shards` has the files. Without a tokenizer the tokens are bytes. A sequence of text has
``sequence_length`` + 1 tokens and shares its last one with the next; none crosses the end of a shard. The order of
samples (:mod:`training_gym.data.order`) is pure, so nodes choose nothing and replays need no state.
"""

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from training_gym.data.order import SampleOrder, position_of
from training_gym.data.samples import Sample, masked_row, text_row
from training_gym.data.shards import DTYPES, MIN_ROW, ROWS_PER_SAMPLE, Bytes, Layout, ShardSize, Tokens, open_shard
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
SAMPLES = {"causal_lm": "text", "sft": "chat", "dpo": "preferences"}
"""Kind of samples by the objective that reads them."""
MAX_SHARDS = 4096
MAX_SHARD_TOKENS = 1 << 30
MAX_TRAIN_TOKENS = MAX_SHARDS * MAX_SHARD_TOKENS
MAX_VALIDATION_TOKENS = 1 << 28
"""Limit because the market loads the whole split for each checkpoint's loss over 256 sequences."""
MAX_TOKENIZER_BYTES = 1 << 26
MAX_TEXT = 500


@dataclass(frozen=True, slots=True)
class Shard:
    """One file of a split: its CID, numbers of tokens and samples, and its SHA2-256 as 0x hex."""

    cid: str
    tokens: int
    sha256: str
    samples: int = 0

    @property
    def size(self) -> ShardSize:
        """Return both numbers."""
        return ShardSize(self.tokens, self.samples)


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
        if document["kind"] != KIND or document["dtype"] not in list(DTYPES):
            raise ManifestError("unsupported_value", "manifest.kind", f"must be {KIND!r} of {', '.join(DTYPES)}")
        samples, tokenizer = document["samples"], document["tokenizer"]
        if samples not in list(ROWS_PER_SAMPLE):  # an untrusted value may have no hash
            listed = ", ".join(ROWS_PER_SAMPLE)
            raise ManifestError("unsupported_value", "samples", f"is {samples!r:.80}; choose one of {listed}")
        most = 1 << 8 * DTYPES[document["dtype"]].itemsize
        vocab_size = read_integer(document["vocab_size"], "vocab_size", 1, most)
        return cls(
            train=_read_split(document["train"], "train", MAX_TRAIN_TOKENS, samples),
            validation=_read_split(document["validation"], "validation", MAX_VALIDATION_TOKENS, samples),
            vocab_size=vocab_size,
            dtype=document["dtype"],
            tokenizer=None if tokenizer is None else read_file(tokenizer, "tokenizer", MAX_TOKENIZER_BYTES),
            source=read_pattern(document["source"], "source", f"[^\\0]{{0,{MAX_TEXT}}}", "a short text"),
            licence=read_pattern(document["licence"], "licence", f"[^\\0]{{0,{MAX_TEXT}}}", "a short text"),
            samples=samples,
            separator=_read_separator(document["separator"], samples, vocab_size),
        )

    @property
    def layout(self) -> Layout:
        """Return the properties that all shards share."""
        return Layout(self.samples, self.dtype, self.separator)

    def size_of(self, shard: Shard) -> int:
        """Return the size in bytes of a shard's file."""
        return self.layout.file_size(shard.size)


def describe_shard(cid: str, content: bytes, dtype: str = "uint8") -> Shard:
    """Return the manifest entry of a shard of text whose file ``content`` has the CID ``cid``."""
    return Shard(cid, len(content) // DTYPES[dtype].itemsize, to_hex(sha256(content)))


def _read_separator(value: object, samples: str, vocab_size: int) -> int | None:
    if value is None:
        return None
    if samples != "text":
        raise ManifestError(
            "unsupported_value", "separator", f"must be null; the rows of {samples} end by their offsets"
        )
    return read_integer(value, "separator", 0, vocab_size - 1)


def _read_split(document: object, name: str, most: int, samples: str) -> tuple[Shard, ...]:
    if not isinstance(document, list) or not 1 <= len(document) <= MAX_SHARDS:
        raise ManifestError("wrong_type", name, f"must be a list of 1 to {MAX_SHARDS} shards")
    found = tuple(_read_shard(shard, f"{name}.{number}", samples) for number, shard in enumerate(document))
    if (total := sum(shard.tokens for shard in found)) > most:
        raise ManifestError("out_of_range", name, f"has {total} tokens, beyond {most}")
    return found


def _read_shard(document: Mapping[str, Any], path: str, samples: str) -> Shard:
    fields = read_fields(document, path, ["cid", "tokens", "samples", "sha256"])
    tokens = read_integer(fields["tokens"], f"{path}.tokens", 1, MAX_SHARD_TOKENS)
    rows = ROWS_PER_SAMPLE[samples]
    least, most = (1, tokens // (MIN_ROW * rows)) if rows else (0, 0)
    return Shard(
        cid=read_cid(fields["cid"], f"{path}.cid"),
        tokens=tokens,
        sha256=read_hash(fields["sha256"], f"{path}.sha256"),
        samples=read_integer(fields["samples"], f"{path}.samples", least, most),
    )


def check_samples(spec: TrainingSpec, samples: str) -> None:
    """Refuse a dataset with other ``samples`` than the objective reads. Raises ManifestError."""
    wanted = SAMPLES[spec.training.objective]
    if samples != wanted:
        detail = f"has samples of the kind {samples!r}; the objective {spec.training.objective!r} reads {wanted!r}"
        raise ManifestError("wrong_kind", "data_config.dataset", f"{detail}. Choose another objective or dataset")


class Split:
    """Sequences of a split whose shards may be present or not.

    Attributes:
        layout: properties of the shards.
        order: order of the training samples.
    """

    def __init__(
        self, spec: TrainingSpec, layout: Layout, sizes: Sequence[ShardSize], present: Mapping[int, Bytes]
    ) -> None:
        """Describe a split of shards of these ``sizes``; ``present`` ones have their files' bytes.

        Raises:
            ManifestError: the samples are of another kind than the objective reads.
            StateError: there is no whole sample, or a file is not one that the manifest describes.
        """
        check_samples(spec, layout.samples)
        self._length, self.layout = spec.model.sequence_length, layout
        counts = [size.samples or max(0, size.tokens - 1) // self._length for size in sizes]
        if not any(counts):
            most = max((size.tokens for size in sizes), default=0)
            detail = f"has {most} tokens; expected at least one sequence of {self._length + 1}. Provide more text"
            raise StateError("too_short", "dataset", detail)
        self._present = {
            shard: open_shard(content, layout, sizes[shard], spec.model.vocab_size, f"dataset.{shard}")
            for shard, content in present.items()
        }
        self.order = SampleOrder(counts, order_seed(spec))

    def sample(self, shard: int, sample: int) -> Sample:
        """Return the rows of a sample. Raises StateError: its shard is not present."""
        if shard not in self._present:
            raise StateError("missing", f"dataset.{shard}", "is not on this node; fetch it")
        file, rows = self._present[shard], self.layout.rows
        if not rows:
            return (text_row(file, sample * self._length, self._length, self.layout.separator),)
        return tuple(masked_row(file, row, self._length) for row in range(sample * rows, (sample + 1) * rows))

    def with_changed_token(self, shard: int, sample: int) -> "Split":
        """Return the split with another first token of a sample, for adversaries."""
        file, rows = self._present[shard], self.layout.rows
        changed = file.tokens.copy()
        changed[file.offsets[sample * rows] if rows else sample * self._length] ^= 1
        other = copy.copy(self)
        other._present = {**self._present, shard: file._replace(tokens=changed)}
        return other


def data_of(spec: TrainingSpec) -> tuple[str, int, str]:
    """Return what a job reads and computes the loss of: of equal ones, losses are comparable."""
    return spec.dataset, spec.model.sequence_length, spec.training.objective


def order_seed(spec: TrainingSpec) -> int:
    """Return the seed of the order of samples: the job's, mixed with the model of its start.

    So two jobs in a row with one seed read the same data in different orders. A continuation of a checkpoint keeps the
    order and goes on in it.
    """
    starts = [cid for cid in (spec.start_model, spec.base) if cid is not None]
    if not starts:
        return spec.training.seed
    mixed = sha256("/".join(["zoo-order-start-1", str(spec.training.seed), *starts]).encode())
    return int.from_bytes(mixed[:8], "big")


def one_shard(spec: TrainingSpec, content: bytes | Tokens, layout: Layout | None = None, samples: int = 0) -> Split:
    """Return the split of one file, by default a text of bytes. Raises as :class:`Split`."""
    layout, found = layout or Layout(), np.frombuffer(content, np.uint8)
    rows = layout.rows * samples
    tokens = int(found[4 * rows :][:4].view("<u4")[0]) if rows else len(found) // layout.width
    return Split(spec, layout, [ShardSize(tokens, samples)], {0: found})


def read_split(
    spec: TrainingSpec, manifest: DatasetManifest, shards: Sequence[Shard], fetch: Callable[[Shard], bytes]
) -> Split:
    """Return the split of these ``shards``, all fetched and compared with their digests.

    Raises:
        ManifestError: a file is not the one that the manifest describes, or its samples are of another kind.
        StateError: see :class:`Split`.
    """
    check_samples(spec, manifest.samples)
    present = {}
    for number, shard in enumerate(shards):
        content = fetch(shard)
        if to_hex(sha256(content)) != shard.sha256:
            raise ManifestError("wrong_hash", f"shard {number}", "has another digest; publish the dataset again")
        present[number] = np.frombuffer(content, np.uint8)
    return Split(spec, manifest.layout, [shard.size for shard in shards], present)


def unit_places(spec: TrainingSpec, order: SampleOrder, round_: int, slot: int, steps: range) -> list[tuple[int, int]]:
    """Return shard and sample of what a unit reads in these inner ``steps``, in order."""
    training = spec.training
    first = ((spec.start_round + round_) * training.inner_steps + steps.start) * training.batch_size
    read = range(first, first + len(steps) * training.batch_size)
    return [order.place(position_of(slot, spec.replicas, sample)) for sample in read]


def training_samples(spec: TrainingSpec, train: Split, round_: int, slot: int, step: int) -> list[Sample]:
    """Return the ``batch_size`` samples of inner ``step`` of a unit."""
    return [train.sample(*place) for place in unit_places(spec, train.order, round_, slot, range(step, step + 1))]


def validation_size(spec: TrainingSpec, manifest: DatasetManifest) -> int:
    """Return the samples of the validation split; raises as :class:`Split`."""
    return Split(spec, manifest.layout, [shard.size for shard in manifest.validation], {}).order.size


def validation_samples(validation: Split, most: int) -> list[Sample]:
    """Return at most ``most`` samples, evenly spread."""
    size = validation.order.size
    count = min(most, size)
    chosen = [(size - 1) * index // max(count - 1, 1) for index in range(count)]
    return [validation.sample(*validation.order.in_order(index)) for index in chosen]


def spread_samples(validation: Split, numbers: range) -> list[Sample]:
    """Return samples of a fixed order, each first part of which is spread over the split."""
    return [validation.sample(*place) for place in spread_places(validation.order, numbers)]


def spread_places(order: SampleOrder, numbers: range) -> list[tuple[int, int]]:
    """Return shard and sample of each of :func:`spread_samples`."""
    size = order.size
    step = next(step for step in range(size * 618 // 1000 + 1, 2 * size + 1) if math.gcd(step, size) == 1)
    return [order.in_order(number * step % size) for number in numbers]


def evaluated_numbers(spec: TrainingSpec, slot: int, order: SampleOrder) -> range:
    """Return the samples that a replica's units evaluate, as numbers of :func:`spread_samples`."""
    begin, share = slot * spec.validation_samples, spec.validation_samples
    return range(min(begin, order.size), min(begin + share, order.size))
