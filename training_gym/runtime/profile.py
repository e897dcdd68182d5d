"""Execution profiles: what must be fixed before torch is imported for replays to agree bit for bit.

Thread counts, instruction sets and library kernels all change the last bits of a training step. They are chosen by
environment variables that the numeric libraries read when they load, so a launcher sets them for a fresh process.
"""

from dataclasses import dataclass, field

from training_gym.spec.errors import ProfileError

_CPU_LIBRARIES = {
    "MKL_CBWR": "AVX2,STRICT",  # one code path of the matrix library, whatever the processor offers
    "MKL_NUM_THREADS": "1",
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}


@dataclass(frozen=True)
class ExecutionProfile:
    """A named way of running training.

    Attributes:
        name: what nodes and tasks call it; part of the environment class.
        device: ``"cpu"`` or ``"cuda"`` (the first visible device).
        variables: environment variables the process must start with.
    """

    name: str
    device: str
    variables: dict[str, str] = field(default_factory=dict)


CPU = ExecutionProfile("cpu-avx2-1", "cpu", _CPU_LIBRARIES)


CUDA = ExecutionProfile("cuda-1", "cuda", _CPU_LIBRARIES | {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"})


PROFILES = {profile.name: profile for profile in (CPU, CUDA)}


def profile_named(name: str) -> ExecutionProfile:
    """The profile called ``name``.

    Raises:
        ProfileError: if there is none.
    """
    if name not in PROFILES:
        raise ProfileError("unknown_profile", "profile", f"{name!r:.80} is none of {', '.join(PROFILES)}")
    return PROFILES[name]
