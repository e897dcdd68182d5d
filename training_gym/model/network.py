"""The network of a job: a class of ``transformers``, with an adapter of ``peft`` if the job trains one.

Shape legend: B batch, T positions, D hidden_size, V vocab_size.
"""

import importlib
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from training_gym.model.folder import load_files
from training_gym.model.layout import Arrays
from training_gym.model.library import library_config
from training_gym.spec.adapters import PREFIX
from training_gym.spec.architectures import ARCHITECTURES, ModelConfig
from training_gym.spec.config import TrainingSpec
from training_gym.spec.costs import MAX_LOGITS

Base = Mapping[str, Tensor]
"""Tensors of a base model by name."""
_CONFIGS = {"gpt2": "GPT2Config", "gemma2": "Gemma2Config", "llama": "LlamaConfig", "mistral": "MistralConfig"}


class Network(nn.Module):
    """Decoder with the trained parameters of a job; the others are frozen."""

    def __init__(self, spec: TrainingSpec, parameters: Arrays, device: str, base: Base | None = None) -> None:
        """Build the network with a copy of ``parameters``.

        Args:
            spec: the job's specification.
            parameters: the trained parameters, by the names of ``layout.parameter_shapes``.
            device: device of all tensors.
            base: the frozen base model's tensors; needed with an adapter only.
        """
        super().__init__()
        self.model = empty_model(spec.model)
        given = {name: torch.tensor(array) for name, array in parameters.items()}
        if spec.adapter is None:
            _load(self.model, given)
        else:
            assert base is not None  # a unit of an adapter has its base
            _load(self.model, base)
            _inject(self.model, spec, given)
        self.model.to(device)
        if spec.training.activation_checkpointing:
            self.model.activation_checkpointing_enable()
        self._softcap = spec.model.final_logit_softcapping
        self._precision, self._device = spec.training.precision, torch.device(device).type

    def trained(self) -> dict[str, nn.Parameter]:
        """Return the trained parameters by the names of ``layout.parameter_shapes``."""
        return {_our_name(name): one for name, one in self.model.named_parameters() if one.requires_grad}

    def precision(self) -> AbstractContextManager[object]:
        """Return the context of matrix products in the specification's precision."""
        # An attack sets a context of its own, which an explicit float32 would undo.
        return torch.autocast(self._device, torch.bfloat16) if self._precision == "bfloat16" else nullcontext()

    def logits(self, hidden: Tensor) -> Tensor:
        """Return float32 logits [..., V] of hidden states [..., D]."""
        logits: Tensor = self.model.lm_head(hidden).float()
        return self._softcap * torch.tanh(logits / self._softcap) if self._softcap else logits

    def hidden(self, tokens: Tensor) -> Tensor:
        """Return the last layer's states [B, T, D] of tokens [B, T]."""
        return cast(Tensor, self.model.base_model(input_ids=tokens, use_cache=False).last_hidden_state)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the mean cross-entropy, in nats, of each token of [B, T + 1] given those before it."""
        with self.precision():
            return self._loss(tokens)

    def _loss(self, tokens: Tensor) -> Tensor:
        hidden, targets = self.hidden(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()
        rows = max(1, MAX_LOGITS // self.model.lm_head.out_features)
        if len(targets) <= rows:
            return F.cross_entropy(self.logits(hidden), targets)
        parts = zip(hidden.split(rows), targets.split(rows), strict=True)
        sums = [checkpoint(self._sum, part, target, use_reentrant=False) for part, target in parts]
        return cast(Tensor, torch.stack(sums).sum() / len(targets))

    def _sum(self, hidden: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(self.logits(hidden), targets, reduction="sum")


def base_of(model: ModelConfig, files: Mapping[str, Path], precision: str = "float32") -> Base:
    """Return a base model's tensors from its files by name; the last one stays in memory.

    With ``bfloat16`` the matrices have that type, to which autocast would round them in every step.

    Raises:
        StateError: see :func:`training_gym.model.folder.load_files`.
    """
    return _kept_base(model, tuple(sorted(files.items())), precision)


@lru_cache(maxsize=1)
def _kept_base(model: ModelConfig, files: tuple[tuple[str, Path], ...], precision: str) -> Base:
    narrow = {one.name for one in model.tensors() if one.role in ("matrix", "head") and precision == "bfloat16"}
    loaded = ((name, torch.from_numpy(values)) for name, values in load_files(model, dict(files)))
    return {name: tensor.to(torch.bfloat16) if name in narrow else tensor for name, tensor in loaded}


def empty_model(model: ModelConfig) -> Any:
    """Return the library's model with tensors that hold no values yet."""
    from transformers.initialization import no_init_weights

    architecture = ARCHITECTURES[model.architecture]
    modeling = importlib.import_module(f"transformers.models.{model.architecture}.modeling_{model.architecture}")
    kind = getattr(modeling, architecture.class_name)
    config = kind.config_class(**library_config(model))
    config._attn_implementation = "eager" if model.attn_logit_softcapping else "sdpa"
    with no_init_weights():
        return kind(config).train()


def _load(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    missing, unexpected = model.load_state_dict(tensors, strict=False, assign=True)
    cast(Any, model).tie_weights()
    differing = [*unexpected, *(name for name in missing if name != "lm_head.weight")]
    assert not differing, differing  # the tables of `architectures` are the class's


def _inject(model: nn.Module, spec: TrainingSpec, given: Mapping[str, Tensor]) -> None:
    from peft import LoraConfig, inject_adapter_in_model

    adapter = spec.adapter
    assert adapter is not None
    settings = LoraConfig(
        r=adapter.r,
        lora_alpha=adapter.lora_alpha,
        lora_dropout=adapter.lora_dropout,
        target_modules=list(adapter.target_modules),
        fan_in_fan_out=spec.model.architecture == "gpt2",
    )
    inject_adapter_in_model(settings, model)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(".lora_" in name)
            if parameter.requires_grad:
                parameter.data = given[_our_name(name)]  # float32 next to a base of any type


def _our_name(name: str) -> str:
    """Return the name in a checkpoint of a parameter of the network."""
    return PREFIX + name.replace(".default.weight", ".weight") if ".lora_" in name else name
