"""Training settings that model, start and number of replicas decide. No torch."""

from collections.abc import Mapping
from typing import Any

from training_gym.spec.architectures import ModelConfig
from training_gym.spec.methods import BASE_MUON_RATE, DPO_MUON_RATE, DPO_RATES, METHODS, STARTS, Start

LARGE_MODEL = 100_000_000
"""Parameters from which defaults suit slow links (``settings_by_size``, decision 16)."""
FEW_REPLICAS = 4
"""Most replicas that take the defaults of few (``settings_by_size``, decision 16)."""
OF_FEW = {"outer_learning_rate": 1.0, "outer_momentum": 0.0, "inner_steps": 18, "error_feedback_decay": 0.5}
"""The plain mean of shorter rounds, with half of the residual, which suits payloads of all entries only."""
ADAMW_RATE, ADAMW_RATE_WIDTH = 32e-3, 32
"""AdamW's default peak rate next to Muon, at any width.

Where AdamW also trains the hidden matrices, the rate suits models of this ``hidden_size``; wider ones need
proportionally less (Yang et al., 2022, Tensor Programs V; decision 16).
"""
ROUND_LENGTHS = ("inner_steps", "segment_steps")
_TOGETHER = (("outer_learning_rate", "outer_momentum"), ROUND_LENGTHS, ("error_feedback_decay", "top_k"))
"""Groups of settings that few replicas decide together or not at all."""


def settings_by_size(
    model: ModelConfig, given: Mapping[str, Any], replicas: int, start: Start = "random"
) -> dict[str, Any]:
    """Return the settings, not ``given``, that ``model``, ``start`` and ``replicas`` decide.

    A large model takes the settings of ``slow_links``. It does not if a method is named, gradients are averaged at
    every step, or error feedback is off, which would lose the unsent entries. The lengths of rounds and segments are
    decided together or not at all, so that segments divide their round. If AdamW trains all of a wide model, its rate
    is below the default (decision 16). A base model keeps what it knows only at low rates, with any optimiser or
    method. Few replicas take ``OF_FEW``, without groups of which a setting is named (``_TOGETHER``).
    """
    named = METHODS[given.get("method", "default")] | {**given}
    found = _adamw_rate(model, named) if start == "random" else _base_settings(start, named)
    if replicas <= FEW_REPLICAS and named.get("averaging") != "steps":
        decided = {name for group in _TOGETHER if named.keys().isdisjoint(group) for name in group}
        found = found | {name: value for name, value in OF_FEW.items() if name in decided}
    return {name: value for name, value in found.items() if name not in given} | _slow_links(model, given)


def _base_settings(start: Start, named: Mapping[str, Any]) -> dict[str, Any]:
    is_dpo = named.get("objective") == "dpo"
    found = STARTS[start] | ({"learning_rate": DPO_RATES[start]} if is_dpo else {})
    if named.get("optimizer") != "muon":
        return found
    return found | {"muon_learning_rate": DPO_MUON_RATE if is_dpo else BASE_MUON_RATE}


def _adamw_rate(model: ModelConfig, named: Mapping[str, Any]) -> dict[str, Any]:
    if named.get("optimizer") != "adamw" or "learning_rate" in named or model.hidden_size <= ADAMW_RATE_WIDTH:
        return {}
    return {"learning_rate": ADAMW_RATE * ADAMW_RATE_WIDTH / model.hidden_size}


def _slow_links(model: ModelConfig, given: Mapping[str, Any]) -> dict[str, Any]:
    if model.num_parameters() < LARGE_MODEL or "method" in given:
        return {}
    if given.get("averaging") == "steps" or given.get("error_feedback_decay") == 0:
        return {}
    excluded = set(ROUND_LENGTHS) if any(name in given for name in ROUND_LENGTHS) else set()
    return {name: value for name, value in METHODS["slow_links"].items() if name not in excluded | given.keys()}
