"""``make demo``: one job from stake to receipt on a fresh devnet with a dishonest provider.

It uses the public client, and recomputes the receipt from chain and storage.
"""

import json
import os
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from zoo_compute.audit.receipt import DISPUTE
from zoo_compute.base.amounts import ZEN, format_zen
from zoo_compute.base.errors import DevnetError, Mismatch
from zoo_compute.chain.settlements import ChainReader
from zoo_compute.client.client import Client
from zoo_compute.client.datasets import Request
from zoo_compute.client.job import Job, require_model
from zoo_compute.client.jobspec import JobSpec
from zoo_compute.demo import dispute_report, training
from zoo_compute.demo import incidents as demo_incidents
from zoo_compute.demo.incidents import Incidents
from zoo_compute.devnet import control, stack
from zoo_compute.devnet.state import Options, StateDirectory
from zoo_compute.terminal.output import print_facts, print_json, print_note
from zoo_compute.terminal.receipts import check_receipt, print_receipt
from zoo_compute.terminal.watch import follow

SLOW_LINK_MBPS = 4.0
"""Speed that reveal deadlines assume; on a slower link an honest node may miss them."""

OPTIONS = Options(
    providers=5,
    verifiers=3,
    cheat=True,
    slow_link_mbps=SLOW_LINK_MBPS,
    held_up_from=demo_incidents.DELAYED_FROM_ROUND,
    pace={
        "ZOO_ROUND_GRACE_SECONDS": "10",  # instead of 30: one round waits so long for the delayed upload
        "ZOO_LEASE_SECONDS": "30",  # a reveal has four leases, also during the absence of a node
    },
)
NODES = 4
ROUNDS = 7

STEPS = 20
"""Inner steps per round: the loss falls within seven rounds, in under two minutes on two slow cores."""

BUDGET = 1 * ZEN
MAX_PRICE = 3 * ZEN

TOKENIZER = "bpe:512"

MIN_LOSS_DROP = 0.5
"""Required drop of the validation loss, in nats per token."""
MAX_ERROR = 0.003
"""Share of the final loss that its standard error stays below."""

_MARKER = "demo"
_PAYOUT_SECONDS = 60


def run(directory: Path, *, keep: bool, as_json: bool) -> None:
    """Start the stack, train a model, check and print the receipt, use the model, stop.

    Args:
        directory: of the devnet; the receipt is its file ``demo-receipt.json``.
        keep: leave the stack running.

    Raises:
        DevnetError: the directory has another devnet, or the stack does not start.
        JobUnsuccessful: the job gave no model.
        Mismatch: a check failed.
    """
    began = time.monotonic()
    state = StateDirectory(directory)
    with fresh_devnet(state, OPTIONS, keep=keep) as info:
        setup = time.monotonic() - began
        print_note(
            f"the stack is up after {setup:.1f} s; of {OPTIONS.providers} providers one is dishonest, one is a hot "
            f"spare, one has a link of {SLOW_LINK_MBPS:g} Mbit/s, one will deliver late, one will leave and return"
        )
        with Client(info["api_url"], private_key=info["accounts"]["user"]["private_key"]) as client:
            incidents = Incidents(state, _address(info, stack.DELAYED_NODE), _address(info, demo_incidents.LEAVER))
            job = _train(client, incidents, state.root)
            await_payout(client, job.id)
            receipt = job.receipt() | {"seconds": seconds_of(job, setup, began)}
            receipt["story"] = dispute_report.build_report(client, job, receipt, cast_of(info))
            receipt["training"] = _training(client, job, info, incidents, state.path("demo-model"))
            file = state.path("demo-receipt.json")
            file.write_text(json.dumps(receipt, indent=2) + "\n")
            (print_json if as_json else print_receipt)(receipt)
            check_receipt(client, receipt)
            check_story(receipt, adversary=info["accounts"]["providers"][0]["address"])
            print_note("the receipt agrees with chain and storage, and only the dishonest provider was slashed")
            for line in training.report_lines(receipt["training"], _names(info), SLOW_LINK_MBPS):
                print_note(line)
            os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch loads; the stack shares this machine's cores
            print_note("the model writes:\n" + job.sample("The ", 240, seed=1))
            print_note(dispute_report.format_report(receipt["story"]))
        print_note("")
        if not as_json:
            print_facts(_addresses(info, receipt, file))


def topics_dataset(folder: Path) -> Request:
    """Write Python's built-in help as two files; return the dataset's sources."""
    from pydoc_data.topics import topics

    text = "\n\n".join(topics[name] for name in sorted(topics))
    cut = len(text) * 2 // 5  # less held-out text leaves an error above MAX_ERROR
    files = {folder / "topics.txt": text[:cut], folder / "topics-validation.txt": text[cut:]}
    for path, part in files.items():
        path.write_text(part)
    train, validation = map(str, files)
    return Request([train], TOKENIZER, [validation], licence="PSF-2.0", source="Python's built-in help")


def job_spec(dataset: Request | str) -> JobSpec:
    """Return the demonstration's job: a small Llama; its vocabulary is the tokenizer's."""
    return JobSpec(
        dataset=dataset,
        budget_max=BUDGET,
        max_price=MAX_PRICE,
        wait=timedelta(minutes=10),
        tier="bronze",
        nodes=NODES,
        model={"architecture": "llama", "tie_word_embeddings": True},
        training={
            "rounds": ROUNDS,
            "inner_steps": STEPS,
            "segment_steps": STEPS // 4,
            "value_bits": 8,  # with 2, the slow link would need no compression
        },
        checkpoint={"interval": 1, "redundancy": 3},
    )


def await_payout(client: Client, job_id: str) -> None:
    """Wait until the nodes have claimed their pay and the treasury has its fee.

    Raises:
        Mismatch: timeout.
    """
    network = client.network()
    chain = ChainReader(network.rpc_url, network.contracts, network.start_block)
    settlement = chain.settlement(job_id)
    print_note(f"settled; pay is claimable after a challenge period of {network.challenge_seconds} s")
    deadline = time.monotonic() + network.challenge_seconds + _PAYOUT_SECONDS
    while time.monotonic() < deadline:
        batches = [chain.batch(part.batch) for part in settlement.parts if part.batch]
        claimed = sum(sum(batch.claimed.values()) for batch in batches)
        if claimed == settlement.paid and sum(batch.fee_collected for batch in batches) == settlement.fee:
            providers = {provider for batch in batches for provider in batch.claimed}
            print_note(f"{len(providers)} providers have claimed {format_zen(claimed)} ZEN from {len(batches)} batches")
            return
        time.sleep(0.5)
    raise Mismatch("demo-unclaimed", f"of {settlement.paid} wei only {claimed} were claimed in time")


def check_story(receipt: dict[str, Any], *, adversary: str) -> None:
    """Check the expected results of the demonstration.

    Raises:
        Mismatch: lists every failed check.
    """
    require(receipt_checks(receipt, adversary, ROUNDS, MIN_LOSS_DROP) | training.checks(receipt["training"]))


def require(checks: Mapping[str, bool]) -> None:
    """Raise Mismatch with every failed check."""
    failed = [check for check, holds_true in checks.items() if not holds_true]
    if failed:
        raise Mismatch("demo-promise-broken", f"failed checks: {'; '.join(failed)}")


def receipt_checks(
    receipt: Mapping[str, Any],
    adversary: str,
    rounds: int,
    min_drop: float,
    *,
    pins: int = 3,
    honest_rounds: Collection[int] = (),
    max_error: float = MAX_ERROR,
) -> dict[str, bool]:
    """Return the expected results on a job's receipt, each with its outcome.

    Args:
        min_drop: required drop of the validation loss, in nats per token.
        pins: nodes that keep each checkpoint.
        honest_rounds: rounds, from 0, in which the dishonest provider works honestly and may be paid.
        max_error: limit of the final loss's standard error, as a share of it.
    """
    money = {name: int(receipt[f"{name}_wei"]) for name in ("budget", "escrowed", "paid", "fee", "refund")}
    gain = float(receipt["initial_loss"]) - float(receipt["final_loss"])
    error = float(receipt["final_error"]) / float(receipt["final_loss"])
    paid_places = {(unit["round"], unit["slot"]) for unit in receipt["units"] if int(unit["paid_wei"]) > 0}
    return {
        "paid + fee + refund == escrowed": money["paid"] + money["fee"] + money["refund"] == money["escrowed"],
        "escrowed <= budget": money["escrowed"] <= money["budget"],
        "fee == 5 % of payments": money["fee"] == (money["paid"] + money["fee"]) * 5 // 100,
        "only the dishonest provider is slashed": [slash["provider"] for slash in receipt["slashes"]] == [adversary],
        "a committee decided, on chain": [slash["path"] for slash in receipt["slashes"]] == [DISPUTE],
        "no other node ever lost stake": not receipt["story"]["honest"]["slashed"],
        "false work is not paid": all(
            int(unit["paid_wei"]) == 0
            for unit in receipt["units"]
            if unit["provider"] == adversary and unit["round"] not in honest_rounds
        ),
        "honest work is paid": bool(paid_places) and money["paid"] > 0,
        f"every checkpoint is pinned on {pins} nodes": all(
            len(set(item["pins"])) >= pins for item in receipt["checkpoints"]
        ),
        "there is a checkpoint for every round": len(receipt["checkpoints"]) == rounds + 1,
        f"the loss fell by at least {min_drop}": gain >= min_drop,
        f"the final loss is known to {max_error:.1%}": 0 < error < max_error,
        "the ledger equals the chain": receipt["ledger_reconciled"] is True,
    }


def cast_of(info: dict[str, Any], attack: str = dispute_report.FABRICATED) -> dispute_report.Cast:
    """Return the addresses of the dishonest provider, with its attack, and of the honest nodes."""
    adversary, *honest = (account["address"] for account in info["accounts"]["providers"])
    verifiers = [account["address"] for account in info["accounts"]["verifiers"]]
    return dispute_report.Cast(adversary, honest, verifiers, attack)


@contextmanager
def fresh_devnet(
    state: StateDirectory, options: Options, *, keep: bool, away: Collection[str] = ()
) -> Iterator[dict[str, Any]]:
    """Run a new devnet, stopped at the end unless ``keep``; nodes that are ``away`` join later."""
    recorded = state.load()
    if recorded is not None and recorded.is_supervised():
        raise DevnetError(
            "devnet-running",
            f"a devnet is running in {state.root}; the demo needs a new one",
            remedy="Stop it with: zoo-compute devnet down  (or give --directory)",
        )
    if recorded is not None and not state.path(_MARKER).exists():
        raise DevnetError(
            "devnet-not-a-demo",
            f"{state.root} has a devnet that is not a demo's; the demo would remove it",
            remedy="Remove it with: zoo-compute devnet reset  (or give --directory)",
        )
    control.reset(state)
    state.create()
    state.path(_MARKER).touch()
    for node in away:
        state.away(node).touch()
    print_note(f"starting the stack in {state.root} ...")
    try:
        yield control.up(state, options)
    finally:
        if keep:
            print_note("the stack is left running; stop it with: zoo-compute devnet down")
        else:
            control.down(state)


def _names(info: dict[str, Any]) -> dict[str, str]:
    return {account["address"]: f"provider-{index + 1}" for index, account in enumerate(info["accounts"]["providers"])}


def _address(info: dict[str, Any], name: str) -> str:
    return next(address for address, own in _names(info).items() if own == name)


def _train(client: Client, incidents: Incidents, folder: Path) -> Job:
    spec = job_spec(topics_dataset(folder))
    job = client.submit(spec)
    print_note(f"job {job.id}")
    require_model(follow(job, as_json=False, also=incidents.process))
    return job


def seconds_of(job: Job, setup: float, began: float) -> dict[str, float]:
    """Return the seconds of the setup, until the first step, and since the beginning."""
    state = job.state()
    assert state.first_step_at is not None  # a job that trained has one
    first_step = (state.first_step_at - state.created_at).total_seconds()
    seconds = {"setup": setup, "total": time.monotonic() - began, "first_step": first_step}
    return {name: round(value, 1) for name, value in seconds.items()}


def _training(client: Client, job: Job, info: dict[str, Any], incidents: Incidents, model: Path) -> dict[str, Any]:
    size = job.download(model)
    print_note(f"{model}: {size} bytes")
    parts = training.Parts(
        slow=_address(info, stack.SLOW_NODE),
        delayed=_address(info, stack.DELAYED_NODE),
        held_up_round=incidents.delayed,
        leaver=_address(info, demo_incidents.LEAVER),
        left_after=incidents.left_after,
        catch_up_entries=incidents.catch_up_entries(),
    )
    return training.build_report(client, job, parts, size)


def _addresses(info: dict[str, Any], receipt: dict[str, Any], file: Path) -> dict[str, object]:
    gateway = info["ipfs_url"]
    return {
        "receipt": file,
        "API documentation": f"{info['api_url']}/docs",
        "console": f'{info["api_url"]}/console/sign-in (choose "admin, guardian"; then Overview, Treasury, disputes)',
        "chain RPC": info["rpc_url"],
        "job escrow": info["contracts"]["JobEscrow"],
        "settlement": receipt["settlement_tx"],
        "final model": f"{gateway}/ipfs/{receipt['final_model_cid']}",
        "took": "{total} s, of which the stack's start {setup} s; first step after {first_step} s".format(
            **receipt["seconds"]
        ),
    }
