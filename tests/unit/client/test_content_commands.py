"""Datasets and models: pushed to a loopback market, shown, pulled, refused with a reason."""

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kit.engines.http_servers import Handler, Server, serving
from kit.errors import raises_code
from kit.nodes.lone_nodes import NETWORK

from training_gym.data.dataset import DatasetManifest
from training_gym.model.folder import ModelManifest, write_folder
from training_gym.spec.architectures import ModelConfig, read_model
from training_gym.spec.config import TrainingConfig, TrainingSpec
from zoo_compute.base.errors import ConfigError, Mismatch
from zoo_compute.client import datasets, models, uploads
from zoo_compute.client.http import Connection
from zoo_protocol.content.unixfs import CHUNK_BYTES, cid_of_file

TEXT = "The lion eats meat, and the zebra eats grass.\n" * 400


@dataclass
class Market:
    """A market's uploads, without signatures: files by CID, and what was sent."""

    url: str
    files: dict[str, bytes] = field(default_factory=dict)
    posted: list[int] = field(default_factory=list)
    fails_after: int = 1 << 30
    forgets: bool = False
    lists: Callable[[list[int]], object] = lambda missing: missing[:2]


@pytest.fixture(name="market")
def running_market() -> Iterator[Market]:
    class Uploads(Handler):
        def do_POST(self) -> None:
            body = self.body()
            if self.path == "/v1/blobs":
                if len(market.posted) >= market.fails_after:
                    self.answer({"code": "storage-quota-exceeded", "detail": "full"}, 403)
                    return
                market.posted.append(len(body))
                if not market.forgets:
                    market.files[cid_of_file(body)] = body
                self.answer({"cid": cid_of_file(body), "size": len(body)}, 201)
                return
            asked = json.loads(body)
            missing = [number for number, cid in enumerate(asked["pieces"]) if cid not in market.files]
            if asked["cid"] not in market.files and missing:
                self.answer({"code": "upload-incomplete", "detail": "missing", "missing": market.lists(missing)}, 409)
                return
            whole = b"".join(market.files[cid] for cid in asked["pieces"]) if not missing else b""
            market.files.setdefault(asked["cid"], whole)
            assert cid_of_file(market.files[asked["cid"]]) == asked["cid"]
            assert len(market.files[asked["cid"]]) == asked["size"]
            self.answer({"cid": asked["cid"], "size": asked["size"]}, 201)

        def do_GET(self) -> None:
            if self.path == "/v1/network":
                self.answer(NETWORK.model_dump(mode="json"), 200)
                return
            self.reply(TEXT.encode())

        def do_HEAD(self) -> None:
            self.reply(b"")

        def answer(self, document: object, status: int) -> None:
            self.reply(json.dumps(document).encode(), status, **{"Content-Type": "application/json"})

    def run(server: Server) -> Market:
        return Market(server.url)

    with serving(Uploads) as server:
        market = run(server)
        yield market


class Client:
    """The part of a client that datasets and models need."""

    def __init__(self, market: Market) -> None:
        self.market = market
        self.connection = Connection(market.url, retry_seconds=0.5)
        self.max_blob_bytes = 3 * CHUNK_BYTES

    def network(self) -> "Client":
        return self

    def upload(self, content: bytes) -> str:
        return uploads.send_bytes(self.connection, content, self.max_blob_bytes)

    def fetch(self, cid: str, *, max_bytes: int) -> bytes:
        assert len(self.market.files[cid]) <= max_bytes
        return self.market.files[cid]

    def download(self, cid: str, path: Path, *, max_bytes: int) -> int:
        return path.write_bytes(self.fetch(cid, max_bytes=max_bytes))


@pytest.fixture(name="client")
def connected_client(market: Market) -> Any:
    return Client(market)


def test_large_file_is_sent_in_pieces_once(client: Any, market: Market, tmp_path: Path) -> None:
    path = tmp_path / "large"
    path.write_bytes(np.random.default_rng(0).bytes(7 * CHUNK_BYTES + 5))
    market.fails_after = 2
    with raises_code(Exception, "storage-quota-exceeded"):
        uploads.send_file(client.connection, path, client.max_blob_bytes)
    market.fails_after = 1 << 30
    counted: list[int] = []
    cid = uploads.send_file(client.connection, path, client.max_blob_bytes, counted.append)
    assert market.files[cid] == path.read_bytes()
    assert market.posted == [3 * CHUNK_BYTES, 3 * CHUNK_BYTES, CHUNK_BYTES + 5]
    assert sum(counted) == path.stat().st_size
    assert uploads.send_file(client.connection, path, client.max_blob_bytes) == cid
    assert len(market.posted) == 3


def test_upload_ends_when_market_keeps_nothing(client: Any, market: Market, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(CHUNK_BYTES + 1))
    market.forgets = True
    with raises_code(Mismatch, "upload-mismatch"):
        uploads.send_file(client.connection, tmp_path / "file", client.max_blob_bytes)


@pytest.mark.parametrize("listed", [[], None, [-1, 99, "0", 1.0], {"0": 1}])
def test_unlisted_missing_pieces_are_all_sent(client: Any, market: Market, tmp_path: Path, listed: object) -> None:
    path = tmp_path / "file"
    path.write_bytes(np.random.default_rng(1).bytes(4 * CHUNK_BYTES))
    market.lists = lambda _: listed
    counted: list[int] = []
    cid = uploads.send_file(client.connection, path, client.max_blob_bytes, counted.append)
    assert market.files[cid] == path.read_bytes()
    assert market.posted == [3 * CHUNK_BYTES, CHUNK_BYTES]
    assert sum(counted) == path.stat().st_size


def test_lost_piece_is_sent_and_counted_once_more(client: Any, market: Market, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(np.random.default_rng(2).bytes(4 * CHUNK_BYTES))
    counted: list[int] = []

    def sent(size: int) -> None:
        counted.append(size)
        if len(market.posted) == 1:
            market.files.clear()

    cid = uploads.send_file(client.connection, path, client.max_blob_bytes, sent)
    assert market.files[cid] == path.read_bytes()
    assert market.posted == [3 * CHUNK_BYTES, CHUNK_BYTES, 3 * CHUNK_BYTES]
    assert sum(counted) == path.stat().st_size


def test_dataset_push_stores_every_named_file(client: Any, market: Market, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(TEXT)
    sources = [str(tmp_path / "a.txt"), f"{market.url}/b.txt?signature=secret"]
    request = datasets.Request(sources, "bpe:300", [str(tmp_path / "a.txt")], licence="MIT")
    pushed = datasets.push(client, request)
    manifest = datasets.read_manifest(client, pushed.cid)
    assert manifest == pushed.manifest == stored_dataset(market, pushed.cid)
    assert manifest.source == f"a.txt, {market.url}/b.txt"
    assert manifest.train[0].tokens == 2 * manifest.validation[0].tokens
    assert datasets.push(client, request).cid == pushed.cid


def stored_dataset(market: Market, cid: str) -> DatasetManifest:
    """Return a manifest in storage, which has all its files."""
    manifest = DatasetManifest.from_bytes(market.files[cid])
    assert manifest.tokenizer is not None
    assert len(market.files[manifest.tokenizer.cid]) == manifest.tokenizer.size
    for shard in (*manifest.train, *manifest.validation):
        assert len(market.files[shard.cid]) == manifest.size_of(shard)
    return manifest


COMMAND = """
from pathlib import Path
from zoo_compute.cli.main import main
try:
    main()
finally:
    # Not ru_maxrss: a child's begins at the peak of the process that started it.
    print(next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")))
"""


def write_large_text(path: Path, size: int) -> None:
    """Write numbered lines of 300 words of 20 to 30 letters; no two parts are equal.

    The test is about memory, but nearly all its time is the library's ``tokenizers``, most of it for each word and
    token. Long words that its cache holds take a fourth of the time of source code, for the same bytes.
    """
    generator = random.Random(0)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(generator.choices(letters, k=generator.randint(20, 30))) for _ in range(300)]
    lines = [" ".join(generator.choices(words, k=80)).encode() for _ in range(500)]
    with path.open("wb") as file:
        written = number = 0
        while written < size:
            written += file.write(b"%d %b\n" % (number, lines[number % len(lines)]))
            number += 1


@pytest.mark.long
def test_gigabyte_is_pushed_within_a_gigabyte(market: Market, tmp_path: Path) -> None:
    source = tmp_path / "large.txt"
    write_large_text(source, 1 << 30)
    command = [sys.executable, "-c", COMMAND, "dataset", "push", str(source), "--api-url", market.url, "--json"]
    try:
        environment = {**os.environ, "ZOO_API_KEY": "key"}
        done = subprocess.run(command, env=environment, capture_output=True, check=True, text=True)
    finally:
        source.unlink()
    answer, _, peak = done.stdout.rpartition("VmHWM:")
    assert int(peak.split()[0]) << 10 < 1 << 30
    manifest = stored_dataset(market, json.loads(answer)["cid"])
    assert sum(shard.tokens for shard in (*manifest.train, *manifest.validation)) > 1 << 25


@pytest.mark.parametrize("tokenizer", ["bpe:", "bpe:many", "bpe:12", "bpe:99999999"])
def test_dataset_push_refuses_a_malformed_tokenizer(tokenizer: str, client: Any, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(TEXT)
    with pytest.raises(ConfigError):
        datasets.push(client, datasets.Request([str(tmp_path)], tokenizer))
    assert client.market.posted == []


def small_model() -> ModelConfig:
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 300}
    return read_model({"architecture": "llama", "sequence_length": 16} | sizes)


def arrays_of(model: ModelConfig) -> dict[str, Any]:
    tensors = TrainingSpec(model, "unused", TrainingConfig()).trained_tensors()
    return {tensor.name: np.ones(tensor.shape, np.float32) for tensor in tensors}


@pytest.fixture(name="folder")
def model_folder(tmp_path: Path) -> Path:
    model = small_model()
    write_folder(model, arrays_of(model), tmp_path / "model")
    (tmp_path / "model" / "README.md").write_text("A small model.")
    return tmp_path / "model"


def test_model_survives_push_and_pull(client: Any, folder: Path, tmp_path: Path) -> None:
    cid, manifest = models.push(client, models.check_folder(folder))
    assert models.read_manifest(client, cid) == manifest == ModelManifest.from_bytes(client.market.files[cid])
    assert models.settings_of(manifest).hidden_size == 16
    models.pull(client, cid, tmp_path / "pulled")
    for name in ("model.safetensors", "README.md"):
        assert (tmp_path / "pulled" / name).read_bytes() == (folder / name).read_bytes()
    assert models.check_folder(tmp_path / "pulled").model == models.check_folder(folder).model


def test_folders_in_a_model_are_left_out(folder: Path) -> None:
    (folder / "original").mkdir()
    assert "original" not in models.check_folder(folder).files


def test_hub_copy_takes_no_pickle_or_code(folder: Path, tmp_path: Path) -> None:
    for name in ("pytorch_model.bin", "modeling_evil.py", "consolidated.safetensors"):
        (folder / name).write_bytes(b"evil")
    (tmp_path / "copy").mkdir()
    models.fetch_hub(f"file://{folder}", tmp_path / "copy")
    copied = sorted(path.name for path in (tmp_path / "copy").iterdir())
    assert copied == ["README.md", "config.json", "model.safetensors"]


def poison(folder: Path, kind: str) -> None:
    config = json.loads((folder / "config.json").read_text())
    arrays = arrays_of(small_model())
    match kind:
        case "pickle":
            (folder / "pytorch_model.bin").write_bytes(b"\x80\x04")
        case "code":
            (folder / "modeling_evil.py").write_text("")
        case "remote":
            config["auto_map"] = {"AutoModel": "modeling_evil.Evil"}
        case "huge":
            config["num_hidden_layers"] = 10**9
        case "shape":
            config["hidden_size"] = 32
        case "nan":
            arrays["model.norm.weight"][0] = np.nan
            write_folder(small_model(), arrays, folder)
        case "shards":
            for number in range(1000):
                (folder / f"model-{number:05}.safetensors").write_bytes(b"")
        case "none":
            (folder / "model.safetensors").unlink()
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("kind", "code", "reason"),
    [
        ("pickle", "unsupported-value", "no pickle or code"),
        ("code", "unsupported-value", "no pickle or code"),
        ("remote", "unsupported-value", "auto_map"),
        ("huge", "out-of-range", "num_hidden_layers"),
        ("shape", "wrong-tensors", "the shape"),
        ("nan", "not-finite", "model.norm.weight"),
        ("shards", "too-large", "1002 files"),
        ("none", "missing-key", "no safetensors"),
    ],
)
def test_poisoned_model_is_refused_with_reason(kind: str, code: str, reason: str, folder: Path) -> None:
    poison(folder, kind)
    with raises_code(ConfigError, code, match=reason):
        models.check_folder(folder)


def test_folder_without_configuration_is_refused(tmp_path: Path) -> None:
    with raises_code(ConfigError, "unreadable", match=r"config\.json"):
        models.check_folder(tmp_path)
