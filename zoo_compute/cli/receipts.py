"""Receipts on the screen, and against chain and storage."""

import json
from typing import Any

from zoo_compute.amounts import format_zen
from zoo_compute.cli.output import note, print_facts, print_table
from zoo_compute.client import Client, storage_errors
from zoo_compute.errors import Mismatch
from zoo_compute.gateway import GatewayClient
from zoo_compute.receipt import differences, verify_job
from zoo_compute.settlement_events import ChainReader


def print_receipt(receipt: dict[str, Any]) -> None:
    """A receipt as tables: the job and its money, the units, the slashes, the checkpoints."""
    money = {
        name: f"{format_zen(int(receipt[f'{name}_wei']))} ZEN"
        for name in ("budget", "escrowed", "paid", "fee", "refund", "treasury_balance")
    }
    plain = ("job_id", "tier", "initial_loss", "final_loss", "final_model_cid", "settlement_tx", "ledger_reconciled")
    price = int(receipt["clearing_price_wei_per_gpu_hour"] or 0)
    print_facts({name: receipt[name] for name in plain} | {"price per GPU-hour": f"{format_zen(price)} ZEN"} | money)
    units = ("round", "slot", "provider", "status", "paid_wei", "payload_cid")
    print_table(units, [[unit[name] for name in units] for unit in receipt["units"]])
    slashes = ("provider", "reason", "amount_wei", "tx")
    if receipt["slashes"]:
        print_table(slashes, [[slash[name] for name in slashes] for slash in receipt["slashes"]])
    rows = [[item["round"], item["validation_loss"], len(item["pins"]), item["cid"]] for item in receipt["checkpoints"]]
    print_table(("round", "validation_loss", "pins", "cid"), rows)


def _loss(spec: bytes, model: bytes, validation: bytes) -> float:
    """The validation loss of a model, computed here."""
    from training_gym.checkpoint import load_state
    from training_gym.config import TrainingSpec
    from training_gym.data.dataset import tokens_of
    from training_gym.evaluation.loss import validation_loss  # loads torch

    known = TrainingSpec.from_dict(json.loads(spec))
    return validation_loss(known, load_state(known, model), tokens_of(validation, known, "validation"))


def check_receipt(client: Client, receipt: dict[str, Any]) -> None:
    """Recompute a receipt from the chain and from storage alone.

    Raises:
        Mismatch: after a line for everything that differs.
    """
    network = client.network()
    with storage_errors(), GatewayClient(network.gateways) as gateway:
        chain = ChainReader(network.rpc_url, network.contracts, network.start_block)
        recomputed = verify_job(receipt["job_id"], chain, gateway, _loss)
    findings = recomputed.findings + differences(receipt, recomputed.receipt)
    for finding in findings:
        note(f"differs: {finding.where}: expected {finding.expected}, found {finding.found}  [{finding.code}]")
    if findings:
        raise Mismatch(
            "receipt-mismatch",
            f"the receipt differs from chain and storage in {len(findings)} points",
            remedy="Do not rely on it; show the differences above to the market.",
        )
