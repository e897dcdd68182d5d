"""Downloaded results load with ``from_pretrained``; jobs sample with their tokenizer."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from training_gym.data.dataset import DatasetManifest, Shard
from training_gym.data.text_tokenizer import train_bpe
from training_gym.model.folder import write_folder
from training_gym.model.layout import initial_parameters
from training_gym.model.network import Network
from training_gym.spec.config import TrainingSpec
from training_gym.spec.manifests import StoredFile
from training_gym.units.checkpoint import save_state
from zoo_compute.client import models
from zoo_compute.client.results import TrainedModel, write_result
from zoo_protocol.content.unixfs import cid_of_file
from zoo_protocol.hashing import sha256, to_hex

SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 300, "sequence_length": 16}
TOKENS = torch.arange(16).reshape(1, 16)


class Store:
    """Storage in memory, with the calls of a client."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def upload(self, content: bytes) -> str:
        cid = cid_of_file(content)
        self.files[cid] = content
        return cid

    def stored(self, content: bytes) -> StoredFile:
        return StoredFile(self.upload(content), len(content), to_hex(sha256(content)))

    def fetch(self, cid: str, *, max_bytes: int) -> bytes:
        assert len(self.files[cid]) <= max_bytes
        return self.files[cid]

    def download(self, cid: str, path: Path, *, max_bytes: int = 1 << 30) -> int:
        return path.write_bytes(self.fetch(cid, max_bytes=max_bytes))


@pytest.fixture(name="store")
def memory_store() -> Any:
    return Store()


def dataset_of(store: Store) -> str:
    shard = Shard(store.upload(b"text"), 2, to_hex(sha256(b"text")))
    tokenizer = store.stored(train_bpe(iter(["The lion eats meat."]), 300))
    manifest = DatasetManifest((shard,), (shard,), 300, "uint16", tokenizer, "our zoo", "CC-BY-4.0")
    return store.upload(manifest.to_bytes())


def trained_of(store: Store, document: dict[str, Any]) -> tuple[TrainedModel, dict[str, Any]]:
    spec = TrainingSpec.from_dict(document | {"data_config": {"dataset": dataset_of(store)}})
    parameters = initial_parameters(spec)
    for values in parameters.values():
        values += np.float32(0.01)  # B of a fresh adapter is 0, so that it has no effect
    return TrainedModel("0x" + "ab" * 32, store.upload(save_state(parameters)), spec), parameters


def theirs(model: Any) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model.eval()(TOKENS).logits
    return found


def ours(network: Network) -> torch.Tensor:
    with torch.no_grad():
        return network.eval().logits(network.hidden(TOKENS))


def test_result_folder_loads_with_equal_logits(store: Any, tmp_path: Path) -> None:
    trained, parameters = trained_of(store, {"model_config": SIZES})
    write_result(store, trained, tmp_path / "model")
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype=torch.float32)
    assert torch.equal(theirs(loaded), ours(Network(trained.spec, parameters, "cpu")))
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    assert tokenizer.decode(tokenizer("The lion").input_ids) == "The lion"
    turns = [{"role": "user", "content": "The lion?"}]
    shown = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    assert shown.endswith("<|im_start|>assistant\n")
    card = (tmp_path / "model" / "README.md").read_text()
    for text in ("CC-BY-4.0", "our zoo", trained.spec.dataset, trained.spec.spec_hash(), trained.cid):
        assert text in card


def test_adapter_folder_loads_on_its_base(store: Any, tmp_path: Path) -> None:
    plain = TrainingSpec.from_dict({"model_config": SIZES, "data_config": {"dataset": dataset_of(store)}})
    frozen = initial_parameters(plain)
    write_folder(plain.model, frozen, tmp_path / "base")
    checked = models.check_folder(tmp_path / "base")
    weights = store.stored(checked.files["model.safetensors"].read_bytes())
    base = store.upload(models.ModelManifest(checked.config, {"model.safetensors": weights}).to_bytes())
    document = {"model_config": SIZES | {"base": base}, "adapter_config": {"r": 2}}
    trained, parameters = trained_of(store, document)
    write_result(store, trained, tmp_path / "adapter")
    from peft import AutoPeftModelForCausalLM

    loaded = AutoPeftModelForCausalLM.from_pretrained(tmp_path / "adapter", dtype=torch.float32)
    read = models.load_base(store, trained.spec)
    network = Network(trained.spec, parameters, "cpu", {name: torch.from_numpy(one) for name, one in read.items()})
    assert torch.equal(theirs(loaded), ours(network))
    assert not torch.equal(theirs(loaded), ours(Network(plain, frozen, "cpu")))
