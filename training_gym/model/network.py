"""The network of a job: a class of ``transformers``, and perhaps an adapter of ``peft``.

Shape legend: R rows, T positions, D hidden_size, V vocab_size.
"""

import importlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from training_gym.data.samples import IGNORED, Batch
from training_gym.model.folder import load_files
from training_gym.model.layout import NamedArrays
from training_gym.model.library import library_config
from training_gym.spec.adapters import PREFIX
from training_gym.spec.architectures import ARCHITECTURES, ModelConfig
from training_gym.spec.config import TrainingSpec
from training_gym.spec.costs import MAX_LOGITS

Base = Mapping[str, Tensor]
"""Tensors of a base model by name."""


class Rows(NamedTuple):
    """A batch on a device; see :class:`training_gym.data.samples.Batch`."""

    inputs: Tensor
    targets: Tensor
    positions: Tensor | None
    terms: int

    def chunks(self, number: int) -> list["Rows"]:
        """Return the rows in ``number`` parts of equal length."""
        inputs, targets = self.inputs.chunk(number), self.targets.chunk(number)
        places = [None] * len(inputs) if self.positions is None else list(self.positions.chunk(number))
        counts = [int((part != IGNORED).sum()) for part in targets]
        return [Rows(*part) for part in zip(inputs, targets, places, counts, strict=True)]


def rows_on(device: str, batch: Batch) -> Rows:
    """Return a batch on a device."""
    positions = None if batch.positions is None else torch.from_numpy(batch.positions).to(device)
    inputs, targets = (torch.from_numpy(part).to(device) for part in (batch.inputs, batch.targets))
    return Rows(inputs, targets, positions, batch.count)


class Network(nn.Module):
    """Decoder with the trained parameters of a job; the others are frozen."""

    def __init__(self, spec: TrainingSpec, parameters: NamedArrays, device: str, base: Base | None = None) -> None:
        """Build the network with a copy of ``parameters``.

        Args:
            spec: the job's specification.
            parameters: the trained parameters, by the names of ``layout.parameter_shapes``.
            device: device of all tensors.
            base: the base model's tensors; needed if :attr:`TrainingSpec.reads_base`.
        """
        super().__init__()
        assert base is not None or not spec.reads_base  # a unit that reads a base has its files
        self.model = empty_model(spec.model)
        self._reference: Any = None
        given = {name: torch.tensor(array, device=device) for name, array in parameters.items()}  # the only copy
        if spec.adapter is not None:
            _load(self.model, base or {})
            _inject(self.model, spec, given)
        else:
            _load(self.model, given)
            if spec.reads_base:
                self._reference = empty_model(spec.model).eval().requires_grad_(False)
                _load(self._reference, base or {})
                self._reference.to(device)
        self.model.to(device)
        if spec.training.activation_checkpointing:
            self.model.activation_checkpointing_enable()
        self._softcap = spec.model.final_logit_softcapping
        self._precision, self._device = spec.training.precision, torch.device(device).type
        self._beta = spec.training.dpo_beta if spec.training.objective == "dpo" else None

    def trained(self) -> dict[str, nn.Parameter]:
        """Return the trained parameters by the names of ``layout.parameter_shapes``."""
        return {_our_name(name): one for name, one in self.model.named_parameters() if one.requires_grad}

    def precision(self) -> AbstractContextManager[object]:
        """Return the context of matrix products in the specification's precision."""
        # An attack sets a context of its own, which an explicit float32 would undo.
        return torch.autocast(self._device, torch.bfloat16) if self._precision == "bfloat16" else nullcontext()

    def logits(self, hidden: Tensor) -> Tensor:
        """Return float32 logits [..., V] of hidden states [..., D]."""
        return self._logits(self.model, hidden)

    def hidden(self, tokens: Tensor) -> Tensor:
        """Return the last layer's states [R, T, D] of tokens [R, T]."""
        return _hidden(self.model, tokens, None)

    def forward(self, rows: Rows, total: float) -> Tensor:
        """Return the sum of the objective's losses of ``rows``, in nats, divided by ``total``.

        The objective is the cross-entropy of each target, or of pairs of answers the loss of DPO (Rafailov et al.,
        2023). Parts of a batch whose ``total`` is the batch's count add up to its mean loss.
        """
        return self.losses(rows).sum() / total

    def losses(self, rows: Rows) -> Tensor:
        """Return the objective's losses in nats: of each target [R * T], or of pairs [R / 2]."""
        with self.precision():
            if self._beta is None:
                return self._cross_entropies(self.model, rows)
            reference = self._reference_log_probabilities(rows)  # first, as it switches the adapter off
            shift = self._log_probabilities(self.model, rows) - reference
            return -F.logsigmoid(self._beta * (shift[0::2] - shift[1::2]))

    def _log_probabilities(self, model: Any, rows: Rows) -> Tensor:
        """Return the logarithm of the probability of each row's targets [R]."""
        return -self._cross_entropies(model, rows).view(rows.targets.shape).sum(1)

    @torch.no_grad()
    def _reference_log_probabilities(self, rows: Rows) -> Tensor:
        if self._reference is not None:
            return self._log_probabilities(self._reference, rows)
        with _without_adapter(self.model):
            return self._log_probabilities(self.model, rows)

    def _cross_entropies(self, model: Any, rows: Rows) -> Tensor:
        """Return the cross-entropy of each target [R * T], 0 where there is none."""
        hidden, targets = _hidden(model, rows.inputs, rows.positions).flatten(0, 1), rows.targets.flatten()
        most = max(1, MAX_LOGITS // model.lm_head.out_features)
        if len(targets) <= most:
            return self._part(model, hidden, targets)
        parts = zip(torch.split(hidden, most), torch.split(targets, most), strict=True)
        return torch.cat([checkpoint(self._part, model, *part, use_reentrant=False) for part in parts])

    def _part(self, model: Any, hidden: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(self._logits(model, hidden), targets, ignore_index=IGNORED, reduction="none")

    def _logits(self, model: Any, hidden: Tensor) -> Tensor:
        logits: Tensor = model.lm_head(hidden).float()
        return self._softcap * torch.tanh(logits / self._softcap) if self._softcap else logits


def _hidden(model: Any, tokens: Tensor, positions: Tensor | None) -> Tensor:
    # Positions that begin again are borders, which the library's masks respect.
    found = model.base_model(input_ids=tokens, position_ids=positions, use_cache=False)
    return cast(Tensor, found.last_hidden_state)


@contextmanager
def _without_adapter(model: nn.Module) -> Iterator[None]:
    from peft.tuners.tuners_utils import BaseTunerLayer

    layers = [module for module in model.modules() if isinstance(module, BaseTunerLayer)]
    for layer in layers:
        layer.enable_adapters(False)
    try:
        yield
    finally:
        for layer in layers:
            layer.enable_adapters(True)


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
        lora_alpha=adapter.lora_alpha,  # type: ignore[arg-type]  # used as a factor only
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
