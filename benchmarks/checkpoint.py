"""Speed of a checkpoint's writing and reading, relative to SHA-256 and a file copy.

``python -m benchmarks.checkpoint --json``. The checkpoint is a model of about 256 MB (quick: 8 MB) with its manifest.

- ``write`` stores the parameters as pinned blocks, flushed to disk, in a block store.
- ``read`` turns the pinned blocks into verified safetensors bytes.
- ``upload`` and ``download`` do the same over HTTP, with the embedded store in another process.
- Plain SHA-256 is one pass of hashlib; a plain copy reads, writes and flushes a file.
- ``resume`` goes from the manifest's CID alone to bit-equal parameters, over HTTP.
- ``shared_block_share`` is the share of common blocks of successive checkpoints of a trained model.
"""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from benchmarks.averaging import running_store
from benchmarks.report import Row, progress, row, run, timed
from benchmarks.training.corpus import standard_library
from benchmarks.training.trainers import train_unit
from market.platform.storage.client import Storage
from training_gym.aggregate.aggregation import aggregate
from training_gym.aggregate.outer_step import initial_outer_state, save_outer_state
from training_gym.model.layout import initial_parameters
from training_gym.model.tensors import tensor_digest
from training_gym.spec.architectures import read_model
from training_gym.spec.config import TrainingConfig, TrainingSpec
from training_gym.spec.manifests import MAX_MANIFEST_BYTES
from training_gym.units.checkpoint import CheckpointManifest, load_state, save_state, state_pieces
from training_gym.units.replica_state import fresh_slot_state
from zoo_compute.content.blockstore import BlockStore
from zoo_compute.content.gateway import GatewayClient
from zoo_protocol.content import unixfs

_ANY_CID = "bafkreihdwdcefgh4dqkjv67uzcmw7ojee6xedzdetojuzjevtenxquvyku"
_JOB = "0x" + "00" * 32
_MAX_BYTES = 1 << 30


def _manifest(spec: TrainingSpec, round_: int, model: str) -> bytes:
    return CheckpointManifest(_JOB, round_, None, model, None, None, None, {}, round_ * 48, spec.spec_hash()).to_bytes()


def _speeds(spec: TrainingSpec, seed: int, store: Mapping[str, str]) -> dict[str, float]:
    """Return the MB/s of each step, and the seconds of a resume, on one checkpoint."""
    parameters = initial_parameters(spec)
    data = save_state(parameters)
    megabytes = len(data) / 1e6
    seconds: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as directory:
        blocks, file, copy = BlockStore(Path(directory, "store")), Path(directory, "file"), Path(directory, "copy")
        file.write_bytes(data)
        _force(file)

        seconds["sha256"] = timed(lambda: hashlib.sha256(data).digest())[1]
        seconds["copy"] = timed(lambda: _force(shutil.copyfile(file, copy)))[1]
        seconds["hash"] = timed(lambda: unixfs.cid_of_file(data))[1]

        def write() -> None:
            model = blocks.add(state_pieces(parameters))
            blocks.add(_manifest(spec, 1, str(model)))

        seconds["write"] = timed(write)[1]
        root = unixfs.build(data, lambda _cid, _block: None)
        seconds["read"] = timed(lambda: blocks.fetch(root, max_bytes=_MAX_BYTES))[1]
    storage = Storage(store["rpc"])
    cid = ""

    def upload() -> None:
        nonlocal cid
        model = storage.put(state_pieces(parameters), max_bytes=_MAX_BYTES).cid
        cid = storage.put(_manifest(spec, 1, model), max_bytes=MAX_MANIFEST_BYTES).cid

    def resume() -> None:
        with GatewayClient([store["gateway"]]) as gateway:
            manifest = CheckpointManifest.from_bytes(gateway.fetch(cid, max_bytes=MAX_MANIFEST_BYTES))
            found = load_state(spec, gateway.fetch(manifest.model, max_bytes=_MAX_BYTES))
        if tensor_digest(found) != tensor_digest(parameters):
            raise AssertionError("the loaded parameters differ from the saved ones")

    seconds["upload"] = timed(upload)[1]
    with tempfile.TemporaryDirectory() as directory, GatewayClient([store["gateway"]]) as gateway:
        model = unixfs.cid_of_file(data)
        seconds["download"] = timed(lambda: gateway.download(model, Path(directory, "m"), max_bytes=_MAX_BYTES))[1]
    seconds["resume"] = timed(resume)[1]
    return {name: taken if name == "resume" else megabytes / taken for name, taken in seconds.items()}


def _force(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _shared(seed: int, quick: bool) -> float:
    """Return the share of a checkpoint's blocks that the previous checkpoint also has."""
    model = (
        read_model({"hidden_size": 64, "num_hidden_layers": 2})
        if quick
        else read_model({"hidden_size": 256, "num_hidden_layers": 4})
    )
    training = TrainingConfig(inner_steps=4 if quick else 16, segment_steps=4, batch_size=8, seed=seed)
    spec = TrainingSpec(model, _ANY_CID, training)
    train, _ = standard_library(1 << 20)
    parameters, state = initial_parameters(spec), initial_outer_state(spec)
    states = {slot: fresh_slot_state(spec) for slot in range(2)}
    shares, before = [], set[object]()
    for round_ in range(3):
        payloads = {}
        for slot, slot_state in states.items():
            payloads[slot], states[slot] = train_unit(spec, round_, slot, parameters, train, slot_state)
        aggregated = aggregate(spec, parameters, payloads, outer_state=state)
        parameters, state = aggregated.parameters, aggregated.outer_state
        blocks: set[object] = set()
        for file in (save_state(parameters), save_outer_state(spec, state)):
            unixfs.build(file, lambda cid, _block, blocks=blocks: blocks.add(cid))  # type: ignore[misc]
        if before:
            shares.append(len(blocks & before) / len(blocks))
        before = blocks
    return float(np.mean(shares))


def measure(quick: bool) -> list[Row]:
    """Return the rows, over three checkpoints."""
    torch.set_num_threads(1)
    repetitions = 1 if quick else 3
    model = (
        read_model({"hidden_size": 192, "num_hidden_layers": 4, "num_attention_heads": 6})
        if quick
        else read_model({"hidden_size": 768, "num_hidden_layers": 9, "num_attention_heads": 12})
    )
    spec = TrainingSpec(model, _ANY_CID, TrainingConfig())
    seen: dict[str, list[float]] = {}
    with running_store() as store:
        for seed in range(repetitions):
            for name, value in _speeds(spec, seed, store).items():
                seen.setdefault(name, []).append(value)
            progress(f"checkpoint {seed}: { ({name: round(values[-1], 2) for name, values in seen.items()}) }")
    size = f"{4e-6 * spec.num_parameters():.0f} MB"
    rows = [row(f"{name}_mb_s", "MB/s", values, size) for name, values in seen.items() if name != "resume"]

    def ratio(name: str, to: str) -> list[float]:
        return [mine / theirs for mine, theirs in zip(seen[name], seen[to], strict=True)]

    note = "to SHA-256 alone on the same bytes"
    rows += [row(f"{name}_ratio", "ratio", ratio(name, "sha256"), note) for name in ("write", "read")]
    rows += [
        row(f"{name}_ratio", "ratio", ratio(name, "sha256"), f"{note}, over HTTP") for name in ("upload", "download")
    ]
    rows += [row(f"{name}_to_copy", "ratio", ratio(name, "copy"), "to a plain copy") for name in ("write", "read")]
    rows.append(row("resume_seconds", "s", seen["resume"], f"{size} over HTTP, verified, loaded and compared"))
    shares = [_shared(seed, quick) for seed in range(repetitions)]
    rows.append(row("shared_block_share", "share", shares, "successive checkpoints of a job as it is by default"))
    return rows


if __name__ == "__main__":
    run("checkpoint", measure)
