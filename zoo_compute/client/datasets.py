"""Datasets in storage: built from files here, then uploaded. No torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Protocol

from training_gym.data.dataset import DatasetManifest
from training_gym.spec.manifests import MAX_MANIFEST_BYTES
from zoo_compute.base.errors import ConfigError
from zoo_compute.client.models import input_errors, tokenizer_files
from zoo_compute.client.uploads import Sent, send_file

if TYPE_CHECKING:
    from training_gym.data.text_sources import SourceFile
    from training_gym.data.text_tokenizer import TextTokenizer
    from zoo_compute.client.client import Client

BPE = "bpe:"
DEFAULT_TOKENIZER = f"{BPE}8192"
DEFAULT_SHARE = 0.05


@dataclass(frozen=True, slots=True)
class Request:
    """Sources and settings of a dataset to push.

    Attributes:
        sources: paths, folders, patterns and URLs of ``https://``, ``s3://`` and ``hf://``.
        tokenizer: ``bpe:SIZE`` trains one on the sources; else a model's folder, CID or ``hf://NAME``.
        validation: sources to validate on; without them ``validation_share`` of the documents is held out.
        licence: of the data.
        source: where it is from; default: the names of the files.
    """

    sources: Sequence[str]
    tokenizer: str = DEFAULT_TOKENIZER
    validation: Sequence[str] = ()
    validation_share: float = DEFAULT_SHARE
    licence: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True)
class Pushed:
    """A stored dataset: CID of its manifest, the manifest, and documents of each split."""

    cid: str
    manifest: DatasetManifest
    documents: dict[str, int]


class Progress(Protocol):
    """Receiver of a push's progress."""

    def start(self, label: str, total: int | None) -> Sent:
        """Begin a stage of ``total`` bytes, if known; return the receiver of its bytes."""


class Silence:
    """Receiver that shows nothing."""

    def start(self, label: str, total: int | None) -> Sent:
        """Return a receiver that ignores its bytes."""
        return lambda _: None


def push(client: "Client", request: Request, progress: Progress | None = None) -> Pushed:
    """Build a dataset and store its files; the same request sends only what storage lacks.

    Raises:
        ConfigError: a source, a record or the tokenizer is refused, by file and line; nothing is sent.
        ApiError, Mismatch: as for :func:`zoo_compute.client.uploads.send_file`.
    """
    from training_gym.data.build import Options, build_dataset
    from training_gym.data.text_sources import find_files

    progress = progress or Silence()
    with input_errors(), TemporaryDirectory(prefix="zoo-dataset-") as folder:
        train = find_files(request.sources)
        validation = find_files(request.validation) if request.validation else []
        tokenizer = _tokenizer(client, request.tokenizer, train, progress)
        options = Options(request.validation_share, request.licence, request.source)
        read = progress.start("tokenise", _total([*train, *validation]))
        built = build_dataset(train, validation, tokenizer, Path(folder), options, read)
        limit = client.network().max_blob_bytes
        sent = progress.start("upload", sum(path.stat().st_size for path in built.files))
        cids = [send_file(client.connection, path, limit, sent) for path in built.files]
    return Pushed(cids[-1], built.manifest, built.documents)


def read_manifest(client: "Client", cid: str) -> DatasetManifest:
    """Return the manifest of a dataset in storage.

    Raises:
        ConfigError: the CID is not one of a dataset.
        Mismatch, Unreachable: as for :meth:`zoo_compute.Client.fetch`.
    """
    with input_errors():
        return DatasetManifest.from_bytes(client.fetch(cid, max_bytes=MAX_MANIFEST_BYTES))


def _tokenizer(client: "Client", text: str, train: Sequence["SourceFile"], progress: Progress) -> "TextTokenizer":
    from training_gym.data.build import bpe_of
    from training_gym.data.text_tokenizer import TextTokenizer, read_tokenizer_config

    if text.startswith(BPE):
        size = text.removeprefix(BPE)
        if not size.isdecimal() or len(size) > 9:
            remedy = f"Give a number of tokens, such as {DEFAULT_TOKENIZER}."
            raise ConfigError("tokenizer-malformed", f"tokenizer is {text!r:.80}", remedy=remedy)
        return TextTokenizer(bpe_of(train, int(size), progress.start("train a tokenizer", _total(train))))
    files = tokenizer_files(client, text)
    config = read_tokenizer_config(files.get("tokenizer_config.json"), files.get("chat_template.jinja"))
    return TextTokenizer(files["tokenizer.json"], config)


def _total(files: Sequence["SourceFile"]) -> int | None:
    """Return the bytes of all files; None if one does not state its size."""
    sizes = [file.size for file in files]
    return None if None in sizes else sum(size for size in sizes if size is not None)
