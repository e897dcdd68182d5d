"""Published training methods as sets of settings. No torch."""

from typing import Any, Literal

METHODS: dict[str, dict[str, Any]] = {
    "default": {},
    "sparseloco": {
        "optimizer": "adamw",
        "inner_steps": 30,
        "segment_steps": 6,
        "top_k": 64,
        "value_bits": 2,
        "error_feedback_decay": 0.95,
        "outer_learning_rate": 1.0,
        "outer_momentum": 0.0,
        "down_top_k": 0,
    },
    "diloco": {
        "inner_steps": 500,
        "segment_steps": 10,
        "value_bits": 8,
        "error_feedback_decay": 0.0,
        "outer_learning_rate": 0.7,
        "outer_momentum": 0.9,
        "down_top_k": 0,
    },
    "slow_links": {
        "inner_steps": 30,
        "segment_steps": 6,
        "top_k": 64,
        "value_bits": 2,
        "error_feedback_decay": 0.95,
        "outer_learning_rate": 1.0,
        "outer_momentum": 0.0,
        "down_top_k": 64,
        "down_value_bits": 2,
        "round_delay": 1,
    },
    "ddp": {"averaging": "steps"},
    "powersgd": {"averaging": "steps", "powersgd_rank": 4, "segment_steps": 20},
}
"""Settings that ``training_config.method`` stands for; explicit settings take precedence.

A method changes only settings: trace, payload and checkpoint have one format. ``sparseloco`` (Sarfi et al., 2025) and
``diloco`` (Douillard et al., 2023, with eight bits and 500 steps a round) are as published, but ``diloco`` leaves the
inner optimiser open. ``slow_links`` suits large models between homes (``docs/planning.md``). Measurements chose the
defaults (decision 16).
"""

Start = Literal["random", "base", "adapter"]
"""What a job trains: fresh parameters, those of a base model, or an adapter on it."""
STARTS: dict[Start, dict[str, Any]] = {
    "base": {"optimizer": "adamw", "learning_rate": 2e-5, "weight_decay": 0.01},
    "adapter": {"optimizer": "adamw", "learning_rate": 2e-4, "weight_decay": 0.0},
}
DPO_RATES: dict[Start, float] = {"base": 1e-6, "adapter": 1e-5}
BASE_MUON_RATE, DPO_MUON_RATE = 2e-4, 1e-5
"""Ten times AdamW's: the steps of both change a matrix that is 2,500 wide equally."""
