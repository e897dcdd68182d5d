"""The receipt of a job: what the chain executed, joined with the record that the settlement points to.

The market builds it from its final, indexed logs; an outsider from any RPC node. No amount comes from anywhere else.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from zoo_protocol.record import VERIFIED, JobRecord

BPS = 10_000
MICROSECONDS_PER_HOUR = 3_600_000_000


@dataclass(frozen=True, slots=True)
class Opened:
    """The deposit of a job (event JobOpened), amounts in wei."""

    payer: str
    tier: int
    units: int
    unit_weight: int
    budget: int
    max_price: int
    fee_bps: int
    spec_hash: str
    tx: str

    @classmethod
    def from_event(cls, args: Mapping[str, Any], tx: str) -> "Opened":
        """From the decoded event; ``specHash`` as 0x hex."""
        return cls(
            payer=args["payer"],
            tier=args["tier"],
            units=args["units"],
            unit_weight=args["unitWeight"],
            budget=args["budget"],
            max_price=args["maxPrice"],
            fee_bps=args["feeBps"],
            spec_hash=args["specHash"],
            tx=tx,
        )


@dataclass(frozen=True, slots=True)
class Settled:
    """The settlement as the contract executed it (event JobSettled), amounts in wei. ``batch`` 0: nobody is paid."""

    batch: int
    price: int
    units: int
    paid: int
    fee: int
    refund: int
    record: str
    tx: str

    @classmethod
    def from_event(cls, args: Mapping[str, Any], tx: str) -> "Settled":
        """From the decoded event; ``record`` as 0x hex."""
        return cls(
            batch=args["batchId"],
            price=args["price"],
            units=args["units"],
            paid=args["paid"],
            fee=args["fee"],
            refund=args["refund"],
            record=args["record"],
            tx=tx,
        )


@dataclass(frozen=True, slots=True)
class Slashed:
    """A penalty as the staking contract executed it (event Slashed), amount in wei."""

    provider: str
    offence: str
    amount: int
    tx: str


def unit_price(price: int, weight: int) -> int:
    """Gross wei of one unit: price in wei per GPU-hour, weight in GPU-microseconds (docs/protocol.md)."""
    exact = price * weight // MICROSECONDS_PER_HOUR
    return exact - exact % BPS


def net_unit_price(price: int, weight: int, fee_bps: int) -> int:
    """What the provider of one unit gets, wei: the gross price less the fee, which is exact."""
    gross = unit_price(price, weight)
    return gross - gross * fee_bps // BPS


def build_receipt(
    record: JobRecord, opened: Opened, settled: Settled, slashes: Sequence[Slashed], treasury_balance: int
) -> dict[str, Any]:
    """The receipt as JSON: amounts as decimal strings of wei, ``treasury_balance`` at the time of asking."""
    net = net_unit_price(settled.price, opened.unit_weight, opened.fee_bps)
    return {
        "job_id": record.job_id,
        "tier": record.tier,
        "outcome": record.outcome,
        "clearing_price_wei_per_gpu_hour": str(settled.price),
        "budget_wei": record.order["budget"],
        "escrowed_wei": str(opened.budget),
        "paid_wei": str(settled.paid),
        "fee_wei": str(settled.fee),
        "refund_wei": str(settled.refund),
        "settlement_batch": settled.batch,
        "units": [
            {
                "provider": unit.provider,
                "round": unit.round,
                "slot": unit.slot,
                "status": unit.status,
                "reason": unit.reason,
                "paid_wei": str(net if unit.status == VERIFIED else 0),
                "trace_root": unit.trace_root,
                "payload_cid": unit.payload_cid,
            }
            for unit in record.units
        ],
        "slashes": [
            {"provider": slash.provider, "reason": slash.offence, "amount_wei": str(slash.amount), "tx": slash.tx}
            for slash in slashes
        ],
        "checkpoints": [
            {"round": c.round, "cid": c.cid, "validation_loss": float(c.validation_loss), "pins": c.pins}
            for c in record.checkpoints
        ],
        "initial_loss": _number(record.initial_loss),
        "final_loss": _number(record.final_loss),
        "final_model_cid": record.final_model_cid,
        "settlement_tx": settled.tx,
        "treasury_balance_wei": str(treasury_balance),
    }


def _number(text: str | None) -> float | None:
    return None if text is None else float(text)
