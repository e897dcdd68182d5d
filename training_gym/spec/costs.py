"""Operations, size and memory of a unit, before it runs. No torch.

The closed forms restate what the network does. Tests compare them with counted operations and measured memory.
"""

import math

from training_gym.spec.config import TrainingSpec

_FLOAT = 4
MAX_LOGITS = 1 << 24
"""Logits in memory at once (64 MB in float32): a large vocabulary's loss is computed in parts."""
GPU_ROOM_BYTES = 10**9
"""Memory of each GPU that no unit gets: for driver, kernels, workspaces of cuBLAS and NCCL, and Muon's batches.

One H200 needed 0.72 GB without the batches (decision 26); other GPUs were not measured.
"""
HEAP_BYTES = 1 << 24
"""Freed memory that a process's allocator keeps: one run in twelve of a small model held more than the other parts."""
_LOGIT_COPIES = 4
"""Logits, their logarithms, and the gradients of both."""
_STEP_COPIES, _CODEC_COPIES = 5, 3
"""Temporary copies: of the largest tensor in an optimiser's step, of all parameters when a payload is encoded."""
_GATED_HIDDEN, _GPT2_HIDDEN = 4, 5
"""Values of ``intermediate_size`` that a layer keeps: of a gated product, of an approximated GELU."""


def flops_per_unit(spec: TrainingSpec) -> int:
    """Return the floating-point operations of one unit's matrix products.

    Two per weight and token forward, and four backward, of which a frozen weight needs two. Attention counts full
    (unmasked) score matrices. Muon adds five iterations of three products per step and hidden matrix. Checkpointing
    repeats the layers' forward pass, DPO adds that of its reference. Rows count at full length.
    """
    training, model = spec.training, spec.model
    forward = model.flops_per_token()
    adapter = 0 if spec.adapter is None else 2 * spec.num_parameters()
    frozen = 2 * _product_weights(spec) if spec.adapter else 0
    step = 3 * (forward + adapter) - frozen
    if training.activation_checkpointing:
        step += forward + adapter - 2 * model.hidden_size * (model.vocab_size + _unrepeated(spec))
    step += forward if training.objective == "dpo" else 0  # the reference
    tokens = training.inner_steps * training.batch_size * rows_per_sample(spec) * model.sequence_length
    muon = 0
    if training.optimizer == "muon":
        sides = [sorted(one.shape) for one in spec.trained_tensors() if one.role == "matrix"]
        muon = training.inner_steps * 5 * 2 * sum((2 * long + short) * short**2 for short, long in sides)
    return step * tokens + muon + spec.validation_samples * flops_per_evaluation(spec)


def flops_per_evaluation(spec: TrainingSpec) -> int:
    """Return the floating-point operations of one evaluated sample, in DPO by both models."""
    forward = spec.model.flops_per_token() + (0 if spec.adapter is None else 2 * spec.num_parameters())
    forward += spec.model.flops_per_token() if spec.training.objective == "dpo" else 0
    return forward * rows_per_sample(spec) * spec.model.sequence_length


def fitting_count(shards: int, available: int) -> int:
    """Return the largest power of two of processes within both numbers."""
    return 1 << (min(shards, available).bit_length() - 1)


def gpus_in_use(spec: TrainingSpec, gpus: int) -> int:
    """Return how many of a node's GPUs train one unit."""
    return fitting_count(spec.training.gradient_shards, gpus)


def unit_weight_us(spec: TrainingSpec, gpus: int, flops_per_gpu: int) -> int:
    """Return the size of one unit in GPU-microseconds at the reference speed, rounded up.

    A node sells all its GPUs together, so idle ones count. A unit's duration is its weight divided by ``gpus``.

    Args:
        gpus: of the tier's node.
        flops_per_gpu: reference speed in the job's precision, in FLOP/s.
    """
    return -(-flops_per_unit(spec) * 10**6 * gpus // (flops_per_gpu * gpus_in_use(spec, gpus)))


def rows_per_sample(spec: TrainingSpec) -> int:
    """Return the rows of a sample: both answers of a preference."""
    return 2 if spec.training.objective == "dpo" else 1


def targets_per_sample(spec: TrainingSpec) -> int:
    """Return the most targets of a sample; a preference counts as one."""
    return 1 if spec.training.objective == "dpo" else spec.model.sequence_length


def samples_at_once(spec: TrainingSpec) -> int:
    """Return the samples of a micro-batch."""
    part = spec.training.batch_size // spec.training.gradient_shards
    return min(spec.training.micro_batch_size or part, part)


def _unrepeated(spec: TrainingSpec) -> int:
    """Return inputs of the layers' last products, not repeated unless a norm needs the result."""
    ends = spec.model.architecture != "gemma2" and spec.adapter is None
    return spec.model.num_hidden_layers * spec.model.intermediate_size if ends else 0


def _product_weights(spec: TrainingSpec) -> int:
    """Return the weights of the model's matrix products, the head's included."""
    model = spec.model
    tied = model.vocab_size * model.hidden_size if model.tie_word_embeddings else 0
    return tied + sum(math.prod(one.shape) for one in model.tensors() if one.role in ("matrix", "head"))


def unit_memory_bytes(spec: TrainingSpec) -> int:
    """Return the peak bytes that a unit's training holds, without the process's libraries.

    It adds parameters, gradients, moments and error feedback to a base model and the activations of one micro-batch
    at full length. A device with its own memory holds less of it.
    """
    return _state_bytes(spec) + _base_bytes(spec) + _activation_bytes(spec) + HEAP_BYTES


def usable_gpu_bytes(total: int) -> int:
    """Return the bytes of a GPU's memory that a unit can use."""
    return max(0, total - GPU_ROOM_BYTES)


def _state_bytes(spec: TrainingSpec) -> int:
    trained = spec.num_parameters()
    muon = spec.training.optimizer == "muon"
    moments = 2 * trained - sum(math.prod(one.shape) for one in spec.trained_tensors() if muon and one.role == "matrix")
    held = 2 * trained + moments  # parameters and error feedback; the checkpoint and boundary states stay in files
    if spec.training.round_delay:
        held += trained  # the unit starts from a checkpoint that its own payload has changed
    sums = trained * (spec.training.gradient_shards.bit_length() - 1)  # one for each level of the tree
    steps = trained + sums + _STEP_COPIES * max(math.prod(one.shape) for one in spec.trained_tensors())
    casts = 2 * trained if spec.training.precision == "bfloat16" else 0
    return max(_FLOAT * (held + steps) + casts, _FLOAT * (held + _CODEC_COPIES * trained))


def _base_bytes(spec: TrainingSpec) -> int:
    if not spec.reads_base:
        return 0
    narrow = sum(math.prod(one.shape) for one in spec.model.tensors() if one.role in ("matrix", "head"))
    return _product_bytes(spec) * narrow + _FLOAT * (spec.model.num_parameters() - narrow)


def _product_bytes(spec: TrainingSpec) -> int:
    """Return the bytes of one value in a matrix product."""
    return 2 if spec.training.precision == "bfloat16" else _FLOAT


def _activation_bytes(spec: TrainingSpec) -> int:
    """Return the bytes kept of one micro-batch for its backward pass, and the most in passing."""
    model, training = spec.model, spec.training
    tokens = samples_at_once(spec) * rows_per_sample(spec) * model.sequence_length
    layer, inputs = tokens * token_bytes(spec), tokens * model.hidden_size * _FLOAT
    passing = 3 * tokens * max(model.intermediate_size, model.hidden_size) * _FLOAT
    logits = _LOGIT_COPIES * min(tokens * model.vocab_size, max(MAX_LOGITS, model.vocab_size)) * _FLOAT
    if training.activation_checkpointing:
        return inputs * model.num_hidden_layers + max(layer + passing, logits)
    return layer * model.num_hidden_layers + max(passing, logits)


def token_bytes(spec: TrainingSpec) -> int:
    """Return the bytes that one layer keeps of one token for its backward pass.

    Norms and softmax stay float32 in either precision. Soft-capped scores, which no fused kernel computes, are kept.
    """
    model, width = spec.model, _product_bytes(spec)
    heads, gpt2, gemma2 = model.num_attention_heads, model.architecture == "gpt2", model.architecture == "gemma2"
    queries = model.hidden_size if gpt2 else heads * model.head_dim
    keys = queries if gpt2 else model.num_key_value_heads * model.head_dim
    gains = not gpt2 and spec.adapter is None  # their gradients need the normed values
    norms = model.hidden_size * ((4 if gemma2 else 2) * _FLOAT * (2 if gains else 1) + 2 * width)
    attention = 2 * _FLOAT * (queries + keys) * (2 if model.architecture == "qwen3" else 1)
    if gemma2:
        attention += 2 * _FLOAT * heads * model.sequence_length + 2 * width * (queries - keys)
    hidden = (_GPT2_HIDDEN if gpt2 else _GATED_HIDDEN) * model.intermediate_size * width
    return norms + attention + hidden + _FLOAT * (heads + 4) + _adapter_bytes(spec)


def _adapter_bytes(spec: TrainingSpec) -> int:
    """Return an adapter's bytes of one token in one layer: narrow results, dropped inputs."""
    if spec.adapter is None:
        return 0
    shapes = [one.shape for one in spec.trained_tensors() if one.name.endswith(".lora_A.weight")]
    dropped = (_FLOAT + _product_bytes(spec)) * sum(inputs for _, inputs in shapes) if spec.adapter.lora_dropout else 0
    return (_FLOAT * sum(rank for rank, _ in shapes) + dropped) // spec.model.num_hidden_layers
