"""Models in storage: checked folders of safetensors, tokenizer and texts. No torch."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from training_gym.data.text_sources import source_errors
from training_gym.model.folder import MAX_FILES, ModelManifest, check_file_name, load_files
from training_gym.spec.architectures import ModelConfig
from training_gym.spec.config import TrainingSpec
from training_gym.spec.errors import GymError, ManifestError
from training_gym.spec.manifests import MAX_MANIFEST_BYTES, StoredFile, read_json
from zoo_compute.base.errors import ConfigError
from zoo_compute.client.uploads import Sent, send_file
from zoo_protocol.content.unixfs import cid_of_file

if TYPE_CHECKING:
    from zoo_compute.client.client import Client

HUB = "hf://"
CONFIG_FILE = "config.json"
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
_CHECKED_LENGTH = 8
"""Sequence length for the check of a configuration; a job chooses its own."""
_COPIED_BYTES = 1 << 20
_WEIGHTS = ("model.safetensors", "model-")
"""Weights in the layout of ``transformers``; hubs list other copies of them as well."""


@contextmanager
def input_errors() -> Iterator[None]:
    """Convert refusals of the training library into :class:`ConfigError`."""
    try:
        yield
    except GymError as error:
        raise ConfigError(error.code.replace("_", "-"), str(error)) from error


@dataclass(frozen=True, slots=True)
class CheckedFolder:
    """A model that a job can start from: settings, ``config.json``, and files by name."""

    model: ModelConfig
    config: dict[str, Any]
    files: dict[str, Path]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(path.stat().st_size for path in self.files.values())


def check_folder(folder: Path) -> CheckedFolder:
    """Return a folder that a job can start from.

    Every tensor's name, shape and values are checked. Nothing in the folder is executed. Folders in it are left out.

    Raises:
        ConfigError: a file, a setting or a tensor is refused; the text has the reason.
    """
    with input_errors():
        try:
            paths = sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
            config = read_json((folder / CONFIG_FILE).read_bytes(), CONFIG_FILE)
        except OSError as error:
            detail = f"{error.strerror}; a model is a folder with {CONFIG_FILE} and safetensors"
            raise ManifestError("unreadable", str(folder), detail) from error
        files = {check_file_name(path.name): path for path in paths if path.name != CONFIG_FILE}
        if len(files) > MAX_FILES:
            detail = f"has {len(files)} files, beyond {MAX_FILES}; save it with larger shards"
            raise ManifestError("too_large", str(folder), detail)
        outline = ModelManifest(config, {name: StoredFile("", path.stat().st_size, "") for name, path in files.items()})
        model = outline.model(_CHECKED_LENGTH)
        for _ in load_files(model, {name: files[name] for name in outline.weights()}):
            pass  # each tensor is checked when it is read
        if "tokenizer.json" in files:
            _check_tokenizer(files["tokenizer.json"].read_bytes(), model)
    return CheckedFolder(model, config, files)


def push(client: "Client", folder: CheckedFolder, sent: Sent = lambda _: None) -> tuple[str, ModelManifest]:
    """Store a model's files; return the manifest's CID and the manifest.

    Raises:
        ConfigError, ApiError, Mismatch: as for :func:`zoo_compute.client.uploads.send_file`.
    """
    limit = client.network().max_blob_bytes
    stored = {}
    for name, path in folder.files.items():
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        cid = send_file(client.connection, path, limit, sent)
        stored[name] = StoredFile(cid, path.stat().st_size, f"0x{digest}")
    manifest = ModelManifest(folder.config, stored)
    return client.upload(manifest.to_bytes()), manifest


def read_manifest(client: "Client", cid: str) -> ModelManifest:
    """Return the manifest of a model in storage.

    Raises:
        ConfigError: the CID is not one of a model.
        Mismatch, Unreachable: as for :meth:`zoo_compute.Client.fetch`.
    """
    with input_errors():
        return ModelManifest.from_bytes(client.fetch(cid, max_bytes=MAX_MANIFEST_BYTES))


def settings_of(manifest: ModelManifest) -> ModelConfig:
    """Return the settings of a stored model. Raises ConfigError: not supported."""
    with input_errors():
        return manifest.model(_CHECKED_LENGTH)


def pull(client: "Client", cid: str, folder: Path, got: Sent = lambda _: None) -> ModelManifest:
    """Write a model's missing files to ``folder``, which ``from_pretrained`` loads.

    Raises:
        ConfigError: the CID is not one of a model, or the folder is not writable.
        Mismatch, Unreachable: as for :meth:`zoo_compute.Client.fetch`.
    """
    manifest = read_manifest(client, cid)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / CONFIG_FILE).write_text(json.dumps(manifest.config, indent=2))
    except OSError as error:
        remedy = "Give a folder with enough space."
        raise ConfigError("file-unwritable", f"{folder}: {error.strerror}", remedy=remedy) from error
    for name, file in manifest.files.items():
        path = folder / name
        if not _is_here(path, file):
            client.download(file.cid, path, max_bytes=file.size)
        got(file.size)
    return manifest


def load_base(client: "Client", spec: TrainingSpec) -> dict[str, NDArray[np.float32]]:
    """Return the tensors of a job's base model. Raises as :func:`pull`."""
    assert spec.base is not None  # an adapter's specification names one
    with TemporaryDirectory(prefix="zoo-base-") as folder, input_errors():
        names = pull(client, spec.base, Path(folder)).weights()
        return dict(load_files(spec.model, {name: Path(folder) / name for name in names}))


def fetch_hub(url: str, folder: Path, read: Sent = lambda _: None) -> None:
    """Copy a model's safetensors, configuration and tokenizer from a hub; no pickle and no code.

    Args:
        url: ``hf://ORGANISATION/NAME``, or another file system of fsspec.

    Raises:
        ConfigError: it cannot be read, or is not a model.
    """
    from fsspec.core import url_to_fs

    with input_errors(), source_errors(url):
        system, root = url_to_fs(url)
        for entry in system.ls(root, detail=True):
            name = str(entry["name"]).rpartition("/")[2]
            if entry["type"] == "file" and _is_wanted(name):
                with system.open(entry["name"], "rb") as theirs, (folder / name).open("wb") as ours:
                    while content := theirs.read(_COPIED_BYTES):
                        ours.write(content)
                        read(len(content))


def tokenizer_files(client: "Client", text: str) -> dict[str, bytes]:
    """Return the tokenizer's files of a folder, ``hf://NAME`` or a model's CID.

    Raises:
        ConfigError: it has no ``tokenizer.json``.
        Mismatch, Unreachable: as for :meth:`zoo_compute.Client.fetch`.
    """
    if text.startswith(HUB):
        found = _of_hub(text)
    elif Path(text).is_dir():
        found = {name: (Path(text) / name).read_bytes() for name in TOKENIZER_FILES if (Path(text) / name).is_file()}
    else:
        files = read_manifest(client, text).files
        chosen = {name: files[name] for name in TOKENIZER_FILES if name in files}
        found = {name: client.fetch(file.cid, max_bytes=file.size) for name, file in chosen.items()}
    if "tokenizer.json" not in found:
        remedy = "Give bpe:8192, or a model with tokenizer.json: a folder, a CID or hf://NAME."
        raise ConfigError("tokenizer-missing", f"{text} has no tokenizer.json", remedy=remedy)
    return found


def _of_hub(url: str) -> dict[str, bytes]:
    from fsspec.core import url_to_fs

    with input_errors(), source_errors(url):
        system, root = url_to_fs(url)
        paths: Mapping[str, str] = {name: f"{root}/{name}" for name in TOKENIZER_FILES}
        read: Callable[[str], bytes] = system.cat_file
        return {name: read(path) for name, path in paths.items() if system.exists(path)}


def _is_wanted(name: str) -> bool:
    if name.endswith(".safetensors"):
        return name.startswith(_WEIGHTS)
    try:
        return name == CONFIG_FILE or check_file_name(name) == name
    except ManifestError:
        return False


def _check_tokenizer(content: bytes, model: ModelConfig) -> None:
    from training_gym.data.text_tokenizer import TextTokenizer

    found = TextTokenizer(content).vocab_size
    if found > model.vocab_size:
        detail = f"has tokens up to {found - 1}; config.json's vocab_size is {model.vocab_size}. Use the model's own"
        raise ManifestError("out_of_range", "tokenizer.json", detail)


def _is_here(path: Path, file: StoredFile) -> bool:
    if not path.is_file() or path.stat().st_size != file.size:
        return False
    with path.open("rb") as opened:
        return cid_of_file(opened) == file.cid
