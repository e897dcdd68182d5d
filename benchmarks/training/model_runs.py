"""Runs of ``benchmarks.models``: units, replays, and plain loops of the library."""

import resource
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from benchmarks.training.corpus import standard_library
from training_gym.aggregate.aggregation import aggregate
from training_gym.data.dataset import Split, one_shard, training_samples
from training_gym.data.samples import collate
from training_gym.model.folder import write_folder
from training_gym.model.layout import initial_parameters
from training_gym.model.network import Network
from training_gym.runtime.determinism import configure
from training_gym.runtime.profile import CPU
from training_gym.spec.config import TrainingSpec
from training_gym.units.replica_state import fresh_slot_state
from training_gym.units.trace import Unit, state_path
from training_gym.units.unit import replay_segment, run_unit

ZERO = "0x" + "00" * 32
_TEXT_BYTES = 1 << 20
WEIGHTS = "model.safetensors"


@dataclass(frozen=True, slots=True)
class Measured:
    """Tokens a second of a run, and the process's largest resident memory in bytes."""

    tokens_per_second: float
    peak_bytes: int


def write_base(spec: TrainingSpec, folder: Path) -> None:
    """Write a base model of fresh parameters of ``spec.model``."""
    whole = replace(spec, base=None, adapter=None)
    write_folder(spec.model, initial_parameters(whole), folder)


def unit_of(spec: TrainingSpec, base: Path, round_: int = 0) -> Unit:
    """Return a unit on the standard library's sources; ``base`` is an adapter's base model."""
    files = None if spec.adapter is None else {WEIGHTS: base / WEIGHTS}
    start = initial_parameters(spec)
    return Unit(spec, ZERO, round_, 0, start, _text(spec), fresh_slot_state(spec), ZERO, base=files)


def _text(spec: TrainingSpec) -> Split:
    return one_shard(spec, standard_library(_TEXT_BYTES)[0])


def train_unit(spec: TrainingSpec, base: Path) -> Measured:
    """Run a whole unit, with states, digests and payload, in a process that has run one step."""
    configure(CPU)
    seconds(unit_of(of_one_step(spec), base))
    return _measured(spec, seconds(unit_of(spec, base)))


def of_one_step(spec: TrainingSpec) -> TrainingSpec:
    """Return ``spec`` with units of a step, which load all that a unit needs."""
    return replace(spec, training=replace(spec.training, inner_steps=1, segment_steps=1))


def seconds(unit: Unit) -> float:
    """Return the time that a unit takes."""
    with tempfile.TemporaryDirectory() as directory:
        started = time.perf_counter()
        run_unit(unit, Path(directory))
        return time.perf_counter() - started


def train_plainly(spec: TrainingSpec, base: Path) -> Measured:
    """Run the same steps by a plain loop of the library, as its users write it."""
    torch.set_num_threads(1)
    model = _library_model(spec, base)
    trained = [one for one in model.parameters() if one.requires_grad]
    optimiser = torch.optim.AdamW(trained, spec.training.learning_rate, (0.9, 0.95), weight_decay=0.01)
    train, started = _text(spec), 0.0
    for step in (0, *range(spec.training.inner_steps)):  # the first one is not timed
        batch = collate(training_samples(spec, train, 0, 0, step))
        logits = model(input_ids=torch.from_numpy(batch.inputs), use_cache=False).logits
        loss = F.cross_entropy(logits.flatten(0, 1), torch.from_numpy(batch.targets).flatten())
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimiser.step()
        started = started or time.perf_counter()
    return _measured(spec, time.perf_counter() - started)


def _library_model(spec: TrainingSpec, base: Path) -> Any:
    import peft
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32).train()
    if spec.adapter is None:
        return model
    settings = peft.LoraConfig(
        r=spec.adapter.r,
        lora_alpha=spec.adapter.lora_alpha,  # type: ignore[arg-type]  # peft scales by the quotient
        target_modules=list(spec.adapter.target_modules),
        task_type="CAUSAL_LM",
    )
    return peft.get_peft_model(model, settings)


def _measured(spec: TrainingSpec, seconds: float) -> Measured:
    training = spec.training
    tokens = training.inner_steps * training.batch_size * spec.model.sequence_length
    return Measured(tokens / seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)


def commit(spec: TrainingSpec, base: Path, workdir: Path, round_: int) -> tuple[list[bytes], int]:
    """Run a unit that leaves its states in ``workdir``; return leaves and payload size."""
    configure(CPU)
    result = run_unit(unit_of(spec, base, round_), workdir)
    return result.leaves, len(result.payload)


def replayed(spec: TrainingSpec, base: Path, workdir: Path, round_: int, leaves: list[bytes]) -> int:
    """Return how many segments end in another leaf when replayed from their committed states."""
    configure(CPU)
    unit = unit_of(spec, base, round_)
    return sum(
        replay_segment(unit, segment, leaves[segment], state_path(workdir, segment).read_bytes()) != leaves[segment + 1]
        for segment in range(spec.segments)
    )


def logits_difference(spec: TrainingSpec, folder: Path) -> float:
    """Return the largest difference of logits of a trained model, exported and loaded."""
    import transformers

    configure(CPU)
    unit = unit_of(spec, folder)
    with tempfile.TemporaryDirectory() as directory:
        result = run_unit(unit, Path(directory))
    trained = aggregate(spec, dict(unit.checkpoint), {0: result.payload}).parameters
    write_folder(spec.model, trained, folder)
    tokens = torch.from_numpy(collate(training_samples(spec, _text(spec), 0, 0, 0)).inputs)
    network = Network(spec, trained, "cpu").eval()
    loaded = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()  # type: ignore[no-untyped-call]
    with torch.no_grad():
        ours, theirs = network.logits(network.hidden(tokens)), loaded(tokens).logits
    return float((ours - theirs).abs().max())
