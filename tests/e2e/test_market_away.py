"""Units trained during an outage longer than a node's wait are delivered and paid."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import psutil
from kit.engines.devnet import Devnet
from kit.waiting import delay, wait_until

from zoo_compute.base.amounts import ZEN
from zoo_compute.client.client import Client
from zoo_compute.client.jobspec import JobSpec
from zoo_compute.demo.run import topics_dataset

NODES = 2
PATIENCE_SECONDS = 20.0  # of a node's connection, for one call
DEADLINE_SECONDS = 600


def test_finished_unit_is_delivered_and_paid_after_outage(devnet: Devnet, tmp_path: Path) -> None:
    info = devnet.up("--providers", str(NODES), "--verifiers", "2")
    user = info["accounts"]["user"]["private_key"]
    with Client(info["api_url"], private_key=user) as client:
        job = client.submit(
            JobSpec(
                dataset=topics_dataset(tmp_path),
                budget_max=ZEN,
                max_price=3 * ZEN,
                wait=timedelta(minutes=10),
                tier="bronze",
                nodes=NODES,
                training={"rounds": 2, "inner_steps": 400, "segment_steps": 100},
            )
        )
        assert next(event for event in job.events() if event.kind == "step")
        with away(devnet, "api"):
            assert len(results(devnet, job.id)) < NODES, "a unit is still trained"
            wait_until(lambda: len(results(devnet, job.id)) >= NODES, seconds=DEADLINE_SECONDS)
            delay(PATIENCE_SECONDS + 15)
        job.wait(timeout=DEADLINE_SECONDS)
        units = job.units()
        assert [(unit["round"], unit["slot"], unit["status"]) for unit in units] == [
            (round_, slot, "verified") for round_ in range(2) for slot in range(NODES)
        ]
        paid = {(unit["round"], unit["slot"]) for unit in job.receipt()["units"] if int(unit["paid_wei"])}
        assert paid == {(unit["round"], unit["slot"]) for unit in units}


def results(devnet: Devnet, job_id: str) -> list[Path]:
    return list((devnet.directory / "nodes").glob(f"provider-*/units/{job_id}/0-*/result.json"))


@contextmanager
def away(devnet: Devnet, part: str) -> Iterator[None]:
    pid = devnet.pids()[part]
    supervisor = psutil.Process(pid).ppid()
    os.kill(supervisor, signal.SIGSTOP)
    try:
        os.kill(pid, signal.SIGKILL)
        yield
    finally:
        os.kill(supervisor, signal.SIGCONT)
