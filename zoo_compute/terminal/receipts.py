"""Output of receipts, and their verification against chain and storage."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from training_gym.data.dataset import Split
from zoo_compute.audit.evidence import evidence_of
from zoo_compute.audit.receipt import differences, verify_job, verify_round
from zoo_compute.audit.rounds import JoinedRound
from zoo_compute.base.errors import Finding, Mismatch
from zoo_compute.client.client import Client
from zoo_compute.content.base_models import BaseFiles
from zoo_compute.terminal.output import (
    in_zen,
    print_facts,
    print_json,
    print_note,
    print_records,
    print_table,
    zen_words,
)
from zoo_compute.terminal.watch import fault_words, rollback_line
from zoo_protocol.verification.training_faults import DIVERGED, DIVERGED_ADVICE


def print_receipt(receipt: dict[str, Any]) -> None:
    """Print a receipt: job and amounts, units, slashes, rollbacks, checkpoints."""
    money = ("budget_wei", "escrowed_wei", "paid_wei", "fee_wei", "refund_wei", "treasury_balance_wei")
    losses = ("initial_loss", "final_loss", "final_error")
    plain = ("job_id", "tier", "outcome", *losses, "final_model_cid", "settlement_tx", "ledger_reconciled")
    price = int(receipt["clearing_price_wei_per_gpu_hour"] or 0)
    # A job that ended early has no final model, but its last checkpoint in these fields.
    is_final = receipt["outcome"] == "completed"
    facts = {name if is_final else name.replace("final_", "last_"): receipt[name] for name in plain}
    print_facts(facts | {"price per GPU-hour": zen_words(price) if price else None})
    print_facts(in_zen({name: receipt[name] for name in money}))
    print_records(
        ("round", "slot", "provider", "status", "reason", "paid", "sampled", "detection", "payload_cid"),
        [in_zen(unit | _verification(unit)) for unit in receipt["units"]],
    )
    if receipt["slashes"]:
        columns = ("provider", "reason", "amount", "path", "path_reason", "tx")
        print_records(columns, map(in_zen, receipt["slashes"]))
    for one in receipt["rollbacks"]:
        print(f"rolled back: {rollback_line(one)}")
    if receipt["outcome"] == DIVERGED:
        print(DIVERGED_ADVICE)
    shown = "round", "validation_loss", "validation_error", "validation_samples", "cid"
    rows = [[len(item["pins"]), *(item[name] for name in shown)] for item in receipt["checkpoints"]]
    print_table(("pins", *shown), rows)


def _verification(unit: dict[str, Any]) -> dict[str, Any]:
    """Return the sampled segments, and the probability with which one false segment is sampled."""
    chance = unit["detection_probability"]
    if chance is None:
        return {"sampled": None, "detection": None}
    return {"sampled": ", ".join(map(str, unit["drawn_segments"])) or "none", "detection": f"{chance:.1%}"}


def model_loss(bases: BaseFiles, spec: bytes, model: bytes, validation: Split, samples: int) -> tuple[float, float]:
    """Return loss and error of a model over the first ``samples``, an adapter's on its base."""
    from training_gym.evaluate.loss import evaluate_samples  # loads torch
    from training_gym.model.network import base_of
    from training_gym.spec.config import TrainingSpec
    from training_gym.units.checkpoint import load_state

    known = TrainingSpec.from_dict(json.loads(spec))
    base = base_of(known.model, bases.of(known), known.training.precision) if known.reads_base else None
    found = evaluate_samples(known, load_state(known, model), validation, samples, base)
    return found.loss, found.error


def check_receipt(client: Client, receipt: dict[str, Any], rounds: int | None = 1) -> None:
    """Recompute a receipt and its last ``rounds`` (None: all), and print every difference.

    Raises:
        Mismatch: there are differences.
    """
    with evidence_of(client.network()) as (chain, gateway), BaseFiles(gateway) as bases:
        recomputed = verify_job(receipt["job_id"], chain, gateway, partial(model_loss, bases), rounds)
    require_no_findings(recomputed.findings + differences(receipt, recomputed.receipt))


def join_round(client: Client, job_id: str, round_: int) -> JoinedRound:
    """Join a round's payloads again. Raises as :func:`zoo_compute.audit.receipt.verify_round`."""
    with evidence_of(client.network()) as (chain, gateway):
        return verify_round(job_id, round_, chain, gateway)


def report_round(job_id: str, round_: int, joined: JoinedRound, *, as_json: bool) -> None:
    """Print the result of a round that was joined again. Raises Mismatch: it has differences."""
    if as_json:
        print_json({"job_id": job_id, "round": round_, **asdict(joined)})
    require_no_findings(joined.findings)
    if (rollback := joined.rollback) is None:
        print_note(f"verified: the payloads of round {round_} give the checkpoint after it")
        return
    print_note(
        f"verified: no payload of round {round_} entered the model. It was rolled back: the checkpoint after it "
        f"repeats the files of the one before round {rollback.to}. Stated reason: {fault_words(rollback.reason)}"
    )


def require_no_findings(findings: Sequence[Finding]) -> None:
    """Print every difference. Raises Mismatch if there is one."""
    for finding in findings:
        print_note(f"differs: {finding.where}: expected {finding.expected}, found {finding.found}  [{finding.code}]")
    if findings:
        raise Mismatch(
            "receipt-mismatch",
            f"the receipt differs from chain and storage in {len(findings)} points",
            remedy="Do not rely on it. Report the differences above to the market.",
        )
