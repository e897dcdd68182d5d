"""Layers of the library's models, compiled for a GPU."""

import importlib

import torch

from training_gym.spec.architectures import ARCHITECTURES, ModelConfig


def compile_layers(model: ModelConfig) -> None:
    """Compile the layers of all networks of this architecture in this process.

    Units do not: their bits would depend on the compiler's choices. Losses differ by rounding only, in less time.
    """
    name = model.architecture
    modeling = importlib.import_module(f"transformers.models.{name}.modeling_{name}")
    layer = getattr(modeling, ARCHITECTURES[name].class_name.replace("ForCausalLM", "DecoderLayer"))
    layer.forward = torch.compile(layer.forward, dynamic=False)
