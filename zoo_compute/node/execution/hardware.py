"""Hardware of this machine, as registered; the market relies on benchmarks."""

import platform
import shutil
import subprocess
from dataclasses import dataclass

import psutil

from training_gym.runtime.memory import measured
from training_gym.runtime.profile import CPU, CUDA, ExecutionProfile, profile_named
from training_gym.spec.costs import usable_gpu_bytes
from training_gym.spec.errors import ProfileError
from zoo_compute.base.errors import ConfigError

MAX_PROCESSES = 8
"""Most parts of a batch (``gradient_shards``)."""
_GB = 10**9
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Hardware:
    """Memory in GB of 10**9 bytes, network in Gbit/s.

    Without GPU memory of its own, a node declares main memory.
    """

    gpu_model: str
    gpu_count: int
    gpu_memory_gb: float
    ram_gb: float
    network_gbps: float


def detect() -> Hardware:
    ram = round(measured().total / _GB, 1)
    network = max((interface.speed for interface in psutil.net_if_stats().values() if interface.isup), default=0) / 1000
    gpus = _nvidia_gpus()
    if not gpus:
        return Hardware(f"none ({platform.machine()} CPU)", 0, ram, ram, network)
    model, memory = gpus[0]
    return Hardware(model, len(gpus), ram if memory is None else memory, ram, network)


def free_memory(profile: ExecutionProfile, limit: int, processes: int = 1) -> int:
    """Return each process's bytes: its GPU's, or a share of free main memory up to ``limit``."""
    if profile.device == "cuda":
        return usable_gpu_bytes(round(detect().gpu_memory_gb * _GB))
    return min(limit, measured().free // processes)


def profile(name: str | None = None) -> ExecutionProfile:
    """Return the execution profile ``name``, by default the one for this machine's hardware.

    Raises:
        ConfigError: the profile is unknown.
    """
    if name is None:
        return CUDA if detect().gpu_count else CPU
    try:
        return profile_named(name)
    except ProfileError as error:
        code = error.code.replace("_", "-")
        raise ConfigError(code, str(error), remedy="Remove --profile, or choose one.") from error


def processes(profile: ExecutionProfile) -> int:
    """Return how many processes may train a unit: one for each GPU, or one on a CPU."""
    return min(MAX_PROCESSES, max(1, detect().gpu_count)) if profile.device == "cuda" else 1


def _nvidia_gpus() -> list[tuple[str, float | None]]:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    query = [tool, "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"]
    try:
        listed = subprocess.run(query, capture_output=True, text=True, timeout=10, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    rows = (line.rsplit(",", 1) for line in listed.splitlines() if "," in line)
    return [(name.strip(), _memory(reported.strip())) for name, reported in rows]


def _memory(reported: str) -> float | None:
    """Return a GPU's memory in GB from the MiB that nvidia-smi reports, None for ``[N/A]``."""
    return round(int(reported) * _MIB / _GB, 1) if reported.isdecimal() else None
