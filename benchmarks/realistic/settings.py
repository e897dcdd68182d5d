"""Sizes, methods and trials of the realistic part of ``benchmarks.communication``.

``VERSION`` states the version of the training rules: optimisers, order of samples, compression, aggregation, outer
step. It enters the key of every kept run in place of a hash of the code, which each refactoring would change. Raise it
with any change that alters the result of training at equal settings; a test of a tiny run's loss fails then.
"""

from dataclasses import dataclass, replace
from typing import Any

from benchmarks.training.communication_settings import Method, Settings, rounds_of, sparse
from training_gym.spec.architectures import ModelConfig, read_model
from training_gym.spec.config import TrainingSpec

VERSION = 1


@dataclass(frozen=True, slots=True)
class Size:
    """Model, text and amount of training that all methods share.

    Attributes:
        name: enters the key of kept runs.
        packages: sources of text next to the standard library; ``*`` is all.
        max_characters: size of the text.
        slots: units of a round.
        steps: steps of the job; a method whose rounds do not make them up is left out.
        training: shared settings of the specification.
        curve: shares of ``steps`` of the shorter dense runs, each with its own decay to 0.
        device: where units run.
    """

    name: str
    model: ModelConfig
    packages: tuple[str, ...]
    max_characters: int
    slots: int
    steps: int
    training: dict[str, Any]
    curve: tuple[float, ...]
    device: str = "cpu"

    @property
    def tokens(self) -> int:
        """Return the tokens of the whole job."""
        return self.slots * int(self.training["batch_size"]) * self.model.sequence_length * self.steps

    def dense_steps(self) -> dict[str, int]:
        """Return the steps of the dense runs by name; the longest is ``dense`` itself."""
        shorter = [round(share * self.steps) for share in self.curve]
        return {f"dense_{steps}": steps for steps in shorter} | {"dense": self.steps}


def _llama(
    vocabulary: int, width: int, wide: int, layers: int, heads: int, length: int, tied: bool = True
) -> ModelConfig:
    return read_model(
        {
            "vocab_size": vocabulary,
            "hidden_size": width,
            "intermediate_size": wide,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": heads,
            "head_dim": width // heads,
            "sequence_length": length,
            "tie_word_embeddings": tied,
        }
    )


CORE = Size(
    "core",
    _llama(2048, 192, 512, 4, 3, 128),
    ("networkx", "numpy", "sqlalchemy", "sympy"),
    30_000_000,
    2,
    540,
    {
        "batch_size": 32,
        "warmup_steps": 20,
        "weight_decay": 0.05,
        "learning_rate": 32e-3,
        "muon_learning_rate": 0.04,
        "precision": "bfloat16",
    },
    (0.65, 0.8),
)
"""2.2 million parameters, 2 slots of 4,096 tokens, 4.4 million tokens: about 15 minutes of one core a run."""
HALF = replace(CORE, name="half", steps=240)
"""Trials of ``CORE`` in half its tokens."""
PROXY = replace(
    CORE,
    name="proxy",
    model=_llama(2048, 96, 256, 3, 3, 128),
    training=CORE.training | {"batch_size": 8},
)
"""0.5 million parameters, 2 slots of 1,024 tokens: two minutes of one core a run, for first trials."""
GPU = replace(
    CORE,
    name="gpu",
    model=_llama(8192, 640, 1792, 4, 10, 512, tied=False),
    packages=("*",),
    max_characters=400_000_000,
    slots=4,
    steps=4590,
    training=CORE.training
    | {"warmup_steps": 100, "learning_rate": 8e-3, "outer_learning_rate": 0.9, "outer_momentum": 0.5},
    curve=(0.8, 10 / 11),
    device="cuda",
)
"""30.8 million parameters, 4 slots of 16,384 tokens, 301 million tokens, for one GPU.

Its kept runs precede the trials of AdamW's rate. Dense runs state an outer step, which they do not have.
"""
QUICK = replace(
    CORE,
    name="quick",
    model=_llama(512, 16, 32, 1, 2, 16),
    packages=(),
    max_characters=400_000,
    slots=2,
    steps=180,
    training=CORE.training | {"batch_size": 2, "warmup_steps": 2, "precision": "float32"},
)
SIZES = {size.name: size for size in (CORE, HALF, PROXY, GPU, QUICK)}

_PARTS = "parts"
"""Setting of a method here, not of a specification: slots in place of one, which share its batch."""


def specification(method: Method, size: Size, seed: int, steps: int | None = None) -> TrainingSpec:
    """Return the specification of ``method``; ``steps`` is for a dense run of another length."""
    shared: Settings = size.training | {"seed": seed} | method.settings
    parts = shared.pop(_PARTS, 1)
    shared["batch_size"] //= parts
    if method.how == "dense":
        total = steps or size.steps
        # Units of a dense run hold one replica's rows in memory at once.
        shared |= {"rounds": 1, "inner_steps": total, "segment_steps": total, "micro_batch_size": shared["batch_size"]}
        shared["error_feedback_decay"] = 0.95  # without effect; kept runs state it
    else:
        shared |= {"rounds": size.steps // shared["inner_steps"]}
    document = {
        "model_config": size.model.to_dict(),
        "data_config": {"dataset": "x" * 46, "replicas": size.slots * parts},
        "training_config": shared,
    }
    return TrainingSpec.from_dict(document)


def fits(method: Method, size: Size) -> bool:
    """Return True if the method's rounds make up exactly the size's steps."""
    training = specification(method, size, 0).training
    return training.rounds * training.inner_steps == size.steps


def _diloco(steps: int, rate: float, momentum: float) -> Method:
    """Return DiLoCo with Muon inside (MuLoCo): all entries at 8 bits up, the whole model down."""
    outer = {"outer_learning_rate": rate, "outer_momentum": momentum}
    return Method("rounds", {"method": "diloco"} | outer | rounds_of(steps))


def _ours(steps: int, bits: int = 2, **others: float) -> Method:
    """Return all entries both ways, and the plain mean as outer step."""
    outer = {"outer_learning_rate": 1.0, "outer_momentum": 0.0}
    return Method("rounds", rounds_of(steps) | sparse(4096, bits) | outer | others)


def _sparseloco(steps: int, top_k: int) -> Method:
    """Return SparseLoCo with Muon inside. More entries than published suit few rounds."""
    return Method("all_gather", {"method": "sparseloco", "optimizer": "muon", "top_k": top_k} | rounds_of(steps))


def _dense(muon: float, adamw: float) -> Method:
    return Method("dense", {"optimizer": "muon", "muon_learning_rate": muon, "learning_rate": adamw})


DENSE = Method("dense", {"optimizer": "muon"})
OURS = Method("rounds", rounds_of(18) | {"warmup_steps": 10})
METHODS = {
    "dense": DENSE,
    "ours": OURS,
    "at_96x": _ours(10, 4),
    "at_48x": _ours(5, 4, error_feedback_decay=0.5),
    "diloco": _diloco(10, 1.0, 0.0),
    "diloco_240x": _diloco(54, 1.0, 0.0),
    "sparseloco": _sparseloco(10, 1024),
}
"""Methods with results; ``ours``, a job's defaults, has the ``realistic_`` rows."""
OWN, PEERS = ("ours", "at_96x", "at_48x"), ("diloco", "diloco_240x", "sparseloco")
_SPARSE = {"top_k": 512, "down_top_k": 512}
TUNING_SEED = 100
"""Of the first run of a trial; further ones count on."""
TRIALS: dict[str, Method] = {
    **{
        f"dense, Muon {muon}, AdamW {adamw}": _dense(muon, adamw)
        for muon, adamw in ((0.02, 8e-3), (0.04, 8e-3), (0.06, 8e-3), (0.04, 4e-3), (0.04, 16e-3))
    },
    "rounds of 15": _ours(15),
    "rounds of 15, averaged momentum": Method("shared_moments", _ours(15).settings),
    "rounds of 6 to 24": Method("growing", _ours(3).settings),
    "rounds of 15, overlapped": Method("overlapped", _ours(15).settings),
    "rounds of 15, overlapped by mixing": Method("mixed", _ours(15).settings),
    **{
        f"rounds of 15, {changed}, outer rate {rate}, momentum {momentum}": Method(
            how, _ours(15, outer_learning_rate=rate, outer_momentum=momentum, **others).settings
        )
        for changed, how, others in (
            ("512 entries", "rounds", _SPARSE),
            ("512 entries overlapped", "overlapped", _SPARSE),
            ("twice the slots", "rounds", {_PARTS: 2}),
        )
        for rate, momentum in ((0.9, 0.5), (1.0, 0.0))
    },
    **{f"rounds of 15, Muon {muon}": _ours(15, muon_learning_rate=muon) for muon in (0.02, 0.06)},
    **{
        f"rounds of 15, outer rate {rate}, momentum {momentum}": _ours(
            15, outer_learning_rate=rate, outer_momentum=momentum
        )
        for rate, momentum in ((0.9, 0.5), (1.0, 0.3), (0.7, 0.6))
    },
    "rounds of 15, 8 bits": _ours(15, 8),
    "rounds of 15, 1365 entries at 4 bits": _ours(15, 4, top_k=1365, down_top_k=1365),
    "rounds of 20": _ours(20),
    "rounds of 20, error feedback 0.5": _ours(20, error_feedback_decay=0.5),
    "rounds of 20, error feedback 0": _ours(20, error_feedback_decay=0.0),
    "rounds of 18": _ours(18),
    "rounds of 18, error feedback 0.5": _ours(18, error_feedback_decay=0.5),
    "rounds of 18, error feedback 0": _ours(18, error_feedback_decay=0.0),
    "rounds of 10": _ours(10),
    "rounds of 10, 4 bits": _ours(10, 4),
    "rounds of 5": _ours(5),
    "rounds of 5, 4 bits": _ours(5, 4),
    "rounds of 5, 4 bits, error feedback 0.5": _ours(5, 4, error_feedback_decay=0.5),
    "rounds of 30, 4 bits": _ours(30, 4),
    **{
        f"DiLoCo, rounds of {steps}, outer rate {rate}, momentum {momentum}": _diloco(steps, rate, momentum)
        for steps in (5, 10, 30, 54)
        for rate, momentum in ((1.0, 0.0), (0.7, 0.5), (0.9, 0.5), (0.7, 0.7))
    },
    **{f"SparseLoCo, {top_k} entries": _sparseloco(15, top_k) for top_k in (256, 512, 1024, 1536)},
    **{f"SparseLoCo, rounds of {steps}, 1024 entries": _sparseloco(steps, 1024) for steps in (10, 12)},
}
"""Settings tried with ``--tune``; ours send all entries at 2 bits unless stated."""
