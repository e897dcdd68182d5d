"""Memory of whole units: peaks of a process, in copies of what the unit trains."""

import gc
import time
import tracemalloc
from pathlib import Path

import numpy as np

from benchmarks.report import timed
from training_gym.aggregate.aggregation import aggregate, batches
from training_gym.compress.payload_format import decoded_bytes, encode, uplink
from training_gym.data.dataset import one_shard
from training_gym.model.layout import initial_parameters
from training_gym.model.tensors import mapped_arrays, tensor_leaf, write_arrays
from training_gym.runtime.determinism import configure
from training_gym.runtime.profile import CPU
from training_gym.spec.config import TrainingSpec
from training_gym.units.checkpoint import map_state
from training_gym.units.replica_state import fresh_slot_state, load_slot_state, write_slot_state
from training_gym.units.trace import Unit, inner_digest, start_state
from training_gym.units.unit import run_unit

_ZERO = "0x" + "00" * 32
_TOKENS = bytes(range(256)) * 64


def mapped_unit(spec: TrainingSpec, folder: Path) -> Unit:
    """Return the first unit, its checkpoint and replica state in files, as a node has them."""
    if not (folder / "model").exists():
        write_arrays(folder / "model", initial_parameters(spec))
        write_slot_state(folder / "state", fresh_slot_state(spec))
    state = load_slot_state(spec, folder / "state")
    train = one_shard(spec, _TOKENS)
    return Unit(spec, _ZERO, 0, 0, map_state(spec, folder / "model"), train, state, _ZERO)


def run_from_files(spec: TrainingSpec, folder: Path, files: Path) -> None:
    """Run a unit from the inputs in ``folder`` and write its results to ``files``."""
    result = run_unit(mapped_unit(spec, folder), files)
    write_slot_state(files / "slot-state", result.slot_state)


def unit_copies(spec: TrainingSpec, small: TrainingSpec, folder: Path) -> float:
    """Return a unit's peak above the process's rest, in copies of the trained parameters.

    A unit of ``small`` runs first, so that the libraries' own memory does not count.
    """
    configure(CPU)
    for name, one in (("small", small), ("large", spec)):
        (folder / name / "files").mkdir(parents=True)
        mapped_unit(one, folder / name)
    run_from_files(small, folder / "small", folder / "small" / "files")
    gc.collect()
    before = _reset_peak()
    run_from_files(spec, folder / "large", folder / "large" / "files")
    return (_memory("VmHWM") - before) / (4 * spec.num_parameters())


def aggregation_copies(spec: TrainingSpec, payloads: int) -> float:
    """Return the peak of an aggregation in place above inputs and decoded payloads, in copies."""
    start, noise, size = initial_parameters(spec), np.random.default_rng(0), spec.num_parameters()
    sent = {slot: encode(spec, noise.normal(0, 1e-3, size).astype(np.float32)) for slot in range(payloads)}
    state = aggregate(spec, start, {0: sent[0]}).outer_state  # compiles the kernels too
    tracemalloc.start()
    aggregate(spec, start, sent, None, state, in_place=True)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return (peak - len(batches(spec, sent)[0]) * decoded_bytes(uplink(spec))) / (4 * size)


def hash_share(spec: TrainingSpec, folder: Path) -> float:
    """Return the share of a unit's time that the digests of its states take."""
    configure(CPU)
    (folder / "files").mkdir(parents=True)
    unit = mapped_unit(spec, folder)
    started = time.perf_counter()
    run_unit(unit, folder / "files")
    whole, started = time.perf_counter() - started, time.perf_counter()
    for segment in range(spec.segments):
        inner_digest(unit, segment, start_state(unit), bytes(32))
    return (time.perf_counter() - started) / whole


def hash_gbps(size: int, threads: int, folder: Path) -> float:
    """Return GB/s per core of the digest of a mapped tensor, by the processor's time."""
    file = folder / f"tensor-{size}"
    if not file.exists():
        write_arrays(file, {"embedding": np.arange(size, dtype=np.float32)})
    values = mapped_arrays(file)["embedding"]
    tensor_leaf("embedding", values, threads)  # reads the file into memory
    _, seconds = timed(lambda: tensor_leaf("embedding", values, threads), 3, time.process_time)
    return values.nbytes / seconds / 1e9


def _reset_peak() -> int:
    Path("/proc/self/clear_refs").write_text("5")  # the peak becomes the present size
    return _memory("VmHWM")


def _memory(name: str) -> int:
    status = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith(f"{name}:"))) * 1024
