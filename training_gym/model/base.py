"""Base models of jobs: settings from a manifest, and what a manifest must have. No torch.

Market, client and node call the same functions, so that what is priced, signed and trained is one specification.
"""

import math
from collections.abc import Mapping
from typing import Any

from training_gym.model.folder import MAX_HEADER_BYTES, ModelManifest
from training_gym.spec.architectures import GPT2_NAMES, ModelConfig
from training_gym.spec.config import MAX_BASE_PARAMETERS
from training_gym.spec.errors import ManifestError, SpecError
from training_gym.spec.setting_fields import section

_WIDEST, _NARROWEST = 4, 2
"""Bytes of a stored value: float32, and bfloat16 or float16."""


def completed_settings(given: Mapping[str, Any], manifest: ModelManifest) -> dict[str, Any]:
    """Return a job's ``model_config`` with every setting of its base model.

    Args:
        given: untrusted ``model_config``: ``base``, and settings that equal the base model's. ``sequence_length`` is
            the job's own; its default is that of :meth:`ModelManifest.default_model`.
        manifest: manifest that ``base`` names.

    Raises:
        SpecError: unknown setting, a setting that contradicts the base model, or a class that is not on our list.
    """
    known = manifest.default_model().to_dict()
    known["sequence_length"] = given.get("sequence_length", known["sequence_length"])
    for key, value in section(given, "model_config", ["base", *known, *GPT2_NAMES]).items():
        expected = given["base"] if key == "base" else known.get(GPT2_NAMES.get(key, key), value)
        if value != expected:
            detail = f"is {value!r:.80}; the base model has {expected!r:.80}. Remove it, or choose another base"
            raise SpecError("contradicts_base", f"model_config.{key}", detail)
    return {**known, "base": given["base"]}


def check_base(manifest: ModelManifest, model: ModelConfig, max_parameters: int = MAX_BASE_PARAMETERS) -> None:
    """Refuse a base model whose files cannot be those of ``model``, before one of them is read.

    Args:
        manifest: manifest of the base model.
        model: the job's model; its sequence length is free.
        max_parameters: largest number of parameters.

    Raises:
        ManifestError: another configuration, too many parameters, no safetensors file, or sizes that do not fit.
        SpecError: the configuration is not supported.
    """
    weights, parameters = manifest.weights(), model.num_parameters()
    if manifest.model(model.sequence_length) != model:
        raise ManifestError("contradicts_base", "manifest.config", "differs from model_config; omit all but base")
    if parameters > max_parameters:
        detail = f"makes {parameters} parameters; at most {max_parameters} are served here. Choose a smaller base"
        raise ManifestError("too_large", "manifest.config", detail)
    size, smallest = sum(manifest.files[name].size for name in weights), _NARROWEST * parameters
    largest = _WIDEST * (parameters + _constants(model)) + MAX_HEADER_BYTES
    if not smallest <= size <= largest:
        detail = (
            f"has weights of {size} bytes; the {parameters} parameters of its configuration take {smallest} to "
            f"{largest} bytes in BF16, F16 or F32. Push the whole folder again"
        )
        raise ManifestError("wrong_size", "manifest.files", detail)


def _constants(model: ModelConfig) -> int:
    """Return the most values in files that are not parameters: ties, masks, frequencies."""
    tied = model.vocab_size * model.hidden_size if model.tie_word_embeddings else 0
    each = model.max_position_embeddings**2 + 1 if model.architecture == "gpt2" else model.head_dim
    return tied + math.prod((model.num_hidden_layers, each))
