"""Datasets from files: shards and a manifest in a folder. No torch.

The result is a function of the files' content, their order and the options. Memory holds a batch of text and one shard
a split.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path

from training_gym.data.dataset import MAX_TEXT, MAX_VALIDATION_TOKENS, DatasetManifest
from training_gym.data.records import KINDS, Record, Text, texts_of
from training_gym.data.shard_files import SHARD_TOKENS, SplitWriter
from training_gym.data.shards import MIN_ROW
from training_gym.data.text_sources import Part, Read, SourceFile
from training_gym.data.text_tokenizer import TextTokenizer, train_bpe
from training_gym.spec.errors import DataError
from training_gym.spec.manifests import StoredFile
from zoo_protocol.content.unixfs import cid_of_file
from zoo_protocol.hashing import sha256, to_hex

MANIFEST_FILE, TOKENIZER_FILE = "manifest.json", "tokenizer.json"
TRAINED_BYTES = 1 << 27
"""Bytes of text that a BPE is trained on; of more, a share chosen by the content's hash."""
_BATCH_CHARACTERS = 1 << 20
Writers = Mapping[str, SplitWriter]
"""Writers by the split's name."""


@dataclass(frozen=True, slots=True)
class Options:
    """Settings of a dataset.

    Attributes:
        validation_share: share of the documents that validate, chosen by the hash of their content.
        licence: of the data, for the manifest.
        source: where it is from, for the manifest; empty: the files' names.
        shard_tokens: tokens of a full shard.
    """

    validation_share: float = 0.05
    licence: str = ""
    source: str = ""
    shard_tokens: int = SHARD_TOKENS


@dataclass(frozen=True, slots=True)
class BuiltDataset:
    """A dataset in a folder: the manifest, and its files in the order in which they are stored.

    Attributes:
        documents: number of documents, conversations or preferences of each split.
    """

    manifest: DatasetManifest
    files: tuple[Path, ...]
    documents: dict[str, int]


def build_dataset(
    train: Sequence[SourceFile],
    validation: Sequence[SourceFile],
    tokenizer: TextTokenizer,
    folder: Path,
    options: Options,
    read: Read = lambda _: None,
) -> BuiltDataset:
    """Write shards, tokenizer and manifest to ``folder``, which exists.

    Args:
        train: files to train on.
        validation: files to validate on; without them, ``options.validation_share`` of the training documents.
        read: called with the bytes read.

    Raises:
        DataError: a broken record, records of several kinds, or a split without a document.
    """
    for name, text in (("licence", options.licence), ("source", options.source)):
        if len(text) > MAX_TEXT or "\0" in text:
            raise DataError(
                "out_of_range", name, f"has {len(text)} characters; write at most {MAX_TEXT}, none of them 0"
            )
    share = 0.0 if validation else options.validation_share
    held_out = (("validation", part) for part in _parts_of(validation, read))
    parts = chain(_split(_parts_of(train, read), share), held_out)
    first = next(parts, None)
    if first is None:
        raise DataError("no_data", "sources", "have no text; give other files")
    kind = KINDS[type(first[1].record)]
    writers = {
        name: SplitWriter(folder, name, tokenizer.dtype, options.shard_tokens) for name in ("train", "validation")
    }
    counts = dict.fromkeys(writers, 0)
    write = _write_texts if kind == "text" else _write_rows
    write(_of_kind(chain([first], parts), kind), tokenizer, writers, counts)
    for name, writer in writers.items():
        writer.finish()
        if not writer.shards:
            remedy = "give a validation file, more data, or another share"
            raise DataError("too_short", name, f"has no document; {remedy}")
    if (total := sum(shard.tokens for shard in writers["validation"].shards)) > MAX_VALIDATION_TOKENS:
        detail = f"has {total} tokens, beyond {MAX_VALIDATION_TOKENS}; give a smaller share or file"
        raise DataError("too_large", "validation", detail)
    manifest = DatasetManifest(
        train=tuple(writers["train"].shards),
        validation=tuple(writers["validation"].shards),
        vocab_size=tokenizer.vocab_size,
        dtype=tokenizer.dtype,
        tokenizer=_store(folder / TOKENIZER_FILE, tokenizer.json),
        source=options.source or _names(train),
        licence=options.licence,
        samples=kind,
        separator=tokenizer.separator if kind == "text" else None,
    )
    (folder / MANIFEST_FILE).write_bytes(manifest.to_bytes())
    paths = [path for writer in writers.values() for path in writer.paths]
    return BuiltDataset(manifest, (folder / TOKENIZER_FILE, *paths, folder / MANIFEST_FILE), counts)


def bpe_of(files: Sequence[SourceFile], vocab_size: int, read: Read = lambda _: None) -> bytes:
    """Return ``tokenizer.json`` of a BPE of the files, or of a share of large ones.

    Raises:
        DataError: a broken record, or a size out of range.
    """
    total = sum(file.size or 0 for file in files)
    share = min(1.0, TRAINED_BYTES / total) if total else 1.0

    def texts() -> Iterator[str]:
        left = 2 * TRAINED_BYTES  # of sources that do not state their size, or are compressed
        for part in _parts_of(files, read):
            for text in texts_of(part.record):
                if share == 1.0 or _is_chosen(text.encode(), share, b"bpe"):
                    left -= len(text)
                    yield text
            if left < 0:
                return

    return train_bpe(texts(), vocab_size)


def _parts_of(files: Sequence[SourceFile], read: Read) -> Iterator[Part]:
    for file in files:
        yield from file.parts(read)


def _split(parts: Iterator[Part], share: float) -> Iterator[tuple[str, Part]]:
    """Yield each part with the name of its split.

    A part whose successor is in the other split ends a document.
    """
    held: tuple[str, Part] | None = None
    for part in parts:
        chosen = share > 0 and _is_chosen(_content(part.record), share, b"split")
        name = "validation" if chosen else "train"
        if held is not None:
            yield held if held[0] == name else (held[0], held[1]._replace(is_end=True))
        held = name, part
    if held is not None:
        yield held


def _content(record: Record) -> bytes:
    if isinstance(record, Text):
        return record.text.encode()
    return json.dumps(asdict(record), sort_keys=True).encode()


def _is_chosen(content: bytes, share: float, purpose: bytes) -> bool:
    digest = hashlib.blake2b(content, digest_size=8, person=purpose).digest()
    return int.from_bytes(digest, "big") < share * 2**64


def _of_kind(parts: Iterator[tuple[str, Part]], kind: str) -> Iterator[tuple[str, Part]]:
    for name, part in parts:
        if (found := KINDS[type(part.record)]) != kind:
            raise DataError("wrong_kind", part.where, f"is {found}, the first was {kind}; build a dataset of each")
        yield name, part


def _write_texts(
    parts: Iterator[tuple[str, Part]], tokenizer: TextTokenizer, writers: Writers, counts: dict[str, int]
) -> None:
    """Write text in batches, whose texts the tokenizer encodes in parallel."""
    end = [] if tokenizer.separator is None else [tokenizer.separator]
    for batch in _batches(parts):
        texts = [part.record.text for _, part in batch if isinstance(part.record, Text)]
        for (name, part), tokens in zip(batch, tokenizer.encode(texts), strict=True):
            writers[name].add_text([*tokens, *end] if part.is_end else tokens)
            counts[name] += part.is_end


def _batches(parts: Iterator[tuple[str, Part]]) -> Iterator[list[tuple[str, Part]]]:
    batch: list[tuple[str, Part]] = []
    waiting = 0
    for name, part in parts:
        batch.append((name, part))
        waiting += len(part.record.text) if isinstance(part.record, Text) else 0
        if waiting >= _BATCH_CHARACTERS:
            yield batch
            batch, waiting = [], 0
    yield batch


def _write_rows(
    parts: Iterator[tuple[str, Part]], tokenizer: TextTokenizer, writers: Writers, counts: dict[str, int]
) -> None:
    for name, part in parts:
        rows = tokenizer.rows(part.record, part.where)
        if min(len(row.tokens) for row in rows) < MIN_ROW:
            raise DataError("too_short", part.where, f"has fewer than {MIN_ROW} tokens; remove the line")
        writers[name].add_sample(rows)
        counts[name] += 1


def _store(path: Path, content: bytes) -> StoredFile:
    path.write_bytes(content)
    return StoredFile(cid_of_file(content), len(content), to_hex(sha256(content)))


def _names(files: Sequence[SourceFile]) -> str:
    """Return the names of the files, as many as fit."""
    text = ", ".join(file.public_name for file in files)
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"
