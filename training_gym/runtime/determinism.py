"""Process settings that make replays agree bit for bit, applied once torch is imported."""

import hashlib
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.utils.deterministic

from training_gym.runtime.profile import ExecutionProfile
from training_gym.spec.errors import ProfileError


def configure(profile: ExecutionProfile) -> None:
    """Apply ``profile`` to this process: threads, deterministic kernels, no reduced precision.

    Raises:
        ProfileError: the process was not started with the profile's variables, or lacks its device.
    """
    for name, value in profile.variables.items():
        if os.environ.get(name) != value:
            raise ProfileError("wrong_environment", name, f"must be {value!r} before torch is imported")
    if profile.device == "cuda" and not torch.cuda.is_available():
        raise ProfileError("no_device", "profile", f"{profile.name} needs a CUDA device, but torch finds none")
    torch.set_num_threads(1)
    # Equals use_deterministic_algorithms(True) without importing torch's compiler, which takes 70 MB and a second.
    torch.set_deterministic_debug_mode("error")
    memory: Any = torch.utils.deterministic  # its attribute has no type
    memory.fill_uninitialized_memory = False  # no unit reads such memory, and filling it takes a GPU's launches
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False


@contextmanager
def tf32(enabled: bool = True) -> Iterator[None]:
    """Let a GPU multiply float32 matrices in TF32: inputs of 11 bits, several times as fast."""
    # The switch is restored: the same process runs units of both precisions.
    switch = torch.backends.cuda.matmul
    before, switch.allow_tf32 = switch.allow_tf32, enabled
    try:
        yield
    finally:
        switch.allow_tf32 = before


def seed_step(seed: int, round_: int, slot: int, step: int, shard: int = 0) -> None:
    """Seed torch's generators for a part of one inner step's batch, independent of earlier ones."""
    part = struct.pack(">Q", shard) if shard else b""  # the first part's seed is that of a whole batch
    digest = hashlib.sha256(b"zoo-rng-1" + struct.pack(">QQQQ", seed, round_, slot, step) + part).digest()
    torch.manual_seed(int.from_bytes(digest[:8], "big") >> 1)
