"""Sources of data and models behind URLs, read from servers on loopback."""

import gzip
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import boto3
import fsspec.config
import pyarrow
import pyarrow.parquet
import pytest
import s3fs
from huggingface_hub import HfFileSystem
from kit.engines.http_servers import serving
from kit.errors import raises_code
from kit.fakes.hub import FileHandler, HubHandler
from moto.server import ThreadedMotoServer

from training_gym.data.records import Text
from training_gym.data.text_sources import find_files
from training_gym.spec.errors import DataError
from zoo_compute.base.errors import ConfigError
from zoo_compute.client import models

TEXTS = [f"Animal {number} eats something else." for number in range(200)]


def _parquet() -> bytes:
    file = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table({"text": TEXTS}), file)
    return file.getvalue()


LINES = "".join(f"{json.dumps({'text': text})}\n" for text in TEXTS).encode()
FILES = {"a.jsonl": LINES, "b.jsonl.gz": gzip.compress(LINES), "c.parquet": _parquet()}


def texts_of(*sources: str) -> list[str]:
    records = [part.record for file in find_files(sources) for part in file.parts()]
    return [record.text for record in records if isinstance(record, Text)]


@pytest.fixture(scope="module", name="store")
def object_store() -> Iterator[str]:
    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(store: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION")
    for name, value in zip(names, ("key", "secret", "us-east-1"), strict=True):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", store)
    client = boto3.client("s3")
    client.create_bucket(Bucket="zoo")
    for name, content in FILES.items():
        client.put_object(Bucket="zoo", Key=f"texts/{name}", Body=content)
    s3fs.S3FileSystem.clear_instance_cache()
    yield
    s3fs.S3FileSystem.clear_instance_cache()


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, bytes]]:
    """Files of the hub, to be changed."""

    class Hub(HubHandler):
        files: ClassVar = {f"datasets/zoo/texts/{name}": content for name, content in FILES.items()}

    with serving(Hub) as server:
        monkeypatch.setitem(fsspec.config.conf, "hf", {"endpoint": server.url})
        HfFileSystem.clear_instance_cache()
        yield Hub.files
    HfFileSystem.clear_instance_cache()


@pytest.mark.parametrize("name", FILES)
def test_file_of_web_server_equals_local_one(name: str, tmp_path: Path) -> None:
    class Web(FileHandler):
        files: ClassVar = {f"/{name}": content for name, content in FILES.items()}

    (tmp_path / name).write_bytes(FILES[name])
    with serving(Web) as server:
        assert texts_of(f"{server.url}/{name}") == texts_of(str(tmp_path / name)) == TEXTS
        with raises_code(DataError, "not_found"):
            texts_of(f"{server.url}/missing.txt")


@pytest.mark.usefixtures("bucket")
@pytest.mark.parametrize(
    ("source", "copies"), [("s3://zoo/texts", 3), ("s3://zoo/texts/*.jsonl", 1), ("s3://zoo/texts/b.jsonl.gz", 1)]
)
def test_objects_of_bucket_are_read(source: str, copies: int) -> None:
    assert texts_of(source) == TEXTS * copies


@pytest.mark.usefixtures("bucket")
@pytest.mark.parametrize("source", ["s3://zoo/missing.txt", "s3://elsewhere/a.txt"])
def test_missing_object_is_refused(source: str) -> None:
    with raises_code(DataError, "not_found"):
        texts_of(source)


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize(("path", "copies"), [("", 3), ("/a.jsonl", 1), ("/*.parquet", 1)])
def test_dataset_of_hub_is_read(path: str, copies: int) -> None:
    assert texts_of(f"hf://datasets/zoo/texts{path}") == TEXTS * copies


@pytest.mark.usefixtures("hub")
def test_missing_dataset_of_hub_is_refused() -> None:
    with raises_code(DataError, "not_found"):
        texts_of("hf://datasets/zoo/other/a.txt")


def test_model_of_hub_is_copied_without_pickle(hub: dict[str, bytes], tmp_path: Path) -> None:
    content = {"config.json": b"{}", "model.safetensors": b"weights" * 1000, "tokenizer.json": b"{}"}
    hub |= {f"models/zoo/small/{name}": text for name, text in content.items()}
    hub["models/zoo/small/pytorch_model.bin"] = b"evil"
    read: list[int] = []
    models.fetch_hub("hf://zoo/small", tmp_path, read.append)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == content
    assert sum(read) == sum(map(len, content.values()))
    with raises_code(ConfigError, "not-found"):
        models.fetch_hub("hf://zoo/other", tmp_path)
