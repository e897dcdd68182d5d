"""LoRA adapters (Hu et al., 2021) on a frozen base model. No torch.

Names of settings and tensors are those of ``peft``. A trained adapter's model file is ``adapter_model.safetensors``.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from training_gym.spec.architectures import ModelConfig, Tensor
from training_gym.spec.errors import SpecError
from training_gym.spec.setting_fields import number_field, read_settings

PREFIX = "base_model.model."


@dataclass(frozen=True, slots=True)
class AdapterConfig:
    """Low-rank matrices next to a model's matrices.

    Attributes:
        r: rank.
        lora_alpha: the product of both matrices is added times ``lora_alpha / r``.
        lora_dropout: share of the inputs that a training step drops.
        target_modules: last parts of the names of the adapted layers, sorted; empty adapts every matrix.
    """

    r: int = number_field(16, 1, 1024)
    lora_alpha: float = number_field(32.0, 1e-3, 1e5)
    lora_dropout: float = number_field(0.0, 0.0, 0.9)
    target_modules: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return all settings (inverse: :func:`read_adapter`)."""
        numbers = {"r": self.r, "lora_alpha": self.lora_alpha, "lora_dropout": self.lora_dropout}
        return numbers | {"target_modules": list(self.target_modules)}

    def adapts(self, tensor: Tensor) -> bool:
        """Return True if this tensor of the base model gets an adapter."""
        layer = tensor.name.removesuffix(".weight").rpartition(".")[2]
        return tensor.role == "matrix" and (not self.target_modules or layer in self.target_modules)


def read_adapter(document: object, model: ModelConfig, path: str = "adapter_config") -> AdapterConfig:
    """Return the settings in an untrusted ``document``, with all target modules named.

    Raises:
        SpecError: unknown key, wrong type, value out of range, or a target that the model lacks.
    """
    layers = sorted({one.name.split(".")[-2] for one in model.tensors() if one.role == "matrix"})
    given = dict(document) if isinstance(document, dict) else document
    targets: object = given.pop("target_modules", []) if isinstance(given, dict) else []
    settings = read_settings(AdapterConfig, given, path)
    if not isinstance(targets, list) or not all(isinstance(name, str) for name in targets):
        raise SpecError("wrong_type", f"{path}.target_modules", "must be a list of layer names")
    unknown = sorted(set(targets) - set(layers))
    if unknown:
        detail = f"names {unknown[0]!r:.80}; this model has {', '.join(layers)}"
        raise SpecError("unsupported_value", f"{path}.target_modules", detail)
    chosen = tuple(sorted(set(targets))) or tuple(layers)
    return AdapterConfig(settings.r, settings.lora_alpha, settings.lora_dropout, chosen)


def adapter_tensors(model: ModelConfig, adapter: AdapterConfig) -> Iterator[Tensor]:
    """Yield the adapter's parameters; B starts at 0, so that the start equals the base model."""
    for base in model.tensors():
        if adapter.adapts(base):
            outputs, inputs = reversed(base.shape) if model.architecture == "gpt2" else base.shape
            name = PREFIX + base.name.removesuffix(".weight")
            yield Tensor(f"{name}.lora_A.weight", (adapter.r, inputs), "adapter", inputs**-0.5)
            yield Tensor(f"{name}.lora_B.weight", (outputs, adapter.r), "adapter", 0.0)
