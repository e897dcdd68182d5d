"""Environment class: processes of equal class are expected to train to equal bits."""

import hashlib
import platform
import tempfile
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch

from training_gym.data.dataset import one_shard
from training_gym.model.layout import initial_parameters
from training_gym.runtime.profile import ExecutionProfile
from training_gym.spec.architectures import ModelConfig
from training_gym.spec.config import TrainingConfig, TrainingSpec
from training_gym.units.replica_state import fresh_slot_state
from training_gym.units.trace import Unit
from training_gym.units.unit import run_unit
from zoo_protocol.hashing import canonical_json, keccak, to_hex

CPU_INFO = Path("/proc/cpuinfo")
_NO_HASH = "0x" + "00" * 32


def environment_class(profile: ExecutionProfile) -> str:
    """Return the hash (0x hex) over profile, numeric builds, device model and probe.

    The probe covers what the others do not: microcode, or a library that ignores its variables.
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
                    "device": _device_model(profile.device),
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


def _device_model(device: str) -> str:
    if device == "cpu":
        return _processor()
    properties = torch.cuda.get_device_properties(0)
    return f"{properties.name} {properties.major}.{properties.minor}"


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
