"""Compilation of all compiled loops: ``python -m training_gym.warm_up``. No torch."""

import numpy as np

from training_gym.aggregate.aggregation import aggregate
from training_gym.aggregate.outer_step import catch_up
from training_gym.compress.payload_format import decode, encode
from training_gym.model.layout import initial_parameters
from training_gym.spec.architectures import read_model
from training_gym.spec.config import TrainingConfig, TrainingSpec


def compile_all() -> None:
    """Compile every loop by aggregating small payloads of each kind."""
    model = read_model(
        {
            "hidden_size": 16,  # makes the embedding a whole chunk
            "intermediate_size": 8,
            "num_hidden_layers": 1,
            "num_attention_heads": 1,
            "num_key_value_heads": 1,
            "head_dim": 8,
            "sequence_length": 8,
        }
    )
    for top_k, bits in ((960, 2), (4096, 2), (4096, 8)):
        training = TrainingConfig(top_k=top_k, value_bits=bits, down_top_k=top_k, down_value_bits=bits)
        spec = TrainingSpec(model, "unused", training)
        vector = np.linspace(-1, 1, spec.num_parameters(), dtype=np.float32) ** 3
        payloads = {
            slot: encode(spec, vector) for slot in range(5)
        }  # payloads of all entries in two levels are added in fours
        decode(spec, payloads[0]).dense()  # as a node decodes it
        state = None
        for _ in range(2):  # the second round has a last aggregate
            result = aggregate(spec, initial_parameters(spec), payloads, None, state)
            catch_up(spec, initial_parameters(spec), [result.update])
            state = result.outer_state


if __name__ == "__main__":
    compile_all()
