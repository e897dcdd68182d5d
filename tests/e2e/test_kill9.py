"""Kill -9 of API, worker and provider during a job: it finishes, the receipt adds up."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

from kit.engines.devnet import Devnet

from zoo_compute.client.client import Client
from zoo_compute.client.job import Job
from zoo_compute.demo.run import job_spec, topics_dataset
from zoo_compute.terminal.receipts import check_receipt

VICTIMS = {1: "api", 3: "worker", 5: "provider-1"}
"""Which part dies once this round is done."""


def test_job_survives_kill_of_each_part(devnet: Devnet, tmp_path: Path) -> None:
    info = devnet.up("--providers", "5", "--verifiers", "2")
    user = info["accounts"]["user"]["private_key"]
    with Client(info["api_url"], private_key=user) as client:
        job = client.submit(job_spec(topics_dataset(tmp_path)))
        killed = {}
        for done in _rounds(job):
            if done in VICTIMS:
                name = VICTIMS[done]
                killed[name] = devnet.pids()[name]
                os.kill(killed[name], signal.SIGKILL)
        state = job.wait(timeout=600)
        assert set(killed) == set(VICTIMS.values())
        assert all(devnet.pids()[name] != pid for name, pid in killed.items()), "each was started again"

        receipt = job.receipt()
        check_receipt(client, receipt)
        assert receipt["slashes"] == [], "dying is not cheating"
        assert len({(unit["round"], unit["slot"]) for unit in receipt["units"] if int(unit["paid_wei"])}) >= 3 * 8 - 3
        assert float(receipt["final_loss"]) < float(receipt["initial_loss"]) - 0.5
        assert state.final_model_cid == receipt["final_model_cid"]


def _rounds(job: Job) -> Iterator[int]:
    for event in job.events():
        if event.kind == "round":
            yield event.data["round"]
