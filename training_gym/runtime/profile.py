"""Execution profiles: settings before torch's import, so that replays agree bit for bit.

Thread counts, instruction sets and library kernels change the last bits of a training step. The numeric libraries read
them from environment variables when they load, so a launcher sets these for a fresh process.
"""

from dataclasses import dataclass, field

from training_gym.spec.errors import ProfileError

_CPU_LIBRARIES = {
    "MKL_CBWR": "AVX2,STRICT",  # one code path of the matrix library on all processors
    "MKL_NUM_THREADS": "1",
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}


@dataclass(frozen=True)
class ExecutionProfile:
    """Named settings of a training process.

    Attributes:
        name: name that nodes and tasks use, with the precision that suits the device; part of the environment class.
        device: ``"cpu"`` or ``"cuda"`` (the first visible device).
        variables: environment variables the process must start with.
    """

    name: str
    device: str
    variables: dict[str, str] = field(default_factory=dict)


CPU = ExecutionProfile("cpu-fp32", "cpu", _CPU_LIBRARIES)
CUDA = ExecutionProfile("cuda-bf16", "cuda", _CPU_LIBRARIES | {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"})
PROFILES = {profile.name: profile for profile in (CPU, CUDA)}


def profile_named(name: str) -> ExecutionProfile:
    """Return the profile with this name. Raises ProfileError: there is none."""
    if name not in PROFILES:
        raise ProfileError(
            "unknown_profile", "profile", f"{name!r:.80} is unknown; expected one of {', '.join(PROFILES)}"
        )
    return PROFILES[name]
