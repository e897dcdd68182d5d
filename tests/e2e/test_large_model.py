"""A model with states above one upload, from order to settlement at default settings."""

from pathlib import Path

import httpx
from kit.engines.devnet import Devnet
from kit.waiting import wait_until

from training_gym.spec.architectures import read_model
from zoo_compute.base.amounts import ZEN
from zoo_compute.client.client import Client
from zoo_compute.client.datasets import Request
from zoo_compute.client.jobspec import JobSpec

MODEL = {"hidden_size": 512, "num_hidden_layers": 2, "num_attention_heads": 8, "sequence_length": 16}
VOCABULARY = 259  # every byte and the ends, so that almost all values are the layers'
TRAINING = {
    "optimizer": "adamw",  # 12 bytes a parameter
    "rounds": 2,
    "inner_steps": 2,
    "segment_steps": 1,
    "batch_size": 1,
    "warmup_steps": 1,
}
TEXT = b"".join(b"line %d of a text that a model can learn\n" % number for number in range(300))


def test_multi_part_model_is_trained_verified_and_published(devnet: Devnet, tmp_path: Path) -> None:
    info = devnet.up("--providers", "2", "--verifiers", "2")
    with Client(info["api_url"], private_key=info["accounts"]["user"]["private_key"]) as client:
        limit = client.connection.get("/v1/network")["max_blob_bytes"]
        assert limit == 64 * 1024 * 1024
        assert limit < 12 * read_model({**MODEL, "vocab_size": VOCABULARY}).num_parameters()
        text = tmp_path / "lines.txt"
        text.write_bytes(TEXT)
        spec = JobSpec(
            dataset=Request([str(text)], f"bpe:{VOCABULARY}", [str(text)]),
            budget_max=ZEN,
            max_price=3 * ZEN,
            nodes=2,
            model=MODEL,
            training=TRAINING,
            checkpoint={"interval": 1, "redundancy": 2},
        )
        job = client.submit(spec)
        final = job.wait(timeout=600)
        assert (final.status, final.reason) == ("settled", "completed")
        units = job.units()
        assert [(unit["round"], unit["slot"], unit["status"]) for unit in units] == [
            (round_, slot, "verified") for round_ in range(2) for slot in range(2)
        ]
        receipt = job.receipt()
        assert receipt["slashes"] == []
        checkpoint = next(one for one in job.checkpoints() if one.round == 1)
        states = httpx.get(f"{info['ipfs_url']}/ipfs/{checkpoint.cid}").json()["slot_states"]
        assert set(states) == {"0", "1"}
        for cid in states.values():  # they arrive in the background
            assert int(_when_there(f"{info['ipfs_url']}/ipfs/{cid}").headers["content-length"]) > limit


def _when_there(url: str) -> httpx.Response:
    return wait_until(lambda: answer if (answer := httpx.head(url)).status_code == 200 else None, url, seconds=180)
