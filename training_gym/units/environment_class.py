"""Environment class: processes of equal class are expected to train to equal bits."""

import hashlib
import platform
import re
import tempfile
from importlib.metadata import distributions, version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from training_gym.data.dataset import one_shard
from training_gym.model.layout import initial_parameters
from training_gym.model.tensors import LEAF_VERSIONS
from training_gym.runtime.profile import ExecutionProfile
from training_gym.spec.architectures import ModelConfig
from training_gym.spec.config import TrainingConfig, TrainingSpec
from training_gym.units.replica_state import fresh_slot_state
from training_gym.units.trace import Unit
from training_gym.units.unit import run_unit
from zoo_protocol.hashing import canonical_json, keccak, to_hex

CPU_INFO, DRIVER = Path("/proc/cpuinfo"), Path("/proc/driver/nvidia/version")
_DRIVER_VERSION = re.compile(r"Kernel Module\D*?(?:x86_64|aarch64)?\s+(\d+(?:\.\d+)+)")
_NO_HASH = "0x" + "00" * 32


def environment_class(profile: ExecutionProfile) -> str:
    """Return the hash (0x hex) over profile, numeric builds, device, kernel libraries and probe.

    The number of processes is not part of it: the sum of gradients has a fixed order. The probe covers
    what the others do not: microcode, or a library that ignores its variables.
    """
    return to_hex(
        keccak(
            canonical_json(
                {
                    "profile": profile.name,
                    "variables": profile.variables,
                    "torch": torch.__version__,
                    "torch_build": hashlib.sha256(torch.__config__.show().encode()).hexdigest(),
                    "numpy": np.__version__,
                    **{name: version(name) for name in ("transformers", "peft")},
                    **(_graphics(DRIVER) if profile.device == "cuda" else {"device": _processor()}),
                    "digests": LEAF_VERSIONS,
                    "probe": to_hex(probe(profile)),
                }
            )
        )
    )


def probe(profile: ExecutionProfile) -> bytes:
    """Return the trace root (32 bytes) of a small fixed unit, trained in this process."""
    spec = TrainingSpec(ModelConfig(), "probe", TrainingConfig(rounds=1, inner_steps=4, segment_steps=2))
    unit = Unit(
        spec=spec,
        job_id=_NO_HASH,
        round=0,
        slot=0,
        checkpoint=initial_parameters(spec),
        train=one_shard(spec, hashlib.shake_256(b"zoo-probe-1").digest(1 << 14)),
        slot_state=fresh_slot_state(spec),
        environment=_NO_HASH,
        device=profile.device,
    )
    with tempfile.TemporaryDirectory(prefix="zoo-probe-") as directory:
        return run_unit(unit, Path(directory)).trace_root


def _graphics(driver: Path) -> dict[str, object]:
    """Return all of a GPU and its libraries that selects a kernel."""
    properties = torch.cuda.get_device_properties(0)
    backends: Any = torch.backends  # its functions have no types
    loaded = driver.read_text() if driver.is_file() else ""  # a virtual machine may hide it
    installed = {one.name.lower(): one.version for one in distributions() if one.name.lower().startswith("nvidia-")}
    return {
        "device": f"{properties.name} {properties.major}.{properties.minor}",
        "multiprocessors": properties.multi_processor_count,  # fewer in a part of a GPU
        "memory_mib": properties.total_memory >> 20,
        "driver": _DRIVER_VERSION.findall(loaded)[:1],
        "cuda": torch.version.cuda,
        "cudnn": backends.cudnn.version(),
        "libraries": installed,  # cuBLAS, cuDNN and NCCL among them
        "attention": [
            backends.cuda.flash_sdp_enabled(),
            backends.cuda.mem_efficient_sdp_enabled(),
            backends.cuda.cudnn_sdp_enabled(),
            backends.cuda.math_sdp_enabled(),
        ],
    }


def _processor() -> str:
    """Return the architecture; with MKL also vendor, family and model unless Intel's.

    Other vendors' processors ignore the branch of ``MKL_CBWR``; MKL then selects one by the processor.
    """
    machine = platform.machine()
    if not torch.backends.mkl.is_available():  # type: ignore[no-untyped-call]
        return machine
    lines = (line.partition(":") for line in reversed(CPU_INFO.read_text().splitlines()))
    first = {name.strip(): value.strip() for name, _, value in lines}
    if first["vendor_id"] == "GenuineIntel":
        return machine
    return f"{machine} {first['vendor_id']} {first['cpu family']} {first['model']}"
