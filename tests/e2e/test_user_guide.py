"""The user guide's job files, run as written on a devnet."""

import json
import re
from pathlib import Path

import pytest
from kit.engines.devnet import ROOT, Devnet

from zoo_compute.client import models
from zoo_compute.client.client import Client
from zoo_compute.client.job import require_model

WEIGHTS = {"pretrain": "model", "sft": "model", "lora": "adapter_model", "dpo": "adapter_model"}


@pytest.mark.timeout(1_200)
def test_guide_job_files_train_models(devnet: Devnet, tmp_path: Path) -> None:
    files = job_files((ROOT / "docs" / "user-guide.md").read_text())
    assert set(files) == set(WEIGHTS)
    write_data(tmp_path)
    info = devnet.up("--providers", "2", "--verifiers", "2")
    base = ""
    with Client(info["api_url"], private_key=info["accounts"]["user"]["private_key"]) as client:
        for name, weights in WEIGHTS.items():
            file = tmp_path / f"{name}.yaml"
            file.write_text(files[name].replace("base: CID", f"base: {base}"))
            job = client.train(config=file)
            require_model(job.wait(timeout=300))
            job.download(tmp_path / name)
            assert (tmp_path / name / f"{weights}.safetensors").stat().st_size > 0
            if not base:
                base, _ = models.push(client, models.check_folder(tmp_path / name))
            assert job.receipt()["slashes"] == []


def job_files(guide: str) -> dict[str, str]:
    """Return the guide's job files by the name in their first line."""
    return {name: text for text, name in re.findall(r"```yaml\n(# (\w+)\.yaml.*?)```", guide, re.DOTALL)}


def write_data(folder: Path) -> None:
    lines = [f"The {number} moons of planet {number % 7} are cold." for number in range(400)]
    (folder / "corpus.txt").write_text("\n".join(lines * 4))
    (folder / "heldout.txt").write_text("\n".join(lines[::10]))
    asked = [{"role": "user", "content": "How are the moons?"}]
    answers = [{"role": "assistant", "content": line} for line in lines]
    chats = [{"messages": [*asked, answer]} for answer in answers]
    other = [{"role": "assistant", "content": "No idea."}]
    preferred = [
        {"input": {"messages": asked}, "preferred_output": [answer], "non_preferred_output": other}
        for answer in answers
    ]
    for name, records in (("chats", chats), ("preferences", preferred)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
