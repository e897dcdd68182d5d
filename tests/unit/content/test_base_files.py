"""Base models that an audit fetches: checked files, and the first model that they make."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kit.base_models import manifest_of, weights_changed, write_base
from kit.errors import raises_code
from kit.training import SMALL

from training_gym.model.folder import ModelManifest
from training_gym.model.layout import initial_parameters
from training_gym.spec.config import TrainingSpec
from training_gym.spec.errors import GymError
from training_gym.units.checkpoint import load_state
from zoo_compute.audit.rounds import Rounds
from zoo_compute.content.base_models import BaseFiles
from zoo_compute.content.blockstore import BlockNotFound
from zoo_compute.content.gateway import GatewayClient
from zoo_protocol.content.unixfs import cid_of_file


class KnownFiles(GatewayClient):
    """A gateway of files in memory, which counts downloads."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.downloads = 0

    def add(self, content: bytes) -> str:
        cid = cid_of_file(content)
        self.files[cid] = content
        return cid

    def fetch(self, cid: str, *, max_bytes: int) -> bytes:
        if cid not in self.files:
            raise BlockNotFound(cid)
        return self.files[cid]

    def download(self, cid: str, path: Path, *, max_bytes: int) -> int:
        self.downloads += 1
        return path.write_bytes(self.fetch(cid, max_bytes=max_bytes))


@pytest.fixture
def gateway() -> KnownFiles:
    return KnownFiles()


@pytest.fixture
def manifest(gateway: KnownFiles, tmp_path: Path) -> ModelManifest:
    write_base(tmp_path)
    return manifest_of(tmp_path, gateway.add)


def spec_on(gateway: KnownFiles, manifest: ModelManifest) -> TrainingSpec:
    settings = manifest.model(8).to_dict() | {"base": gateway.add(manifest.to_bytes())}
    return TrainingSpec.from_dict({"model_config": settings, "data_config": {"dataset": cid_of_file(b"dataset")}})


def test_base_is_fetched_once_and_removed(gateway: KnownFiles, manifest: ModelManifest) -> None:
    with BaseFiles(gateway) as bases:
        files = [bases.of(spec_on(gateway, manifest)) for _ in range(2)]
        assert files[0] == files[1]
        [file] = files[0].values()
        assert file.read_bytes() == gateway.files[file.name]
    assert (gateway.downloads, file.exists()) == (1, False)


def test_truncated_file_is_refused(gateway: KnownFiles, manifest: ModelManifest) -> None:
    [file] = manifest.files.values()
    short = weights_changed(manifest, size=file.size + 8)
    with BaseFiles(gateway) as bases, raises_code(GymError, "wrong_size"):
        bases.of(spec_on(gateway, short))


def _absent(gateway: KnownFiles, manifest: ModelManifest, _folder: Path) -> ModelManifest:
    return weights_changed(manifest, cid=cid_of_file(b"no such file"))


def _of_another_model(gateway: KnownFiles, manifest: ModelManifest, folder: Path) -> ModelManifest:
    write_base(folder, SMALL)
    return ModelManifest(manifest.config, manifest_of(folder, gateway.add).files)


def test_audit_makes_first_model_of_base(gateway: KnownFiles, manifest: ModelManifest) -> None:
    spec, findings = spec_on(gateway, manifest), list[Any]()
    content = Rounds(lambda *one: findings.append(one), lambda *_: None, None, spec, gateway)._made_model()  # type: ignore[arg-type]
    fresh = TrainingSpec.from_dict(spec.to_dict() | {"model_config": manifest.model(8).to_dict()})
    start = initial_parameters(fresh)
    found = load_state(spec, content or b"")
    assert found.keys() == start.keys()
    assert findings == []


@pytest.mark.parametrize("poison", [_absent, _of_another_model])
def test_audit_finds_unreadable_base(
    gateway: KnownFiles,
    manifest: ModelManifest,
    tmp_path: Path,
    poison: Callable[[KnownFiles, ModelManifest, Path], ModelManifest],
) -> None:
    spec, findings = spec_on(gateway, poison(gateway, manifest, tmp_path / "other")), list[Any]()
    assert Rounds(lambda *one: findings.append(one), lambda *_: None, None, spec, gateway)._made_model() is None  # type: ignore[arg-type]
    assert [finding[:2] for finding in findings] == [("unresolvable", "spec.model_config.base")]
