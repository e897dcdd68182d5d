"""Records of training data in local and remote files, read as streams by fsspec."""

import codecs
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, BinaryIO, Literal, NamedTuple
from urllib.parse import urlsplit

from training_gym.data.records import Record, Text, read_record
from training_gym.spec.errors import DataError

SCHEMES = ("file", "http", "https", "s3", "hf")
MAX_LINE_BYTES = 1 << 26
MAX_FILES = 100_000
PART_CHARACTERS = 1 << 13
"""A plain text file is cut at the first line end after so many characters, which bounds memory."""
MAX_PART_CHARACTERS = 1 << 16
"""Longer texts without a line end are cut at a space, or here."""
_CHUNK_BYTES = 1 << 20
_ROWS = 1024
_FORMS: dict[str, Literal["text", "jsonl", "parquet"]] = {
    **dict.fromkeys((".txt", ".text", ".md"), "text"),
    **dict.fromkeys((".jsonl", ".ndjson"), "jsonl"),
    ".parquet": "parquet",
}
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
_COLUMNS = ("text", "messages", "prompt", "completion", "input", "preferred_output", "non_preferred_output")
Read = Callable[[int], object]
"""Called with the number of bytes just read from a source."""


class Part(NamedTuple):
    """A record, or a part of a long text.

    Attributes:
        where: file and line, for errors.
        is_end: true for the last part of a document.
    """

    record: Record
    where: str
    is_end: bool = True


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file of a source: the name for errors, its form, and its bytes if known."""

    name: str
    form: Literal["text", "jsonl", "parquet"]
    size: int | None
    system: Any
    path: str

    @property
    def public_name(self) -> str:
        """Name for the manifest: no folder of this machine, no user or signature in a URL."""
        if "://" not in self.name:
            return PurePosixPath(self.name).name
        url = urlsplit(self.name)
        return f"{url.scheme}://{url.netloc.rpartition('@')[2]}{url.path}"

    def parts(self, read: Read = lambda _: None) -> Iterator[Part]:
        """Yield the file's records in order.

        Raises:
            DataError: it is unreadable, or has a broken line, which the error names.
        """
        with source_errors(self.name):
            compression = None if self.form == "parquet" else "infer"
            with closing(self.system.open(self.path, "rb", compression=compression)) as file:
                if self.form == "parquet":
                    yield from _parquet(file, self.name, read)
                elif self.form == "jsonl":
                    for number, line in _lines(_chunks(file, read), self.name):
                        if line.strip():
                            where = f"{self.name}:{number}"
                            yield from _parts_of(_json(line, where), where)
                else:
                    yield from _text_parts(_chunks(file, read), self.name)


def find_files(sources: Sequence[str]) -> list[SourceFile]:
    """Return the files of paths, folders, patterns with ``*`` and URLs; folders are sorted.

    Raises:
        DataError: a source does not exist, cannot be read, or has no file of a known form.
    """
    found = [file for source in sources for file in _files_of(source)]
    if not found:
        raise DataError("no_data", "sources", "name no file; give at least one")
    if len(found) > MAX_FILES:
        raise DataError("too_large", "sources", f"have {len(found)} files, beyond {MAX_FILES}; join some")
    return found


def _files_of(source: str) -> list[SourceFile]:
    from fsspec.core import url_to_fs

    scheme = urlsplit(source).scheme if "://" in source else "file"
    if scheme not in SCHEMES or "::" in source:
        listed = ", ".join(f"{name}://" for name in SCHEMES)
        raise DataError("unsupported_value", source, f"is not a path or a URL with one of {listed}")
    with source_errors(source):
        system, path = url_to_fs(source)
        if scheme in ("http", "https"):
            return [_file(system, path, source)]
        if "*" in source:
            paths = sorted(system.glob(path))
        elif system.isdir(path):
            paths = sorted(one for one in system.find(path) if _form(one) is not None)
        else:
            paths = [path]
        if not paths:
            raise DataError("no_data", source, f"has no file that ends with {', '.join(_FORMS)}")
        shown = source if scheme == "file" and paths == [path] else None
        return [_file(system, one, shown or (one if scheme == "file" else f"{scheme}://{one}")) for one in paths]


def _file(system: Any, path: str, name: str) -> SourceFile:
    size = system.info(path).get("size")
    return SourceFile(name, _form(path) or "text", size if isinstance(size, int) else None, system, path)


def _form(path: str) -> Literal["text", "jsonl", "parquet"] | None:
    """Return the form that the name's ending shows."""
    plain = PurePosixPath(urlsplit(path).path if "://" in path else path)
    return _FORMS.get((plain.with_suffix("") if plain.suffix in _COMPRESSED else plain).suffix.lower())


@contextmanager
def source_errors(name: str) -> Iterator[None]:
    """Raise DataError for the errors of a file system."""
    try:
        yield
    except DataError:
        raise
    except ImportError as error:
        detail = f"needs a package ({error}); install zoo-compute[s3] for s3://, huggingface_hub for hf://"
        raise DataError("package_missing", name, detail) from error
    except FileNotFoundError as error:
        raise DataError("not_found", name, "does not exist; check the path or URL") from error
    except Exception as error:
        # Each file system has its own classes of network errors, which share no base.
        if isinstance(error, OSError | ValueError) or type(error).__module__.split(".")[0] in _LIBRARIES:
            raise DataError("unreadable", name, f"cannot be read ({type(error).__name__}: {error!s:.200})") from error
        raise


_LIBRARIES = ("aiohttp", "botocore", "huggingface_hub", "httpx", "httpx2", "pyarrow", "zlib", "lzma")


def _chunks(file: BinaryIO, read: Read) -> Iterator[bytes]:
    while chunk := file.read(_CHUNK_BYTES):
        read(len(chunk))
        yield chunk


def _lines(chunks: Iterator[bytes], name: str) -> Iterator[tuple[int, bytes]]:
    number, rest = 1, b""
    for chunk in chunks:
        *whole, last = chunk.split(b"\n")
        for line in whole:
            yield number, rest + line
            number, rest = number + 1, b""
        rest += last
        if len(rest) > MAX_LINE_BYTES:
            raise DataError("too_large", f"{name}:{number}", f"has more than {MAX_LINE_BYTES} bytes; split the record")
    yield number, rest


def _json(line: bytes, where: str) -> Record:
    try:
        document = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError("malformed", where, f"is not JSON ({error!s:.120}); write one object a line") from error
    return read_record(document, where)


def _parquet(file: BinaryIO, name: str, read: Read) -> Iterator[Part]:
    from pyarrow.parquet import ParquetFile

    table = ParquetFile(file)
    columns = [column for column in _COLUMNS if column in table.schema_arrow.names]
    if not columns:
        listed = ", ".join(_COLUMNS)
        raise DataError("unknown_form", name, f"has none of the columns {listed}; rename one")
    number = 0
    for batch in table.iter_batches(batch_size=_ROWS, columns=columns):
        for row in batch.to_pylist():
            number += 1
            given = {column: value for column, value in row.items() if value is not None}
            where = f"{name} row {number}"
            yield from _parts_of(read_record(given, where), where)
        read(batch.nbytes)


def _parts_of(record: Record, where: str) -> Iterator[Part]:
    """Yield a record; a long text in parts."""
    if not isinstance(record, Text) or len(record.text) <= MAX_PART_CHARACTERS:
        yield Part(record, where)
        return
    parts = list(_cut(record.text, MAX_PART_CHARACTERS // 2))
    for number, part in enumerate(parts, 1):
        yield Part(Text(part), where, number == len(parts))


def _cut(text: str, least: int) -> Iterator[str]:
    start = 0
    while len(text) - start > least:
        end = _end_of_part(text, start, least)
        yield text[start:end]
        start = end
    if start < len(text):
        yield text[start:]


def _end_of_part(text: str, start: int, least: int) -> int:
    """Return the first line end after ``least`` characters, else the last space."""
    most = start + MAX_PART_CHARACTERS
    end = text.find("\n", start + least, most) + 1
    if end:
        return end
    space = text.rfind(" ", start + least, most) if most < len(text) else -1
    return min(most, len(text)) if space < 0 else space


def _text_parts(chunks: Iterator[bytes], name: str) -> Iterator[Part]:
    """Yield one document in parts, the last one marked."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    buffer, done = "", 0
    held: str | None = None
    try:
        for chunk in chunks:
            buffer += decoder.decode(chunk)
            done += len(chunk)
            if len(buffer) <= 2 * MAX_PART_CHARACTERS:
                continue
            start = 0
            while len(buffer) - start > MAX_PART_CHARACTERS + PART_CHARACTERS:
                end = _end_of_part(buffer, start, PART_CHARACTERS)
                if held is not None:
                    yield Part(Text(held), name, False)
                held, start = buffer[start:end], end
            buffer = buffer[start:]
        buffer += decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        place = f"is not UTF-8 at byte {done + error.start} ({error.reason}); convert it"
        raise DataError("malformed", name, place) from error
    for part in _cut(buffer, PART_CHARACTERS):
        if held is not None:
            yield Part(Text(held), name, False)
        held = part
    if held is not None:
        yield Part(Text(held), name)
