"""Fine-tuning by ``trl`` on rows and a model of ours: losses at the start, then the time of training.

``python benchmarks/peers/trl_peer.py JOB``, in the peer's environment. JOB is a JSON file: ``folder`` of the model,
``objective`` (``sft`` or ``dpo``), ``rows`` of tokens and loss masks in the order of training (of ``dpo`` in pairs),
``batch_size``, ``steps``, ``learning_rate`` and ``beta``. Prints one JSON object: ``losses`` of each batch before
training, and the ``seconds`` that the steps took.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, TrainerCallback
from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer


class Clock(TrainerCallback):
    """Time between the first step's start and the last one's end."""

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        """Start."""
        self.started = time.perf_counter()

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """Stop."""
        self.seconds = time.perf_counter() - self.started


class TokenisedDPOTrainer(DPOTrainer):
    """Trainer of pairs that have their tokens already."""

    def _prepare_dataset(self, dataset: Any, *_: Any, **__: Any) -> Any:
        return dataset


def trainer_of(job: dict[str, Any]) -> Any:
    """Return the library's trainer with its own defaults, except those that both sides share."""
    shared = {
        "output_dir": job["folder"],
        "per_device_train_batch_size": job["batch_size"],
        "max_steps": job["steps"],
        "learning_rate": job["learning_rate"],
        "train_sampling_strategy": "sequential",
        "adam_beta2": 0.95,
        "weight_decay": 0.01,
        "max_length": None,
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "logging_strategy": "no",
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
    }
    vocabulary = Tokenizer(models.WordLevel({"<pad>": 0, "<end>": 1}, unk_token="<pad>"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=vocabulary, pad_token="<pad>", eos_token="<end>")
    model = AutoModelForCausalLM.from_pretrained(job["folder"], dtype=torch.float32)
    rows = job["rows"]
    if job["objective"] == "sft":
        labels = [
            [token if target else -100 for token, target in zip(tokens, mask, strict=True)] for tokens, mask in rows
        ]
        data = Dataset.from_dict({"input_ids": [tokens for tokens, _ in rows], "labels": labels})
        return SFTTrainer(model, SFTConfig(**shared), train_dataset=data, processing_class=tokenizer)
    reference = AutoModelForCausalLM.from_pretrained(job["reference"], dtype=torch.float32)
    parts: dict[str, list[list[int]]] = {"prompt_ids": [], "chosen_ids": [], "rejected_ids": []}
    for (preferred, mask), (other, _) in zip(rows[0::2], rows[1::2], strict=True):
        prompt = mask.index(1)
        for name, tokens in zip(parts, (preferred[:prompt], preferred[prompt:], other[prompt:]), strict=True):
            parts[name].append(tokens)
    settings = DPOConfig(beta=job["beta"], disable_dropout=False, **shared)
    return TokenisedDPOTrainer(
        model, reference, args=settings, train_dataset=Dataset.from_dict(parts), processing_class=tokenizer
    )


def main() -> None:
    """Compute the losses, train, and print both."""
    torch.set_num_threads(1)
    trainer, clock = trainer_of(json.loads(Path(sys.argv[1]).read_text())), Clock()
    trainer.add_callback(clock)
    losses = []
    with torch.no_grad():
        for batch in trainer.get_train_dataloader():
            losses.append(float(trainer.compute_loss(trainer.model, trainer._prepare_inputs(batch))))
    trainer.train()
    print(json.dumps({"losses": losses, "seconds": clock.seconds}))


if __name__ == "__main__":
    main()
