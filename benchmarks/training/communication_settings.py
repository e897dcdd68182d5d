"""Model, methods, settings and tuning trials of ``benchmarks.communication``.

Settings are those of ``training_config``; missing ones take the specification's defaults.
"""

from dataclasses import dataclass, replace
from typing import Any

from training_gym.spec.architectures import ModelConfig, read_model
from training_gym.spec.config import TrainingSpec

Settings = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Scale:
    """Amount of training.

    Attributes:
        model: model of all methods.
        steps: a multiple of every method's steps per round, so that all train on equally many tokens.
        batch_size: sequences of one worker's step.
        warmup: steps of warm-up for methods with one continuous optimiser.
        curve: steps of the shorter dense runs, each with its own decay to 0.
    """

    model: ModelConfig
    steps: int
    batch_size: int
    warmup: int
    curve: tuple[int, ...]


FULL = Scale(
    read_model({"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "sequence_length": 64}),
    1500,
    4,
    30,
    (150, 300, 600, 1050),
)
QUICK = Scale(
    read_model({"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "sequence_length": 16}),
    60,
    1,
    5,
    (30,),
)


def shortened(scale: Scale, steps: int) -> Scale:
    """Return the scale with fewer steps, and dense runs in the same proportion."""
    return replace(scale, steps=steps, curve=tuple(length * steps // scale.steps for length in scale.curve))


def dense_lengths(scale: Scale) -> dict[str, int]:
    """Return the steps of the dense runs with Muon by name; the longest is ``ddp_muon`` itself."""
    return {f"ddp_muon_{steps}": steps for steps in scale.curve} | {"ddp_muon": scale.steps}


@dataclass(frozen=True, slots=True)
class Method:
    """One training method.

    Attributes:
        how: ``rounds``, ``all_gather`` (rounds without a server), ``steps`` or ``torchft``.
        settings: settings of the specification.
    """

    how: str
    settings: Settings


def specification(method: Method, scale: Scale, seed: int) -> TrainingSpec:
    """Return the specification of ``method``, with everything that all methods share."""
    shared: dict[str, object] = {"batch_size": scale.batch_size, "seed": seed}
    if method.how == "steps":
        steps = {"averaging": "steps", "rounds": 1, "inner_steps": scale.steps, "segment_steps": scale.steps}
        training = shared | steps | {"warmup_steps": scale.warmup} | method.settings
    else:
        training = shared | method.settings
    document = {
        "model_config": scale.model.to_dict(),
        "data_config": {"dataset": "x" * 46, "replicas": 8},
        "training_config": training,
    }
    spec = TrainingSpec.from_dict(document)
    if method.how == "steps":
        return spec
    length = min(spec.training.inner_steps, scale.steps)  # the longest rounds exceed the small scale's steps
    one_segment = replace(spec.training, rounds=scale.steps // length, inner_steps=length, segment_steps=length)
    return replace(spec, training=one_segment)


def fits(method: Method, scale: Scale) -> bool:
    """Return True if the method's rounds make up exactly the scale's steps."""
    training = specification(method, scale, 0).training
    return training.rounds * training.inner_steps == scale.steps


ADAMW: Settings = {"optimizer": "adamw", "learning_rate": 32e-3, "weight_decay": 0.1}
MUON: Settings = {"optimizer": "muon", "muon_learning_rate": 0.04, "learning_rate": 32e-3, "weight_decay": 0.1}
"""Settings of the dense runs, as found by ``--tune``; torchft's DiLoCo uses the former."""


def rounds_of(steps: int) -> Settings:
    return {"inner_steps": steps, "segment_steps": steps}


def sparse(top_k: int, bits: int = 2) -> Settings:
    """Return the settings of ``top_k`` entries of 4,096, both ways."""
    return {"top_k": top_k, "value_bits": bits, "down_top_k": top_k, "down_value_bits": bits}


def diloco(rate: float, momentum: float) -> Settings:
    """Return the settings of DiLoCo with these of the outer step."""
    return {"method": "diloco", "outer_learning_rate": rate, "outer_momentum": momentum} | rounds_of(10)


def powersgd(rank: int, rate: float) -> Settings:
    return ADAMW | {"powersgd_rank": rank, "learning_rate": rate}


def sparseloco(steps: int, top_k: int, rate: float) -> Settings:
    """Return the settings of SparseLoCo with this AdamW rate."""
    return ADAMW | {"method": "sparseloco", "top_k": top_k, "learning_rate": rate} | rounds_of(steps)


METHODS: dict[str, Method] = {
    "ddp_muon": Method("steps", MUON),
    "ddp_adamw": Method("steps", ADAMW),
    "default": Method("rounds", {}),
    "at_1000x": Method("rounds", rounds_of(60) | sparse(1750)),
    "sparseloco": Method("all_gather", sparseloco(15, 512, 32e-3)),
    "torchft_diloco": Method("torchft", ADAMW | diloco(0.7, 0.5)),
    "diloco": Method("rounds", diloco(0.7, 0.5)),
    "powersgd_4": Method("steps", powersgd(4, 16e-3)),
    "at_4000x": Method("rounds", rounds_of(250) | sparse(4096) | {"outer_learning_rate": 1.0, "outer_momentum": 0.0}),
    "at_70x": Method("rounds", rounds_of(10) | sparse(4096, 4)),
    "at_20x": Method("rounds", rounds_of(5) | sparse(4096, 8)),
    "powersgd_1": Method("steps", powersgd(1, 16e-3)),
}
OURS = ("at_20x", "at_70x", "default", "at_1000x", "at_4000x")
PEERS = ("ddp_adamw", "ddp_muon", "powersgd_1", "powersgd_4", "diloco", "torchft_diloco", "sparseloco")
TUNING_SEED = 100


def _muon(rate: float, adamw: float, decay: float = 0.01) -> Settings:
    return {"optimizer": "muon", "muon_learning_rate": rate, "learning_rate": adamw, "weight_decay": decay}


def _trial(steps: int, entries: int = 4096, adamw: float = 16e-3, bits: int = 2, **others: float) -> Method:
    return Method(
        "rounds", {"warmup_steps": 30} | _muon(0.04, adamw) | rounds_of(steps) | sparse(entries, bits) | others
    )


TRIALS: dict[str, Method] = {
    **{
        f"dense Muon {muon}, AdamW {adamw}, decay {decay}": Method("steps", _muon(muon, adamw, decay))
        for muon, adamw, decay in (
            *((0.04, 8e-3, 0.01), (0.06, 8e-3, 0.01), (0.08, 16e-3, 0.01), (0.12, 16e-3, 0.01)),
            *((0.08, 32e-3, 0.01), (0.08, 32e-3, 0.1), (0.04, 32e-3, 0.1)),
        )
    },
    **{
        f"dense AdamW {adamw}, decay {decay}": Method("steps", ADAMW | {"learning_rate": adamw, "weight_decay": decay})
        for adamw, decay in ((8e-3, 0.01), (8e-3, 0.1), (16e-3, 0.1), (32e-3, 0.1))
    },
    "H10, 960 entries, AdamW 8e-3": _trial(10, 960, 8e-3),
    "H10, 960 entries": _trial(10, 960),
    "H5, 350 entries": _trial(5, 350),
    "H15": _trial(15),
    "H20, AdamW 8e-3": _trial(20, adamw=8e-3),
    "H20": _trial(20),
    "H20, AdamW 32e-3": _trial(20, adamw=32e-3),
    "H20, AdamW 32e-3, decay 0.05": _trial(20, adamw=32e-3, weight_decay=0.05),
    "H20, AdamW 32e-3, decay 0.1": _trial(20, adamw=32e-3, weight_decay=0.1),
    "H20, Muon 0.06": _trial(20, muon_learning_rate=0.06),
    "H20, outer rate 1.4, momentum 0": _trial(20, outer_learning_rate=1.4, outer_momentum=0.0),
    "H20, error feedback 1": _trial(20, error_feedback_decay=1.0),
    "H30, 4 bits": _trial(30, bits=4),
    "H20, 344 entries": _trial(20, 344),
    "H60, 1,750 entries": _trial(60, 1750),
    **{
        f"DiLoCo, outer rate {rate}, momentum {momentum}": Method("rounds", diloco(rate, momentum))
        for momentum, rates in (
            (0.0, (1.0,)),
            (0.3, (1.0,)),
            (0.5, (0.7, 0.9, 1.2)),
            (0.7, (0.7, 0.9)),
            (0.9, (0.4, 0.7)),
        )
        for rate in rates
    },
    **{
        f"PowerSGD rank {rank}, AdamW {rate}": Method("steps", powersgd(rank, rate))
        for rank, rates in ((1, (4e-3, 8e-3, 16e-3, 32e-3)), (4, (4e-3, 8e-3, 16e-3, 32e-3, 64e-3)))
        for rate in rates
    },
    **{
        f"SparseLoCo, H{steps}, {top_k} entries, AdamW {rate}": Method("all_gather", sparseloco(steps, top_k, rate))
        for steps, top_k, rates in (
            (15, 512, (8e-3, 16e-3, 32e-3, 64e-3)),
            (30, 512, (8e-3, 16e-3, 32e-3)),
            (30, 1024, (8e-3, 16e-3, 32e-3)),
        )
        for rate in rates
    },
}
"""Settings tried with ``--tune``. Ours (H: steps per round) have all entries at 2 bits and AdamW 16e-3 unless stated.

Each peer has nine or ten trials, as many as ours have with rounds of 20.
"""
