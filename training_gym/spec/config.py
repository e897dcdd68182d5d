"""Specification of a training job. No torch: the market validates with it.

A specification is untrusted, so every field has a type and bounds, and unknown keys are refused. The bounds suit one
device: no valid specification can exhaust the machine that validates, stores or replays it.
"""

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from training_gym.spec.adapters import AdapterConfig, adapter_tensors, read_adapter
from training_gym.spec.architectures import ModelConfig, Tensor, read_model
from training_gym.spec.defaults import ADAMW_RATE, settings_by_size
from training_gym.spec.errors import SpecError
from training_gym.spec.methods import METHODS, Start
from training_gym.spec.setting_fields import (
    choice_field,
    cid,
    number_field,
    optional_cid,
    read_settings,
    section,
    share,
    whole_number,
)
from zoo_protocol.hashing import canonical_json, keccak, to_hex

CHUNK = 4096
"""Elements per compression chunk, of which ``top_k`` are sent. An index fits in 12 bits."""
MAX_PARAMETERS = 1 << 33
"""Trained parameters; a market may allow fewer (``ZOO_MAX_PARAMETERS``)."""
MAX_BASE_PARAMETERS = 20_000_000_000
MAX_TOKENS_PER_STEP = 1 << 20
MAX_SEGMENTS, MAX_START_ROUND = 64, 1 << 24
MAX_ROUNDS, MAX_REPLICAS, MAX_EVALUATED, MAX_BATCH_SIZE = 10_000, 4096, 4096, 4096


@dataclass(frozen=True, slots=True)
class TrainingConfig:
    """Settings of units and of aggregation; decision 16 has the reasons of the defaults.

    Attributes:
        objective: ``causal_lm`` reads text, ``sft`` chats, ``dpo`` preferences (``data/dataset.py``).
        dpo_beta: weight of the distance to the base model in the loss of ``dpo``.
        rounds: outer rounds of the job.
        inner_steps: optimiser steps of one unit; 18 by default with few replicas.
        segment_steps: steps between two committed states; divides ``inner_steps``. A verifier replays one segment.
        batch_size: sequences per inner step.
        gradient_shards: equal parts of a batch, whose gradients are added along one tree (``ordered_sum.py``). As many
            processes can train a unit together.
        micro_batch_size: sequences in memory at once; 0 takes a whole part of the batch.
        precision: type of matrix products; ``bfloat16`` is autocast. Parameters, states and payloads stay float32.
        activation_checkpointing: keep only each layer's input for the backward pass, which computes the rest again.
        optimizer: optimiser of the inner steps. ``muon`` trains hidden matrices with Muon and the rest with AdamW.
        learning_rate: peak rate of AdamW; its default with ``adamw`` falls with the width (``settings_by_size``).
        muon_learning_rate: peak rate of Muon; used by ``muon`` only.
        final_rate_share: share of the peak rates at the end of a linear decay over the job; 1 disables the decay.
        warmup_steps: steps of linear warm-up, counted by the steps that a replica's moments have seen.
        weight_decay: decoupled decay of matrices (norm gains are not decayed).
        gradient_clip: largest global gradient norm of an inner step.
        top_k: entries sent per 4096 parameters.
        value_bits: bits per sent entry, sign included.
        error_feedback_decay: share of the residual that is kept for the next round; 0.5 by default with few replicas.
        outer_learning_rate: factor on the aggregated pseudo-gradient; 1 by default with few replicas.
        outer_momentum: momentum of the outer Nesterov step; 0 disables it, the default with few replicas.
        down_top_k: entries per 4096 parameters of the update that nodes fetch; with 0 they fetch the whole model.
        down_value_bits: bits per entry of that update, sign included.
        round_delay: 1 lets a replica start its next unit before the previous aggregation (``early_start.py``), so that
            transfers overlap with compute; 0 makes it wait.
        averaging: ``rounds`` aggregates units, ``steps`` averages gradients at every inner step
            (``parallel_steps.py``; the market refuses it).
        powersgd_rank: rank of the factors that compress averaged gradients; 0 sends whole gradients. The first two
            steps of each segment are always whole.
        seed: root of the initial weights and of the data order.
    """

    objective: str = choice_field("causal_lm", "causal_lm", "sft", "dpo")
    dpo_beta: float = number_field(0.1, 1e-3, 10.0)
    rounds: int = number_field(8, 1, MAX_ROUNDS)
    inner_steps: int = number_field(20, 1, 10_000)
    segment_steps: int = number_field(2, 1, 10_000)
    batch_size: int = number_field(16, 1, MAX_BATCH_SIZE)
    gradient_shards: int = choice_field(1, 1, 2, 4, 8)
    micro_batch_size: int = number_field(0, 0, 4096)
    precision: str = choice_field("float32", "float32", "bfloat16")
    activation_checkpointing: bool = choice_field(False, False, True)
    optimizer: str = choice_field("muon", "adamw", "muon")
    learning_rate: float = number_field(ADAMW_RATE, 1e-7, 1.0)
    muon_learning_rate: float = number_field(0.04, 1e-7, 1.0)
    final_rate_share: float = number_field(0.0, 0.0, 1.0)
    warmup_steps: int = number_field(10, 0, 10_000)
    weight_decay: float = number_field(0.05, 0.0, 1.0)
    gradient_clip: float = number_field(1.0, 1e-3, 1e3)
    top_k: int = number_field(CHUNK, 1, CHUNK)
    value_bits: int = choice_field(2, 2, 4, 8)
    error_feedback_decay: float = number_field(0.95, 0.0, 1.0)
    outer_learning_rate: float = number_field(0.9, 1e-3, 2.0)
    outer_momentum: float = number_field(0.5, 0.0, 0.99)
    down_top_k: int = number_field(CHUNK, 0, CHUNK)
    down_value_bits: int = choice_field(2, 2, 4, 8)
    round_delay: int = choice_field(0, 0, 1)
    averaging: str = choice_field("rounds", "rounds", "steps")
    powersgd_rank: int = number_field(0, 0, 64)
    seed: int = number_field(0, 0, 2**53 - 1)


_NO_START = {"start_model": None, "start_checkpoint": None, "start_round": 0, "start_rate_share": 1.0}
_OPTIONAL_DATA = _NO_START | {"validation_samples": 0}
"""Settings of ``data_config`` with their defaults, which a document leaves out."""
_OF_AGGREGATION = ("top_k", "value_bits", "down_top_k", "down_value_bits", "outer_learning_rate", "outer_momentum")
_WITHOUT_EFFECT: tuple[tuple[str, Any, tuple[str, ...], str], ...] = (
    ("averaging", "rounds", ("powersgd_rank",), "averaging 'steps'"),
    ("averaging", "steps", (*_OF_AGGREGATION, "round_delay", "gradient_shards"), "averaging 'rounds'"),
    ("optimizer", "adamw", ("muon_learning_rate",), "optimizer 'muon'"),
    ("down_top_k", 0, ("down_value_bits",), "a down_top_k above 0"),
    ("objective", "causal_lm", ("dpo_beta",), "objective 'dpo'"),
    ("objective", "sft", ("dpo_beta",), "objective 'dpo'"),
)
"""(setting, its value, settings without effect then, requirement of these)."""


@dataclass(frozen=True, slots=True)
class TrainingSpec:
    """Model, data and training of one job.

    Attributes:
        dataset: CID of a dataset manifest (``data/dataset.py``).
        start_model: CID of initial parameters; None: the base's or random. Next to ``start_checkpoint``: order only.
        start_checkpoint: CID of the checkpoint that the job continues, with its parameters and outer state.
        start_round: rounds before that checkpoint, by this job's replicas; the order of data goes on after them.
        start_rate_share: share of the peak rates at the start of their decay, after the warm-up.
        base: CID of the manifest of a base model's files (``model/folder.py``); its configuration is ``model``.
        adapter: settings of the adapter that is trained on the frozen base; None trains all parameters.
        replicas: units of a round, which read disjoint samples.
        validation_samples: samples on which each unit evaluates its checkpoint; 0: none.
    """

    model: ModelConfig
    dataset: str
    training: TrainingConfig
    start_model: str | None = None
    start_checkpoint: str | None = None
    start_round: int = 0
    start_rate_share: float = 1.0
    base: str | None = None
    adapter: AdapterConfig | None = None
    replicas: int = 1
    validation_samples: int = 0

    @classmethod
    def from_dict(cls, document: Mapping[str, Any], nodes: int | None = None) -> "TrainingSpec":
        """Parse a ``document`` of model, adapter, data and training settings.

        A missing setting takes its default; the dataset has none. ``training_config.method`` selects a set of defaults
        (``METHODS``) and is not stored: the specification holds the settings. The model's size and the number of
        replicas decide some defaults (:func:`settings_by_size`). ``nodes`` of a job are its replicas.

        Raises:
            SpecError: unknown or missing key, wrong type, value out of range, or inconsistent settings.
        """
        document = section(document, "spec", ["model_config", "adapter_config", "data_config", "training_config"])
        data = section(document.get("data_config"), "data_config", ["dataset", "replicas", *_OPTIONAL_DATA])
        named = document.get("model_config", {})
        base = named.get("base") if isinstance(named, Mapping) else None
        model = read_model({key: named[key] for key in named if key != "base"} if base is not None else named)
        adapter = document.get("adapter_config")
        kind = None if adapter is None else read_adapter(adapter, model)
        start: Start = "adapter" if kind else "random" if base is None else "base"
        replicas = _replicas(data.get("replicas", nodes or 1), nodes)
        training = _completed(document.get("training_config", {}), model, start, replicas)
        spec = cls(
            model=model,
            dataset=cid(data.get("dataset"), "data_config.dataset", "a dataset manifest"),
            training=read_settings(TrainingConfig, training, "training_config"),
            start_model=optional_cid(data.get("start_model"), "data_config.start_model", "a checkpoint's model"),
            start_checkpoint=optional_cid(data.get("start_checkpoint"), "data_config.start_checkpoint", "a checkpoint"),
            start_round=whole_number(data.get("start_round", 0), "data_config.start_round", MAX_START_ROUND),
            start_rate_share=share(data.get("start_rate_share", 1.0), "data_config.start_rate_share"),
            base=optional_cid(base, "model_config.base", "a base model's manifest"),
            adapter=kind,
            replicas=replicas,
            validation_samples=whole_number(
                data.get(key := "validation_samples", 0), f"data_config.{key}", MAX_EVALUATED
            ),
        )
        _check_together(spec)
        return spec

    def to_dict(self) -> dict[str, Any]:
        """Return the canonical document with every setting (inverse: ``from_dict``)."""
        document = {
            "model_config": self.model.to_dict() | ({} if self.base is None else {"base": self.base}),
            "data_config": {"dataset": self.dataset, "replicas": self.replicas}
            | {name: value for name, usual in _OPTIONAL_DATA.items() if (value := getattr(self, name)) != usual},
            "training_config": {name: getattr(self.training, name) for name in TrainingConfig.__slots__},
        }
        return document if self.adapter is None else document | {"adapter_config": self.adapter.to_dict()}

    def to_json(self) -> bytes:
        """Return the canonical JSON of :meth:`to_dict`."""
        return canonical_json(self.to_dict())

    def spec_hash(self, json: bytes | None = None) -> str:
        """Return the Keccak-256 of the canonical JSON, 0x hex; ``json`` saves building it."""
        return to_hex(keccak(self.to_json() if json is None else json))

    @property
    def segments(self) -> int:
        """Segments of one unit; its trace has one leaf more."""
        return self.training.inner_steps // self.training.segment_steps

    @property
    def reads_base(self) -> bool:
        """Return whether units need the base's tensors: under an adapter, or as DPO's reference."""
        return self.adapter is not None or self.training.objective == "dpo"

    def trained_tensors(self) -> tuple[Tensor, ...]:
        """Return the tensors that the job trains, sorted by name; a frozen base has none."""
        return _trained_tensors(self.model, self.adapter)

    def num_parameters(self) -> int:
        """Return the number of trained parameters."""
        return sum(math.prod(tensor.shape) for tensor in self.trained_tensors())


@functools.lru_cache(maxsize=64)
def _trained_tensors(model: ModelConfig, adapter: AdapterConfig | None) -> tuple[Tensor, ...]:
    return tuple(model.tensors() if adapter is None else sorted(adapter_tensors(model, adapter)))


def _replicas(value: object, nodes: int | None) -> int:
    if type(value) is not int or not 1 <= value <= MAX_REPLICAS or nodes not in (None, value):
        detail = f"is {value!r:.80}; give the job's number of nodes, {nodes or f'1 to {MAX_REPLICAS}'}, or omit it"
        raise SpecError("out_of_range", "data_config.replicas", detail)
    return value


def _completed(document: object, model: ModelConfig, start: Start, replicas: int) -> object:
    """Return the training section with all settings of its method, size and ``replicas``."""
    if not isinstance(document, Mapping):
        return document
    method = document.get("method", "default")
    if not isinstance(method, str) or method not in METHODS:
        listed = ", ".join(repr(name) for name in METHODS)
        raise SpecError("unsupported_value", "training_config.method", f"is {method!r:.80}; choose one of {listed}")
    given = {key: value for key, value in document.items() if key != "method"}
    named = METHODS[method] | given
    _check_effects(given, named)
    return _shortest_warmup(named) | settings_by_size(model, document, replicas, start) | named


def _check_effects(given: Mapping[str, Any], named: Mapping[str, Any]) -> None:
    """Refuse a ``given`` setting without effect under the ``named`` settings."""
    # A method may name settings without effect. So may a document that has every setting, since it is the output of
    # :meth:`TrainingSpec.to_dict`.
    defaults = {setting.name: setting.default for setting in fields(TrainingConfig)}
    if given.keys() >= defaults.keys():
        return
    for deciding, value, idle, needed in _WITHOUT_EFFECT:
        if named.get(deciding, defaults[deciding]) != value:
            continue
        for name in idle:
            if name in given and given[name] != defaults[name]:
                detail = f"has no effect if {deciding} is {value!r}; remove it, or choose {needed}"
                raise SpecError("unused_setting", f"training_config.{name}", detail)


def _shortest_warmup(named: Mapping[str, Any]) -> dict[str, int]:
    rounds, steps = (named.get(name, getattr(TrainingConfig(), name)) for name in ("rounds", "inner_steps"))
    if type(rounds) is not int or type(steps) is not int:  # `read_settings` refuses it
        return {}
    return {"warmup_steps": max(0, min(TrainingConfig().warmup_steps, rounds * steps))}


def _min_segment(inner_steps: int) -> int:
    """Return the least steps that divide a unit into at most ``MAX_SEGMENTS`` segments."""
    least = -(-inner_steps // MAX_SEGMENTS)
    return next(steps for steps in range(least, inner_steps + 1) if inner_steps % steps == 0)


def _check_together(spec: TrainingSpec) -> None:
    model, training = spec.model, spec.training
    steps, tokens = training.rounds * training.inner_steps, training.batch_size * model.sequence_length
    divisor = f"choose a divisor of {training.inner_steps}, {_min_segment(training.inner_steps)} at least"
    rules = (
        (
            spec.start_model is None or spec.start_checkpoint is None or spec.start_round > 0,
            ("unsupported_value", "data_config.start_model"),
            "is given with start_checkpoint, which has a model; remove one of them",
        ),
        (
            spec.start_checkpoint is not None or (spec.start_round, spec.start_rate_share) == (0, 1.0),
            ("unused_setting", "data_config.start_round"),
            "continues a checkpoint, as does start_rate_share; give start_checkpoint, or remove both",
        ),
        (
            spec.base is not None or not spec.reads_base,
            ("missing_key", "model_config.base"),
            "is missing; an adapter or the objective 'dpo' needs the CID of a base model's manifest",
        ),
        (
            training.objective == "causal_lm" or training.averaging == "rounds",
            ("unsupported_value", "training_config.averaging"),
            f"must be 'rounds' for the objective {training.objective!r}, whose samples have unequal numbers of targets",
        ),
        (
            spec.adapter is None or training.optimizer == "adamw",
            ("unsupported_value", "training_config.optimizer"),
            "must be 'adamw' for an adapter",
        ),
        (
            training.inner_steps % training.segment_steps == 0,
            ("not_divisible", "training_config.segment_steps"),
            f"is {training.segment_steps} and must divide inner_steps, {training.inner_steps}; {divisor}",
        ),
        (
            spec.segments <= MAX_SEGMENTS,
            ("out_of_range", "training_config.segment_steps"),
            f"makes {spec.segments} segments per unit, beyond {MAX_SEGMENTS}; {divisor}",
        ),
        (
            training.gradient_shards == 1 or training.averaging == "rounds",
            ("unsupported_value", "training_config.gradient_shards"),
            f"is {training.gradient_shards}; expected 1 for averaging 'steps', whose replicas are its parts",
        ),
        (
            training.batch_size % training.gradient_shards == 0,
            ("not_divisible", "training_config.gradient_shards"),
            f"is {training.gradient_shards} and must divide batch_size, {training.batch_size}; change one of them",
        ),
        (
            training.warmup_steps <= steps,
            ("out_of_range", "training_config.warmup_steps"),
            f"is {training.warmup_steps}, beyond the job's {steps} steps; choose less",
        ),
        (
            spec.num_parameters() <= MAX_PARAMETERS,
            ("out_of_range", "model_config.hidden_size"),
            f"makes {spec.num_parameters()} parameters, beyond {MAX_PARAMETERS}; lower hidden_size or layers",
        ),
        (
            tokens <= MAX_TOKENS_PER_STEP,
            ("out_of_range", "training_config.batch_size"),
            f"times sequence_length is {tokens} tokens per step, beyond {MAX_TOKENS_PER_STEP}; lower one of them",
        ),
    )
    for holds, code_and_field, message in rules:
        if not holds:
            raise SpecError(*code_and_field, message)
