"""Hardware of this machine, as registered; the market relies on benchmarks."""

import platform
import shutil
import subprocess
from dataclasses import asdict, dataclass
from typing import Any

import psutil

from training_gym.runtime.profile import CPU, CUDA, ExecutionProfile, profile_named
from training_gym.spec.errors import ProfileError
from zoo_compute.base.errors import ConfigError

_GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Hardware:
    """Memory in GiB, network in Gbit/s. Without a GPU, main memory counts as GPU memory."""

    gpu_model: str
    gpu_count: int
    gpu_memory_gb: float
    ram_gb: float
    network_gbps: float

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def detect() -> Hardware:
    ram = round(psutil.virtual_memory().total / _GIB, 1)
    network = max((interface.speed for interface in psutil.net_if_stats().values() if interface.isup), default=0) / 1000
    gpus = _nvidia_gpus()
    if not gpus:
        return Hardware(f"none ({platform.machine()} CPU)", 0, ram, ram, network)
    model, memory = gpus[0]
    return Hardware(model, len(gpus), memory, ram, network)


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


def _nvidia_gpus() -> list[tuple[str, float]]:
    """Return model and memory of each NVIDIA GPU; empty without a driver."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    query = [tool, "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"]
    try:
        listed = subprocess.run(query, capture_output=True, text=True, timeout=10, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    rows = (line.rsplit(",", 1) for line in listed.splitlines() if "," in line)
    return [(name.strip(), round(int(memory) / 1024, 1)) for name, memory in rows]
