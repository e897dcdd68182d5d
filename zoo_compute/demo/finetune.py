"""``make demo JOB=finetune``: train a model, then teach it a chat format by a LoRA adapter.

The dishonest provider trains the first job, and makes up its units of the adapter. A program without this package loads
both results.
"""

import json
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from zoo_compute.base.errors import Mismatch
from zoo_compute.client import models
from zoo_compute.client.client import Client
from zoo_compute.client.datasets import Request
from zoo_compute.client.job import Job, require_model
from zoo_compute.client.jobspec import JobSpec
from zoo_compute.demo import dispute_report, run
from zoo_compute.devnet.adversaries.child import FABRICATE_ADAPTERS
from zoo_compute.devnet.stack import PROJECT_ROOT
from zoo_compute.devnet.state import Options, StateDirectory
from zoo_compute.terminal.output import print_facts, print_json, print_note
from zoo_compute.terminal.receipts import check_receipt, print_receipt
from zoo_compute.terminal.watch import follow

OPTIONS = Options(
    providers=5,
    verifiers=3,
    cheat=True,
    cheat_kind=FABRICATE_ADAPTERS,
    pace={"ZOO_ROUND_GRACE_SECONDS": "10", "ZOO_LEASE_SECONDS": "30"},
)
BASE_ROUNDS, ROUNDS = 4, 4
LEARNING_RATE = 2e-3
"""Ten times the default, which suits wider models."""
MIN_LOSS_DROP = 0.2
"""Required drop of the loss on held-out answers, in nats per token."""
MAX_ERROR = 0.03
"""Limit of the loss's error, as a share; held-out answers are few."""

LOADER = PROJECT_ROOT / "docs" / "examples" / "load_models.py"
_LONGEST_ANSWER = 90  # characters
_LOADER_SECONDS = 300


def run_finetune(directory: Path, *, keep: bool, as_json: bool) -> None:
    """Train a base model and an adapter on it, check the receipt, load both models elsewhere.

    Args and errors as for :func:`zoo_compute.demo.run.run`.
    """
    began = time.monotonic()
    state = StateDirectory(directory)
    with run.fresh_devnet(state, OPTIONS, keep=keep) as info:
        setup = time.monotonic() - began
        print_note(f"the stack is up after {setup:.1f} s; one provider will make up its units of the adapter")
        model, adapter = state.path("demo-model"), state.path("demo-chat-model")
        with Client(info["api_url"], private_key=info["accounts"]["user"]["private_key"]) as client:
            base = _publish_base(client, state.root, model)
            print_note(f"published the base model {base}")
            job = _train(client, chat_spec(base, write_chats(state.root / "chats.jsonl")))
            run.await_payout(client, job.id)
            receipt = job.receipt() | {"base": base, "seconds": run.seconds_of(job, setup, began)}
            cast = run.cast_of(info)
            receipt["story"] = dispute_report.build_report(client, job, receipt, cast)
            file = state.path("demo-receipt.json")
            file.write_text(json.dumps(receipt, indent=2) + "\n")
            (print_json if as_json else print_receipt)(receipt)
            check_receipt(client, receipt)
            checks = run.receipt_checks(receipt, cast.adversary, ROUNDS, MIN_LOSS_DROP, max_error=MAX_ERROR)
            run.require(checks)
            print_note("the receipt agrees with chain and storage, and only the dishonest provider was slashed")
            print_note(dispute_report.format_report(receipt["story"]))
            size = job.download(adapter)
            print_note(f"{adapter}: an adapter of {size} bytes, on the base model in {adapter / 'base'}")
        print_note(load_elsewhere(model, adapter))
        if not as_json:
            print_facts({"receipt": file, "model": model, "chat model": adapter, "took": f"{_total(receipt)} s"})


def chat_spec(base: str, chats: Path) -> JobSpec:
    """Return the job of an adapter on the model ``base``, from a JSONL file of conversations."""
    first = run.job_spec(Request([str(chats)], base, licence="PSF-2.0", source="Python's built-in help"))
    training = {**first.training, "objective": "sft", "rounds": ROUNDS, "learning_rate": LEARNING_RATE}
    return replace(first, model={"base": base}, adapter={"r": 8}, training=training)


def write_chats(path: Path) -> Path:
    """Write conversations on Python's built-in help, one a line; return the path."""
    from pydoc_data.topics import topics

    lines = []
    for name in sorted(topics):
        for sentence in re.split(r"(?<=[.:])\s+", " ".join(topics[name].split())):
            if 20 <= len(sentence) <= _LONGEST_ANSWER and sentence[0].isupper() and sentence.endswith("."):
                turns = {"user": f"What of {name}?", "assistant": sentence}
                messages = [{"role": role, "content": content} for role, content in turns.items()]
                lines.append(json.dumps({"messages": messages}) + "\n")
    path.write_text("".join(lines))
    return path


def load_elsewhere(model: Path, adapter: Path) -> str:
    """Return what both models write in a process without this package.

    Raises:
        Mismatch: they cannot be loaded.
    """
    argv = [sys.executable, "-I", str(LOADER), str(model), str(adapter)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=_LOADER_SECONDS, check=False)
    if done.returncode:
        raise Mismatch("demo-model-unusable", f"{LOADER.name} failed: {done.stderr[-2000:]}")
    return done.stdout


def _publish_base(client: Client, folder: Path, model: Path) -> str:
    """Train the base model, download it and store it; return the CID of its manifest."""
    spec = run.job_spec(run.topics_dataset(folder))
    job = _train(client, replace(spec, training={**spec.training, "rounds": BASE_ROUNDS}))
    print_note(f"{model}: {job.download(model)} bytes")
    return models.push(client, models.check_folder(model))[0]


def _train(client: Client, spec: JobSpec) -> Job:
    job = client.submit(spec)
    print_note(f"job {job.id}")
    require_model(follow(job, as_json=False))
    return job


def _total(receipt: dict[str, Any]) -> float:
    total: float = receipt["seconds"]["total"]
    return total
