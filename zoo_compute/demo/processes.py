"""``make demo JOB=processes``: a node of two processes loses one, and submits false work.

The node is alone until its first unit is repeated. Then honest nodes join. Verifiers replay with one process.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil

from zoo_compute.base.models import Event
from zoo_compute.client.client import Client
from zoo_compute.client.job import Job, require_model
from zoo_compute.client.jobspec import JobSpec
from zoo_compute.demo import dispute_report, run
from zoo_compute.devnet.adversaries.child import LAZY
from zoo_compute.devnet.state import Options, StateDirectory
from zoo_compute.terminal.output import print_facts, print_json, print_note
from zoo_compute.terminal.receipts import check_receipt, print_receipt
from zoo_compute.terminal.watch import follow
from zoo_protocol.payments.job_record import VERIFIED

NODE = "provider-1"
PROCESSES = 2
OPTIONS = Options(
    providers=3,
    verifiers=3,
    cheat=True,
    cheat_kind=LAZY,
    processes=PROCESSES,
    pace={"ZOO_ROUND_GRACE_SECONDS": "10", "ZOO_LEASE_SECONDS": "30"},
)
HONEST = [f"provider-{number}" for number in range(2, OPTIONS.providers + 1)]
ROUNDS, STEPS = 5, 40
PINS = 2
MIN_LOSS_DROP = 0.5
"""Required drop of the validation loss, in nats per token."""
MAX_ERROR = 0.004
"""Share of the final loss that its standard error stays below; all held-out text leaves 0.003 of a loss this low."""
PROCESS_LOST = "process_lost"
_ATTACK = (
    "Its two processes trained together, but left out the last step of each segment. It signed a trace of the rest."
)


def run_processes(directory: Path, *, keep: bool, as_json: bool) -> None:
    """Train a model on two processes of one node; check receipt, lost process and false unit.

    Args and errors as for :func:`zoo_compute.demo.run.run`.
    """
    began = time.monotonic()
    state = StateDirectory(directory)
    with run.fresh_devnet(state, OPTIONS, keep=keep, away=HONEST) as info:
        setup = time.monotonic() - began
        print_note(f"the stack is up after {setup:.1f} s; {NODE} trains on {PROCESSES} processes, verifiers on one")
        cast = run.cast_of(info, _ATTACK)
        with Client(info["api_url"], private_key=info["accounts"]["user"]["private_key"]) as client:
            loss = ProcessLoss(state, cast.adversary)
            job = client.submit(job_spec(state.root))
            print_note(f"job {job.id}")
            require_model(follow(job, as_json=False, also=loss.process))
            run.await_payout(client, job.id)
            receipt = job.receipt() | {"seconds": run.seconds_of(job, setup, began)}
            receipt["story"] = dispute_report.build_report(client, job, receipt, cast)
            receipt["processes"] = build_report(client, job, receipt, cast)
            file = state.path("demo-receipt.json")
            file.write_text(json.dumps(receipt, indent=2) + "\n")
            (print_json if as_json else print_receipt)(receipt)
            check_receipt(client, receipt)
            run.require(checks(receipt, cast.adversary))
            print_note("the receipt agrees with chain and storage, and only the dishonest provider was slashed")
            print_note(format_report(receipt["processes"]))
            print_note(dispute_report.format_report(receipt["story"]))
        if not as_json:
            print_facts({"receipt": file, "took": f"{receipt['seconds']['total']} s"})


def job_spec(folder: Path) -> JobSpec:
    """Return the job of one node: the main demonstration's model, in batches of two parts."""
    training = {"rounds": ROUNDS, "inner_steps": STEPS, "segment_steps": STEPS // 4, "gradient_shards": PROCESSES}
    main = run.job_spec(run.topics_dataset(folder))
    return replace(main, nodes=1, training=training, checkpoint={"interval": 1, "redundancy": PINS})


@dataclass
class ProcessLoss:
    """Kill of the node's second training process, in the first unit that it can end.

    Attributes:
        lost_round: round, from 0, of the lost unit; None before it.
    """

    state: StateDirectory
    address: str
    lost_round: int | None = None
    _tried: int | None = None
    _joined: bool = False

    def process(self, event: Event) -> None:
        """Process the job's next event."""
        if event.kind == "unit" and event.data["status"] == "lost" and event.data["reason"] == PROCESS_LOST:
            self.lost_round = event.data["round"]
        elif event.kind == "round" and self.lost_round is not None and not self._joined:
            self._joined = True
            for node in HONEST:
                self.state.away(node).unlink()
            print_note(f"{NODE} has repeated the unit; {' and '.join(HONEST)} join")
        elif event.kind == "step" and event.data["provider"] == self.address and self.lost_round is None:
            self._kill_in(event.data["round"])

    def _kill_in(self, round_: int) -> None:
        if round_ % 2 or self._tried == round_:  # units of odd rounds are false
            return
        recorded = self.state.load()
        assert recorded is not None  # it runs
        node = recorded.parts[NODE].identity.process()
        followers = [] if node is None else helpers(node)
        if followers:
            self._tried = round_
            followers[0].kill()
            print_note(f"killed process {followers[0].pid}, which trains round {round_} together with another one")


def helpers(node: psutil.Process) -> list[psutil.Process]:
    """Return the processes that a node's training process has forked."""
    return [helper for child in node.children() for helper in child.children()]


def build_report(client: Client, job: Job, receipt: Mapping[str, Any], cast: dispute_report.Cast) -> dict[str, Any]:
    """Return the report on the node's processes as JSON."""
    declared = [
        client.connection.get(f"/v1/providers/{address}")["hardware"] for address in (cast.adversary, *cast.verifiers)
    ]
    units = [unit for unit in job.units() if unit["provider"] == cast.adversary]
    lost = [unit["round"] for unit in units if unit["reason"] == PROCESS_LOST]
    paid = {unit["round"]: int(unit["paid_wei"]) for unit in receipt["units"] if unit["provider"] == cast.adversary}
    repeated = [unit for unit in units if unit["round"] in lost and unit["status"] == VERIFIED]
    return {
        "provider": cast.adversary,
        "processes": declared[0]["processes"],
        "network_removed": declared[0]["network_removed"],
        "verifier_processes": [one["processes"] for one in declared[1:]],
        "lost_rounds": lost,
        "repeated": [{"round": unit["round"], "paid_wei": str(paid.get(unit["round"], 0))} for unit in repeated],
        "rejected_rounds": [unit["round"] for unit in units if unit["reason"] == "incorrect_computation"],
    }


def checks(receipt: Mapping[str, Any], adversary: str) -> dict[str, bool]:
    """Return the expected results of the demonstration, each with its outcome."""
    found, even = receipt["processes"], range(0, ROUNDS, 2)
    usual = run.receipt_checks(
        receipt, adversary, ROUNDS, MIN_LOSS_DROP, pins=PINS, honest_rounds=even, max_error=MAX_ERROR
    )
    return usual | {
        "the node trains on two processes, verifiers on one": found["processes"] == PROCESSES
        and set(found["verifier_processes"]) == {1},
        "a unit lost a process": len(found["lost_rounds"]) == 1,
        "the node repeated it and is paid": [unit["round"] for unit in found["repeated"]] == found["lost_rounds"]
        and all(int(unit["paid_wei"]) > 0 for unit in found["repeated"]),
        "a replay on one process refuted a unit of two": receipt["story"]["unit"]["round"] in found["rejected_rounds"]
        and all(round_ % 2 for round_ in found["rejected_rounds"]),
    }


def format_report(found: Mapping[str, Any]) -> str:
    """Return the report of a successful demonstration as text."""
    [unit] = found["repeated"]
    network = "a private loopback" if found["network_removed"] else "the machine's loopback"
    return (
        f"{NODE} trained on {found['processes']} processes over {network}. One was killed in round "
        f"{unit['round']}: the unit was lost ({PROCESS_LOST}), and fresh processes repeated it. Verifiers with one "
        f"process each found the same bits in what they replayed, so it is paid: {unit['paid_wei']} wei."
    )
