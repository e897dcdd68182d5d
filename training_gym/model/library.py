"""``config.json`` of ``transformers`` from our settings, and back. No torch."""

from collections.abc import Mapping
from typing import Any

from training_gym.spec.architectures import ARCHITECTURES, ModelConfig, read_model
from training_gym.spec.errors import SpecError

_OFF_AT_ZERO = ("sliding_window", "attn_logit_softcapping", "final_logit_softcapping")
"""Settings that are null there when we have 0."""
_FIXED: Mapping[str, Mapping[str, Any]] = {
    "llama": {"hidden_act": "silu"},
    "qwen2": {"hidden_act": "silu", "use_sliding_window": False},
    "qwen3": {"hidden_act": "silu", "use_sliding_window": False},
    "mistral": {"hidden_act": "silu"},
    "gemma2": {"hidden_activation": "gelu_pytorch_tanh"},
    "gpt2": {"activation_function": "gelu_new", "scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False}
    | {"reorder_and_upcast_attn": False, "add_cross_attention": False},
}
"""Settings of a class that have one value here; another one is refused."""
_FIXED_IN_ALL: Mapping[str, Any] = {"use_bidirectional_attention": False, "is_encoder_decoder": False}
_LAYER_TYPES = {"gemma2": ("sliding_attention", "full_attention")}
"""Kinds of attention by layer, in turns; in other classes all layers have one kind."""
_DROPOUT = ("attention_dropout", "resid_pdrop", "embd_pdrop", "attn_pdrop")
"""Training without dropout is what the models' authors do; a replay needs no generator then."""
_ATTENTION = (None, "eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention")
"""Backends of the library itself; another name is a repository whose code it would load."""
_WITHOUT_EFFECT = (
    *("_name_or_path", "architectures", "attn_implementation", "bos_token_id", "cache_implementation"),
    "chunk_size_lm_head",
    *("dtype", "eos_token_id", "hidden_act", "id2label", "initializer_range", "label2id", "model_type", "pad_token_id"),
    *("pretraining_tp", "task_specific_params", "torch_dtype", "transformers_version", "use_cache"),
    "max_window_layers",
    *("layer_types", "summary_activation", "summary_first_dropout", "summary_proj_to_labels", "summary_type"),
    *("summary_use_proj", "n_ctx", "gradient_checkpointing", "output_attentions", "return_dict"),
    *("output_hidden_states", "problem_type", "unsloth_version", "_attn_implementation"),
)
"""Keys that change neither shapes nor what a training step computes, beyond those above."""


def library_config(model: ModelConfig) -> dict[str, Any]:
    """Return the arguments of the class's configuration in ``transformers``."""
    found = model.to_dict()
    del found["architecture"], found["sequence_length"]
    found |= {name: found[name] or None for name in _OFF_AT_ZERO if name in found}
    if model.architecture == "gpt2":  # its class reads this setting by the older name only
        found["n_inner"] = found.pop("intermediate_size")
    return found | dict(_FIXED[model.architecture]) | dict.fromkeys(_DROPOUT, 0.0) | {"use_cache": False}


def config_json(model: ModelConfig) -> dict[str, Any]:
    """Return ``config.json`` without the tokenizer's ids."""
    named = library_config(model) | {"model_type": model.architecture, "dtype": "float32", "use_cache": True}
    return named | {"architectures": [ARCHITECTURES[model.architecture].class_name]}


def read_config_json(document: object, sequence_length: int, path: str = "config.json") -> ModelConfig:
    """Return our settings for a base model's untrusted ``config.json``.

    Raises:
        SpecError: a class that is not on our list, its own code, an unknown key, or a value out of range.
    """
    if not isinstance(document, Mapping):
        raise SpecError("wrong_type", path, "must be a JSON object")
    name = document.get("model_type")
    if not isinstance(name, str) or name not in ARCHITECTURES:
        listed = ", ".join(ARCHITECTURES)
        raise SpecError("unsupported_value", f"{path}.model_type", f"is {name!r:.80}; choose a model of {listed}")
    for key in ("auto_map", "quantization_config"):
        if document.get(key):
            raise SpecError("unsupported_value", f"{path}.{key}", "is refused; only the library's own classes run")
    for key in ("attn_implementation", "_attn_implementation"):
        if document.get(key) not in _ATTENTION:
            detail = f"is {document[key]!r:.80}; remove it. Code from other repositories does not run"
            raise SpecError("unsupported_value", f"{path}.{key}", detail)
    kinds = _LAYER_TYPES.get(name, ("full_attention",))
    layers = document.get("layer_types") or []
    if not isinstance(layers, list) or layers != [kinds[place % len(kinds)] for place in range(len(layers))]:
        detail = f"is {layers!r:.80}; {name} runs here with {' and '.join(kinds)} in turns"
        raise SpecError("unsupported_value", f"{path}.layer_types", detail)
    fixed = {**_FIXED[name], **_FIXED_IN_ALL}
    for key, value in fixed.items():
        if document.get(key, value) not in (value, None):
            raise SpecError("unsupported_value", f"{path}.{key}", f"is {document[key]!r:.80}; only {value!r} runs here")
    given = {
        key: value
        for key, value in document.items()
        if key not in fixed and key not in _WITHOUT_EFFECT and key not in _DROPOUT and value is not None
    }
    given |= {name_: 0 for name_ in _OFF_AT_ZERO if name_ in document and document[name_] is None}
    if name in ("qwen2", "qwen3"):
        given.pop("sliding_window", None)
    if "rope_theta" in given or "rope_scaling" in given:
        given["rope_parameters"] = _rope_parameters(given, path)
    return read_model(given | {"architecture": name, "sequence_length": sequence_length}, path)


def _rope_parameters(given: dict[str, Any], path: str) -> Mapping[str, Any]:
    """Take the older settings of positions out of ``given``; return the newer ones."""
    theta, scaling = given.pop("rope_theta", None), given.pop("rope_scaling", {})
    if not isinstance(scaling, Mapping):
        raise SpecError("wrong_type", f"{path}.rope_scaling", f"must be an object, got {scaling!r:.80}")
    older = {"rope_type": scaling["type"]} if "type" in scaling and "rope_type" not in scaling else {}
    scaling = older | {key: value for key, value in scaling.items() if key != "type"}
    newer = given.get("rope_parameters", {})
    if not isinstance(newer, Mapping):
        raise SpecError("wrong_type", f"{path}.rope_parameters", f"must be an object, got {newer!r:.80}")
    if newer and scaling and {key: value for key, value in newer.items() if key != "rope_theta"} != scaling:
        raise SpecError("unsupported_value", f"{path}.rope_scaling", "contradicts rope_parameters; remove one of them")
    return ({} if theta is None else {"rope_theta": theta}) | scaling | dict(newer)
