"""Model, methods, settings and tuning trials of ``benchmarks.communication``.

Settings are those of ``training_config``; missing ones take the specification's defaults.
"""

from dataclasses import asdict, dataclass, replace
from typing import Any

from training_gym.spec.config import ModelConfig, TrainingSpec

Settings = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Scale:
    """Amount of training.

    Attributes:
        model: model of all methods.
        steps: a multiple of every method's steps per round, so that all train on equally many tokens.
        batch_size: sequences of one worker's step.
        warmup: steps of warm-up for methods with one continuous optimiser.
        max_processes: maximum of a group that averages at every step.
    """

    model: ModelConfig
    steps: int
    batch_size: int
    warmup: int
    max_processes: int


FULL = Scale(ModelConfig(hidden_size=32, num_layers=2, num_heads=4, sequence_length=64), 1500, 4, 30, 8)
QUICK = Scale(ModelConfig(hidden_size=16, num_layers=1, num_heads=2, sequence_length=16), 60, 1, 5, 2)


@dataclass(frozen=True, slots=True)
class Method:
    """One training method.

    Attributes:
        how: ``rounds``, ``all_gather`` (rounds without a server), ``steps`` or ``torchft``.
        settings: settings of the specification.
        processes: size of a group that averages at every step.
    """

    how: str
    settings: Settings
    processes: int = 1


def specification(method: Method, scale: Scale, seed: int) -> TrainingSpec:
    """Return the specification of ``method``, with everything that all methods share."""
    shared: dict[str, object] = {"batch_size": scale.batch_size, "seed": seed}
    if method.how == "steps":
        steps = {"averaging": "steps", "rounds": 1, "inner_steps": scale.steps, "segment_steps": scale.steps}
        training = shared | steps | {"warmup_steps": scale.warmup} | method.settings
    else:
        training = shared | method.settings
    document = {"model_config": asdict(scale.model), "data_config": {"dataset": "x" * 46}, "training_config": training}
    spec = TrainingSpec.from_dict(document)
    if method.how == "steps":
        return spec
    length = min(spec.training.inner_steps, scale.steps)  # the longest rounds exceed the small scale's steps
    rounds, left = divmod(scale.steps, length)
    if left:
        raise ValueError(f"steps is {scale.steps}; expected a multiple of {length}, the steps of a round")
    one_segment = replace(spec.training, rounds=rounds, inner_steps=length, segment_steps=length)
    return replace(spec, training=one_segment)


ADAMW: Settings = {"optimizer": "adamw", "learning_rate": 32e-3, "weight_decay": 0.1}
MUON: Settings = {"optimizer": "muon", "muon_learning_rate": 0.04, "learning_rate": 32e-3, "weight_decay": 0.1}
"""Settings of the dense runs, as found by ``--tune``; peers with AdamW use the former."""


def rounds_of(steps: int) -> Settings:
    return {"inner_steps": steps, "segment_steps": steps}


def sparse(top_k: int, bits: int = 2) -> Settings:
    """Return the settings of ``top_k`` entries of 4,096, both ways."""
    return {"top_k": top_k, "value_bits": bits, "down_top_k": top_k, "down_value_bits": bits}


METHODS: dict[str, Method] = {
    "ddp_muon": Method("steps", MUON),
    "ddp_adamw": Method("steps", ADAMW),
    "default": Method("rounds", {}),
    "at_1000x": Method("rounds", rounds_of(60) | sparse(1750)),
    "sparseloco": Method("all_gather", {"method": "sparseloco", **ADAMW}),
    "torchft_diloco": Method("torchft", {"method": "diloco", **ADAMW, **rounds_of(10)}),
    "diloco": Method("rounds", {"method": "diloco", **rounds_of(10)}),
    "powersgd_4": Method("steps", ADAMW | {"powersgd_rank": 4}, processes=8),
    "at_4000x": Method("rounds", rounds_of(250) | sparse(4096) | {"outer_learning_rate": 1.0, "outer_momentum": 0.0}),
    "at_70x": Method("rounds", rounds_of(10) | sparse(4096, 4)),
    "at_20x": Method("rounds", rounds_of(5) | sparse(4096, 8)),
    "powersgd_1": Method("steps", ADAMW | {"powersgd_rank": 1}, processes=8),
}
OURS = ("at_20x", "at_70x", "default", "at_1000x", "at_4000x")
PEERS = ("ddp_adamw", "ddp_muon", "powersgd_1", "powersgd_4", "diloco", "torchft_diloco", "sparseloco")
TUNING_SEED = 100
_WARM: Settings = {"warmup_steps": 30}


def _muon(rate: float, adamw: float, decay: float = 0.01) -> Settings:
    return {"optimizer": "muon", "muon_learning_rate": rate, "learning_rate": adamw, "weight_decay": decay}


def _adamw(rate: float, decay: float) -> Settings:
    return {"optimizer": "adamw", "learning_rate": rate, "weight_decay": decay}


def _trial(steps: int, entries: Settings, rate: float, adamw: float, **others: float) -> Method:
    return Method("rounds", _WARM | _muon(rate, adamw) | rounds_of(steps) | entries | others)


TRIALS: dict[str, Method] = {
    "dense Muon 0.04, AdamW 8e-3": Method("steps", _muon(0.04, 8e-3)),
    "dense Muon 0.06, AdamW 8e-3": Method("steps", _muon(0.06, 8e-3)),
    "dense Muon 0.08, AdamW 16e-3": Method("steps", _muon(0.08, 16e-3)),
    "dense Muon 0.12, AdamW 16e-3": Method("steps", _muon(0.12, 16e-3)),
    "dense Muon 0.08, AdamW 32e-3": Method("steps", _muon(0.08, 32e-3)),
    "dense Muon 0.08, AdamW 32e-3, decay 0.1": Method("steps", _muon(0.08, 32e-3, 0.1)),
    "dense Muon 0.04, AdamW 32e-3, decay 0.1": Method("steps", _muon(0.04, 32e-3, 0.1)),
    "dense AdamW 8e-3": Method("steps", _adamw(8e-3, 0.01)),
    "dense AdamW 8e-3, decay 0.1": Method("steps", _adamw(8e-3, 0.1)),
    "dense AdamW 16e-3, decay 0.1": Method("steps", _adamw(16e-3, 0.1)),
    "dense AdamW 32e-3, decay 0.1": Method("steps", _adamw(32e-3, 0.1)),
    "H10, 960 entries, AdamW 8e-3": _trial(10, sparse(960), 0.04, 8e-3),
    "H10, 960 entries, AdamW 16e-3": _trial(10, sparse(960), 0.04, 16e-3),
    "H5, 350 entries, AdamW 16e-3": _trial(5, sparse(350), 0.04, 16e-3),
    "H15, all entries, AdamW 16e-3": _trial(15, sparse(4096), 0.04, 16e-3),
    "H20, all entries, AdamW 8e-3": _trial(20, sparse(4096), 0.04, 8e-3),
    "H20, all entries, AdamW 16e-3": _trial(20, sparse(4096), 0.04, 16e-3),
    "H20, all entries, AdamW 32e-3": _trial(20, sparse(4096), 0.04, 32e-3),
    "H20, all entries, AdamW 32e-3, decay 0.05": _trial(20, sparse(4096), 0.04, 32e-3, weight_decay=0.05),
    "H20, all entries, AdamW 32e-3, decay 0.1": _trial(20, sparse(4096), 0.04, 32e-3, weight_decay=0.1),
    "H20, all entries, Muon 0.06": _trial(20, sparse(4096), 0.06, 16e-3),
    "H20, all entries, outer rate 1.4, momentum 0": _trial(
        20, sparse(4096), 0.04, 16e-3, outer_learning_rate=1.4, outer_momentum=0.0
    ),
    "H20, all entries, error feedback 1": _trial(20, sparse(4096), 0.04, 16e-3, error_feedback_decay=1.0),
    "H30, all entries at 4 bits": _trial(30, sparse(4096, 4), 0.04, 16e-3),
    "H20, 344 entries": _trial(20, sparse(344), 0.04, 16e-3),
    "H60, 1,750 entries": _trial(60, sparse(1750), 0.04, 16e-3),
}
"""Payloads have 2 bits both ways unless stated."""
