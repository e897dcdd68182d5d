"""Architectures that a job may train: their settings, tensors and operations. No torch.

Names of settings and tensors are those of ``transformers``. The tables restate what its classes build, so that a price
needs no torch; tests compare both on the meta device.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, NamedTuple

from training_gym.spec.errors import SpecError
from training_gym.spec.setting_fields import choice_field, number_field, read_settings, section

Role = Literal["matrix", "embedding", "positions", "head", "gain", "bias", "adapter"]
"""Use of a tensor: ``matrix`` connects hidden layers, ``adapter`` is a low-rank part of one."""
MAX_LENGTH = 1 << 20


class Tensor(NamedTuple):
    """One parameter of a model.

    Attributes:
        name: name in the class's ``state_dict``.
        shape: its shape; matrices are [outputs, inputs], those of ``gpt2`` [inputs, outputs].
        role: its use, which decides optimiser, rate and decay.
        start: standard deviation of a fresh matrix, or the value of a fresh vector.
    """

    name: str
    shape: tuple[int, ...]
    role: Role
    start: float


@dataclass(frozen=True, slots=True)
class RopeParameters:
    """Rotary positions; the settings after ``rope_theta`` serve the types that name them.

    Attributes:
        rope_type: ``default``, ``linear`` (``factor``), or ``llama3`` (all).
    """

    rope_type: str = choice_field("default", "default", "linear", "llama3")
    rope_theta: float = number_field(10_000.0, 1.0, 1e9)
    factor: float = number_field(1.0, 1.0, 1024.0)
    low_freq_factor: float = number_field(1.0, 1e-3, 1024.0)
    high_freq_factor: float = number_field(4.0, 1e-3, 1024.0)
    original_max_position_embeddings: int = number_field(0, 0, MAX_LENGTH)

    def to_dict(self) -> dict[str, Any]:
        """Return the settings that the type uses, as in ``config.json``."""
        names = ["rope_type", "rope_theta"]
        names += {"default": [], "linear": ["factor"]}.get(self.rope_type, [field.name for field in fields(self)[2:]])
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Settings of a decoder. An architecture has the settings that :data:`ARCHITECTURES` names.

    The others keep their defaults and enter no document. ``sliding_window`` and the soft caps are off at 0.

    Attributes:
        architecture: the model's class, ``model_type`` in ``config.json``.
        sequence_length: tokens of a training sequence. This name is ours, the others are the library's.
    """

    architecture: str = choice_field("llama", "llama", "qwen2", "qwen3", "mistral", "gemma2", "gpt2")
    sequence_length: int = number_field(64, 8, MAX_LENGTH)
    vocab_size: int = number_field(256, 2, 1 << 20)
    hidden_size: int = number_field(64, 8, 16_384)
    intermediate_size: int = number_field(176, 8, 1 << 17)
    num_hidden_layers: int = number_field(2, 1, 256)
    num_attention_heads: int = number_field(4, 1, 256)
    num_key_value_heads: int = number_field(4, 1, 256)
    head_dim: int = number_field(16, 2, 1024)
    max_position_embeddings: int = number_field(64, 8, MAX_LENGTH)
    tie_word_embeddings: bool = choice_field(False, False, True)
    rms_norm_eps: float = number_field(1e-6, 1e-12, 1e-2)
    layer_norm_epsilon: float = number_field(1e-5, 1e-12, 1e-2)
    attention_bias: bool = choice_field(False, False, True)
    mlp_bias: bool = choice_field(False, False, True)
    rope_parameters: RopeParameters = RopeParameters()
    sliding_window: int = number_field(0, 0, MAX_LENGTH)
    query_pre_attn_scalar: int = number_field(16, 1, 16_384)
    attn_logit_softcapping: float = number_field(0.0, 0.0, 1e4)
    final_logit_softcapping: float = number_field(0.0, 0.0, 1e4)

    def to_dict(self) -> dict[str, Any]:
        """Return the architecture's settings (inverse: :func:`read_model`)."""
        found = {name: getattr(self, name) for name in _settings_of(self.architecture)}
        if "rope_parameters" in found:
            found["rope_parameters"] = self.rope_parameters.to_dict()
        return found

    def tensors(self) -> list[Tensor]:
        """Return every parameter, sorted by name; tied embeddings count once."""
        return sorted(ARCHITECTURES[self.architecture].tensors(self))

    def num_parameters(self) -> int:
        """Return the number of parameters."""
        return sum(math.prod(tensor.shape) for tensor in self.tensors())

    def flops_per_token(self) -> int:
        """Return the forward operations of matrix products for one token.

        Two per weight and token. Attention counts full (unmasked) score matrices.
        """
        weights = sum(one.shape[0] * one.shape[1] for one in self.tensors() if one.role in ("matrix", "head"))
        if self.tie_word_embeddings:
            weights += self.vocab_size * self.hidden_size
        attention = 2 * self.num_hidden_layers * self.sequence_length * self.num_attention_heads * self.head_dim
        return 2 * (weights + attention)


class Architecture(NamedTuple):
    """One architecture.

    Attributes:
        class_name: class of ``transformers`` that trains it.
        settings: names of its settings beyond those of every architecture.
        defaults: its own defaults.
        tensors: its parameters, in any order.
    """

    class_name: str
    settings: tuple[str, ...]
    defaults: Mapping[str, Any]
    tensors: Callable[[ModelConfig], Iterator[Tensor]]


_COMMON = (
    *("architecture", "sequence_length", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers"),
    *("num_attention_heads", "max_position_embeddings", "tie_word_embeddings"),
)
_LLAMA = ("num_key_value_heads", "head_dim", "rms_norm_eps", "rope_parameters")


def _settings_of(architecture: str) -> tuple[str, ...]:
    return (*_COMMON, *ARCHITECTURES[architecture].settings)


def _matrix(name: str, outputs: int, inputs: int, layers: int = 0) -> Tensor:
    """Return a matrix that starts at 1/sqrt(inputs), or less if ``layers`` add up."""
    deviation = inputs**-0.5 / (2 * layers) ** 0.5 if layers else inputs**-0.5
    return Tensor(f"{name}.weight", (outputs, inputs), "matrix", deviation)


def _ends(model: ModelConfig, embedding: str) -> Iterator[Tensor]:
    """Yield embedding and head. A tied embedding starts as small as a head's rows must."""
    shape = (model.vocab_size, model.hidden_size)
    if model.tie_word_embeddings:
        yield Tensor(embedding, shape, "embedding", model.hidden_size**-0.5)
    else:
        yield Tensor(embedding, shape, "embedding", 1.0)
        yield Tensor("lm_head.weight", shape, "head", 0.1 * model.hidden_size**-0.5)


def _llama_like(
    model: ModelConfig,
    *,
    input_biases: bool = False,
    output_bias: bool = False,
    head_norms: bool = False,
    norms: tuple[str, ...] = ("input_layernorm", "post_attention_layernorm"),
    gain: float = 1.0,
) -> Iterator[Tensor]:
    """Yield the tensors of the classes that descend from Llama.

    Args:
        input_biases: biases of query, key and value.
        output_bias: bias of the attention's output.
        head_norms: norms of each head's query and key.
        norms: names of a layer's norms.
        gain: value at which norms start; Gemma adds one to its gains.
    """
    width, layers = model.hidden_size, model.num_hidden_layers
    heads, shared = model.num_attention_heads * model.head_dim, model.num_key_value_heads * model.head_dim
    yield from _ends(model, "model.embed_tokens.weight")
    yield Tensor("model.norm.weight", (width,), "gain", gain)
    for layer in range(layers):
        prefix = f"model.layers.{layer}"
        for norm in norms:
            yield Tensor(f"{prefix}.{norm}.weight", (width,), "gain", gain)
        for name, outputs in (("q_proj", heads), ("k_proj", shared), ("v_proj", shared)):
            yield _matrix(f"{prefix}.self_attn.{name}", outputs, width)
            if input_biases:
                yield Tensor(f"{prefix}.self_attn.{name}.bias", (outputs,), "bias", 0.0)
        yield _matrix(f"{prefix}.self_attn.o_proj", width, heads, layers)
        if output_bias:
            yield Tensor(f"{prefix}.self_attn.o_proj.bias", (width,), "bias", 0.0)
        if head_norms:
            for name in ("q_norm", "k_norm"):
                yield Tensor(f"{prefix}.self_attn.{name}.weight", (model.head_dim,), "gain", gain)
        for name in ("gate_proj", "up_proj"):
            yield _matrix(f"{prefix}.mlp.{name}", model.intermediate_size, width)
        yield _matrix(f"{prefix}.mlp.down_proj", width, model.intermediate_size, layers)
        if model.mlp_bias:
            for name, size in (("gate_proj", model.intermediate_size), ("up_proj", model.intermediate_size)):
                yield Tensor(f"{prefix}.mlp.{name}.bias", (size,), "bias", 0.0)
            yield Tensor(f"{prefix}.mlp.down_proj.bias", (width,), "bias", 0.0)


def _llama(model: ModelConfig) -> Iterator[Tensor]:
    return _llama_like(model, input_biases=model.attention_bias, output_bias=model.attention_bias)


def _qwen2(model: ModelConfig) -> Iterator[Tensor]:
    return _llama_like(model, input_biases=True)


def _qwen3(model: ModelConfig) -> Iterator[Tensor]:
    biases = model.attention_bias
    return _llama_like(model, input_biases=biases, output_bias=biases, head_norms=True)


def _gemma2(model: ModelConfig) -> Iterator[Tensor]:
    norms = (
        *("input_layernorm", "post_attention_layernorm"),
        *("pre_feedforward_layernorm", "post_feedforward_layernorm"),
    )
    biases = model.attention_bias
    return _llama_like(model, input_biases=biases, output_bias=biases, norms=norms, gain=0.0)


def _gpt2(model: ModelConfig) -> Iterator[Tensor]:
    width, inner, layers = model.hidden_size, model.intermediate_size, model.num_hidden_layers
    yield from _ends(model, "transformer.wte.weight")
    yield Tensor("transformer.wpe.weight", (model.max_position_embeddings, width), "positions", 0.02)
    norms = ["transformer.ln_f"]
    for layer in range(layers):
        prefix = f"transformer.h.{layer}"
        norms += [f"{prefix}.ln_1", f"{prefix}.ln_2"]
        for name, inputs, outputs, into in (
            ("attn.c_attn", width, 3 * width, 0),
            ("attn.c_proj", width, width, layers),
            ("mlp.c_fc", width, inner, 0),
            ("mlp.c_proj", inner, width, layers),
        ):
            start = _matrix("", outputs, inputs, into).start
            yield Tensor(f"{prefix}.{name}.weight", (inputs, outputs), "matrix", start)
            yield Tensor(f"{prefix}.{name}.bias", (outputs,), "bias", 0.0)
    for name in norms:
        yield Tensor(f"{name}.weight", (width,), "gain", 1.0)
        yield Tensor(f"{name}.bias", (width,), "bias", 0.0)


ARCHITECTURES: Mapping[str, Architecture] = {
    "llama": Architecture("LlamaForCausalLM", (*_LLAMA, "attention_bias", "mlp_bias"), {}, _llama),
    "qwen2": Architecture("Qwen2ForCausalLM", _LLAMA, {}, _qwen2),
    "qwen3": Architecture("Qwen3ForCausalLM", (*_LLAMA, "attention_bias"), {}, _qwen3),
    "mistral": Architecture("MistralForCausalLM", (*_LLAMA, "sliding_window"), {"rms_norm_eps": 1e-5}, _llama),
    "gemma2": Architecture(
        "Gemma2ForCausalLM",
        (
            *(*_LLAMA, "attention_bias", "sliding_window", "query_pre_attn_scalar"),
            *("attn_logit_softcapping", "final_logit_softcapping"),
        ),
        {
            **{"tie_word_embeddings": True, "sliding_window": 4096},
            **{"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
        },
        _gemma2,
    ),
    "gpt2": Architecture("GPT2LMHeadModel", ("layer_norm_epsilon",), {"tie_word_embeddings": True}, _gpt2),
}
GPT2_NAMES = {
    **{"n_embd": "hidden_size", "n_layer": "num_hidden_layers", "n_head": "num_attention_heads"},
    **{"n_positions": "max_position_embeddings", "n_inner": "intermediate_size"},
}
"""The library's own names for ``gpt2``; it reads both."""


def read_model(document: object, path: str = "model_config") -> ModelConfig:
    """Return the configuration in an untrusted ``document``, with defaults filled in.

    Settings that others imply follow from these: ``head_dim``, ``num_key_value_heads``, ``intermediate_size``,
    ``max_position_embeddings``, ``query_pre_attn_scalar``.

    Raises:
        SpecError: unknown key, wrong type, value out of range, or sizes that do not fit together.
    """
    given = section(document, path, [*(field.name for field in fields(ModelConfig)), *GPT2_NAMES])
    name = given.get("architecture", "llama")
    if not isinstance(name, str) or name not in ARCHITECTURES:
        listed = ", ".join(repr(one) for one in ARCHITECTURES)
        raise SpecError("unsupported_value", f"{path}.architecture", f"is {name!r:.80}; choose one of {listed}")
    if name == "gpt2":
        given = {GPT2_NAMES.get(key, key): value for key, value in given.items()}
    section(given, path, _settings_of(name))
    named = {**ARCHITECTURES[name].defaults, **given}
    model = read_settings(ModelConfig, {**_implied(named), **named}, path)
    _check_sizes(model, path)
    return model


def _implied(named: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings that follow from ``named`` ones; none of values that are not numbers."""
    sizes = {
        name: named.get(name, ModelConfig.__dataclass_fields__[name].default)
        for name in ("hidden_size", "num_attention_heads", "sequence_length")
    }
    if any(type(size) is not int or not 1 <= size <= MAX_LENGTH for size in sizes.values()):
        return {}  # `read_settings` refuses it
    width, heads, length = sizes.values()
    found = {"max_position_embeddings": length}
    if named.get("architecture") == "gpt2":
        return found | {"intermediate_size": 4 * width, "head_dim": max(2, width // heads)}
    head = named.get("head_dim", max(2, width // heads))
    gated = max(8, round(width * 8 / 3 / 16) * 16)  # as many weights as two matrices of four widths
    found |= {"intermediate_size": gated, "num_key_value_heads": heads, "head_dim": head}
    return found | ({"query_pre_attn_scalar": head} if named.get("architecture") == "gemma2" else {})


def _check_sizes(model: ModelConfig, path: str) -> None:
    heads, shared = model.num_attention_heads, model.num_key_value_heads
    rotary = model.architecture != "gpt2"
    rules = (
        (
            model.hidden_size % heads == 0 and (not rotary or model.head_dim % 2 == 0),
            ("not_divisible", "num_attention_heads"),
            f"must divide hidden_size {model.hidden_size} into heads of even size; is {heads}",
        ),
        (
            not rotary or heads % shared == 0,
            ("not_divisible", "num_key_value_heads"),
            f"is {shared} and must divide num_attention_heads, {heads}",
        ),
        (
            model.architecture != "qwen2" or model.head_dim * heads == model.hidden_size,
            ("unsupported_value", "head_dim"),
            f"is {model.head_dim}; this class has hidden_size / num_attention_heads = {model.hidden_size // heads}",
        ),
        (
            model.sequence_length <= model.max_position_embeddings,
            ("out_of_range", "sequence_length"),
            f"is {model.sequence_length}, beyond max_position_embeddings, {model.max_position_embeddings}",
        ),
    )
    for holds, (code, name), message in rules:
        if not holds:
            raise SpecError(code, f"{path}.{name}", message)
    for name in ("sliding_window", "attn_logit_softcapping"):
        if model.architecture == "gemma2" and not getattr(model, name):
            raise SpecError("unsupported_value", f"{path}.{name}", "is 0; this class needs one above 0")
