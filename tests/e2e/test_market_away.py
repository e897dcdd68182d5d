"""Units trained during a long outage are paid; verifiers evaluate the job's models."""

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
from zoo_compute.client.datasets import Request
from zoo_compute.client.jobspec import JobSpec
from zoo_compute.demo.run import topics_dataset
from zoo_compute.terminal.receipts import check_receipt

NODES = 2
PATIENCE_SECONDS = 20.0  # of a node's connection, for one call
DEADLINE_SECONDS = 600


def test_finished_unit_is_delivered_and_paid_after_outage(devnet: Devnet, tmp_path: Path) -> None:
    info = devnet.up("--providers", str(NODES), "--verifiers", "2")
    user = info["accounts"]["user"]["private_key"]
    with Client(info["api_url"], private_key=user) as client:
        job = client.submit(
            JobSpec(
                dataset=with_little_held_out(topics_dataset(tmp_path)),
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
        assert all(evaluations(devnet, f"verifier-{number}") for number in (1, 2)), "the final model's at least"
        check_receipt(client, job.receipt())  # recomputes their losses
        paid = {(unit["round"], unit["slot"]) for unit in job.receipt()["units"] if int(unit["paid_wei"])}
        assert paid == {(unit["round"], unit["slot"]) for unit in units}


def results(devnet: Devnet, job_id: str) -> list[Path]:
    return list((devnet.directory / "nodes").glob(f"provider-*/units/{job_id}/0-*/result.json"))


def with_little_held_out(dataset: Request) -> Request:
    """Leave so few samples that their evaluation is little next to the training."""
    [file] = map(Path, dataset.validation)
    file.write_text(file.read_text()[:40_000])
    return dataset


def evaluations(devnet: Devnet, verifier: str) -> int:
    """Return how many of a job's two models the verifier has evaluated."""
    [log] = (devnet.directory / "logs").glob(f"*{verifier}*.log")
    return log.read_text().count("lease_completed kind=evaluate")


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
