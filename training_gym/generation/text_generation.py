"""Text generation in a child process with bounded time and memory.

``python -m training_gym.generation.text_generation`` reads a :class:`GenerationTask` as JSON from stdin and prints the
answer as JSON. The child has none of the caller's environment. It alone reads files of untrusted peers: a
tokenizer's patterns can take forever, and a model can exceed the memory. It alone loads torch.
"""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from training_gym.data.text_tokenizer import TextTokenizer
from training_gym.model.folder import load_files
from training_gym.spec.config import TrainingSpec
from training_gym.spec.errors import GymError
from training_gym.units.checkpoint import map_state

_START_SECONDS = 60  # imports and the reading of files, on a busy machine
_LIBRARY_BYTES = 3 << 29  # torch and the others, before the first tensor
_MEMORY_SHORT, _MODEL_UNUSABLE, _PROMPT_EMPTY, _TIME_UP = "memory-short", "model-unusable", "prompt-empty", "time-up"
FAILURES = (_MEMORY_SHORT, _MODEL_UNUSABLE, _PROMPT_EMPTY, _TIME_UP)
"""Codes of :class:`GenerationFailed`."""


class GenerationFailed(Exception):
    """No text; ``code`` is one of :data:`FAILURES`."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass(frozen=True, slots=True)
class GenerationTask:
    """Input of the child.

    Attributes:
        spec: document of the job's specification.
        parameters: path of the model file.
        base: paths of the base model's weights by name; an adapter needs them.
        tokenizer: path of ``tokenizer.json``; None: tokens are bytes.
        seconds: time for the tokens; the text is shorter if it does not suffice.
    """

    spec: Mapping[str, Any]
    parameters: str
    base: Mapping[str, str]
    tokenizer: str | None
    prompt: str
    length: int
    temperature: float
    seed: int
    seconds: float


@dataclass(frozen=True, slots=True)
class GeneratedText:
    """Text after the prompt, and its number of tokens."""

    text: str
    tokens: int


def generation_memory_bytes(spec: TrainingSpec) -> int:
    """Return an upper estimate of the child's memory: libraries, weights twice, one pass."""
    model = spec.model
    weights = spec.num_parameters() + (model.num_parameters() if spec.adapter is not None else 0)
    scores = model.num_attention_heads * model.sequence_length**2
    widened = model.intermediate_size * model.sequence_length
    return _LIBRARY_BYTES + 4 * (2 * weights + 4 * max(scores, widened) + 4 * model.vocab_size)


def run_generation(task: GenerationTask) -> GeneratedText:
    """Return the text that a child generates. Raises GenerationFailed."""
    command = [sys.executable, "-m", "training_gym.generation.text_generation"]
    environment = {"PATH": os.defpath, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        done = subprocess.run(
            command,
            input=json.dumps(asdict(task)).encode(),
            capture_output=True,
            env=environment,
            timeout=task.seconds + _START_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise GenerationFailed(_TIME_UP) from None
    if done.returncode != 0:
        raise GenerationFailed(_failure(done.returncode, done.stderr.decode(errors="replace")))
    return GeneratedText(**json.loads(done.stdout))


def _failure(status: int, output: str) -> str:
    """Return the code of a child that ended early: by a signal, or with its last word."""
    if status < 0:  # the kernel kills for memory, and an allocator aborts
        return _TIME_UP if status == -signal.SIGXCPU else _MEMORY_SHORT
    last = output.strip().rpartition("\n")[2]
    return last if last in FAILURES else _MODEL_UNUSABLE


def _generate(task: GenerationTask) -> GeneratedText:
    from training_gym.model.generate import continue_text  # imports torch

    spec = TrainingSpec.from_dict(task.spec)
    tokenizer = None if task.tokenizer is None else TextTokenizer(Path(task.tokenizer).read_bytes())
    base = {name: Path(path) for name, path in task.base.items()}
    found = continue_text(
        spec,
        map_state(spec, Path(task.parameters)),
        tokenizer,
        task.prompt,
        task.length,
        task.temperature,
        task.seed,
        dict(load_files(spec.model, base)) if base else None,
        until=time.monotonic() + task.seconds,
    )
    return GeneratedText(found.text, found.tokens)


def _limit(task: GenerationTask) -> None:
    """Bound this process's memory and processor time, in case the model lies or the parent dies."""
    # RLIMIT_DATA instead of address space: torch reserves far more address space than it uses.
    memory = generation_memory_bytes(TrainingSpec.from_dict(task.spec))
    resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    seconds = int(task.seconds + _START_SECONDS) * (os.cpu_count() or 1)
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _main() -> str:
    """Print the answer; return the code of a failure, or nothing."""
    task = GenerationTask(**json.loads(sys.stdin.buffer.read()))
    try:
        _limit(task)
        found = _generate(task)
    except MemoryError:
        return _MEMORY_SHORT
    except GymError:
        return _MODEL_UNUSABLE
    except ValueError:  # every other argument was checked by the caller
        return _PROMPT_EMPTY
    except (RuntimeError, IndexError) as error:  # torch's: no memory, no finite probabilities, an unknown token
        return _MEMORY_SHORT if "allocate memory" in str(error) else _MODEL_UNUSABLE
    print(json.dumps(asdict(found)))
    return ""


if __name__ == "__main__":
    sys.exit(_main() or None)
