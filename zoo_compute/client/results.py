"""Trained models as folders that ``from_pretrained`` loads, and their tokenizers. No torch."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from training_gym.data.dataset import DatasetManifest
from training_gym.model.library import config_json
from training_gym.spec.config import TrainingSpec
from zoo_compute.base.errors import ConfigError
from zoo_compute.client import datasets, models

if TYPE_CHECKING:
    from training_gym.data.text_tokenizer import TextTokenizer
    from zoo_compute.client.client import Client

BASE_FOLDER = "base"
"""Folder of an adapter's base model in the adapter's folder."""


@dataclass(frozen=True, slots=True)
class TrainedModel:
    """A job's result: CID of the trained tensors, and the specification that made it.

    Attributes:
        name: id of the job, for the model card.
    """

    name: str
    cid: str
    spec: TrainingSpec

    @property
    def weights_file(self) -> str:
        """Name of the file of trained tensors."""
        return "model.safetensors" if self.spec.adapter is None else "adapter_model.safetensors"


def write_result(client: "Client", trained: TrainedModel, folder: Path) -> int:
    """Write a trained model, its tokenizer and a model card; return the tensors' bytes.

    An adapter's folder contains its base model.

    Raises:
        ConfigError: the folder is not writable.
        Mismatch, Unreachable: as for :meth:`zoo_compute.Client.fetch`.
    """
    dataset = datasets.read_manifest(client, trained.spec.dataset)
    texts = {"README.md": _card(trained, dataset).encode()} | _tokenizer_files(client, trained.spec, dataset)
    if trained.spec.adapter is None:
        texts["config.json"] = _json(_config(client, trained.spec))
    else:
        texts["adapter_config.json"] = _json(_adapter_config(trained.spec, folder / BASE_FOLDER))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in texts.items():
            (folder / name).write_bytes(content)
    except OSError as error:
        remedy = "Give a folder with enough space."
        raise ConfigError("file-unwritable", f"{folder}: {error.strerror}", remedy=remedy) from error
    if trained.spec.adapter is not None and trained.spec.base is not None:
        models.pull(client, trained.spec.base, folder / BASE_FOLDER)
    return client.download(trained.cid, folder / trained.weights_file)


def load_tokenizer(client: "Client", dataset: DatasetManifest) -> "TextTokenizer | None":
    """Return a dataset's tokenizer; None if its tokens are bytes.

    Raises:
        ConfigError: the file is not a tokenizer.
        Mismatch, Unreachable: as for :meth:`zoo_compute.Client.fetch`.
    """
    from training_gym.data.text_tokenizer import TextTokenizer

    if dataset.tokenizer is None:
        return None
    with models.input_errors():
        return TextTokenizer(client.fetch(dataset.tokenizer.cid, max_bytes=dataset.tokenizer.size))


def _tokenizer_files(client: "Client", spec: TrainingSpec, dataset: DatasetManifest) -> dict[str, bytes]:
    """Return the base model's tokenizer files if the dataset uses them, else the dataset's."""
    if dataset.tokenizer is None:
        return {}
    if spec.base is not None:
        files = models.read_manifest(client, spec.base).files
        if "tokenizer.json" in files and files["tokenizer.json"].cid == dataset.tokenizer.cid:
            return models.tokenizer_files(client, spec.base)
    tokenizer = load_tokenizer(client, dataset)
    assert tokenizer is not None  # the dataset has one
    return {"tokenizer.json": tokenizer.json, "tokenizer_config.json": _json(tokenizer.config)}


def _config(client: "Client", spec: TrainingSpec) -> dict[str, Any]:
    return config_json(spec.model) if spec.base is None else models.read_manifest(client, spec.base).config


def _adapter_config(spec: TrainingSpec, base: Path) -> dict[str, Any]:
    """Return ``adapter_config.json`` of ``peft``, which names the folder of the base model."""
    assert spec.adapter is not None
    fixed = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "bias": "none", "inference_mode": True}
    names = {"base_model_name_or_path": str(base.resolve()), "fan_in_fan_out": spec.model.architecture == "gpt2"}
    return fixed | names | spec.adapter.to_dict()


def _card(trained: TrainedModel, dataset: DatasetManifest) -> str:
    """Return the model card: the data's licence, and the hashes that decide the result."""
    spec = trained.spec
    head = {"library_name": "transformers" if spec.adapter is None else "peft", "pipeline_tag": "text-generation"}
    head |= {"license": "other", "license_name": dataset.licence} if dataset.licence else {}
    facts = {
        "job": trained.name,
        "specification": spec.spec_hash(),
        "trained tensors": trained.cid,
        "base model": spec.base,
        "data": spec.dataset,
        "source of the data": dataset.source,
        "licence of the data": dataset.licence,
    }
    lines = [f"{name}: {json.dumps(value)}" for name, value in head.items()]
    rows = [f"- {name}: {' '.join(value.split())}" for name, value in facts.items() if value]
    return "\n".join(["---", *lines, "---", "", "# Model trained on Zoo Compute", "", *rows, ""])


def _json(document: dict[str, Any]) -> bytes:
    return json.dumps(document, indent=2).encode()
