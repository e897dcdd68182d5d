"""Receipts on the screen, and against chain and storage."""

from typing import Any

from zoo_compute.amounts import format_zen
from zoo_compute.cli.output import note, print_facts, print_table
from zoo_compute.client import Client
from zoo_compute.errors import Mismatch
from zoo_compute.receipt import differences


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


def check_receipt(client: Client, receipt: dict[str, Any]) -> None:
    """Recompute a receipt from the chain and from storage alone.

    Raises:
        Mismatch: with everything that differs.
    """
    network = client.network()
    found = differences(receipt, rpc_url=network.rpc_url, gateway_url=network.gateway_url, contracts=network.contracts)
    if found:
        for difference in found:
            note(f"differs: {difference}")
        raise Mismatch(
            "receipt-mismatch",
            f"the receipt differs from chain and storage in {len(found)} points",
            remedy="Do not pay or rely on it; report it to the market with the differences above.",
        )
