"""Job receipt: the chain's events, joined with the record that the settlement names.

The market builds it from its final, indexed logs; an outsider from any RPC node. All amounts come from these events.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from zoo_protocol.payments.job_record import VERIFIED, JobRecord
from zoo_protocol.verification.sampling import detection_at_rate
from zoo_protocol.verification.training_faults import Rollback

BPS = 10_000
MICROSECONDS_PER_HOUR = 3_600_000_000
_Event = TypeVar("_Event", "Opened", "Settled")


def _from_event(cls: type[_Event], args: Mapping[str, Any], **given: Any) -> _Event:
    """Build a dataclass from ``given`` fields, and its others from the event's arguments."""
    names = [name for name in cls.__dataclass_fields__ if name not in given]
    return cls(**{name: args[re.sub("_(.)", lambda after: after[1].upper(), name)] for name in names}, **given)


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
        """Build from the decoded event; ``specHash`` as 0x hex."""
        return _from_event(cls, args, tx=tx)


@dataclass(frozen=True, slots=True)
class Settled:
    """One line of a settlement as the contract executed it (event JobSettled), amounts in wei.

    ``batch`` 0 pays no unit. ``last`` marks the line that ended the job; ``refund`` went to its payer.
    """

    batch: int
    price: int
    units: int
    from_round: int
    to_round: int
    paid: int
    fee: int
    refund: int
    last: bool
    record: str
    tx: str

    @classmethod
    def from_event(cls, args: Mapping[str, Any], tx: str) -> "Settled":
        """Build from the decoded event; ``record`` as 0x hex."""
        return _from_event(cls, args, batch=args["batchId"], tx=tx)


@dataclass(frozen=True, slots=True)
class JobSettlement:
    """All valid settlements of one job, amounts in wei, without batches that a guardian vetoed.

    ``refund`` is the total that the payer received; vetoes do not change it. ``next_round`` is the contract's first
    round for the next line. ``over`` means that the escrow holds nothing more of the job. ``struck`` has the units (0x
    hex of their leaves) that lost a dispute after a batch had paid them. ``parts`` still includes their pay and fee,
    which the payer got back.
    """

    parts: tuple[Settled, ...] = ()
    refund: int = 0
    next_round: int = 0
    over: bool = False
    struck: frozenset[str] = frozenset()

    @classmethod
    def from_events(cls, events: Iterable[tuple[str, Mapping[str, Any], str]]) -> "JobSettlement":
        """Build from (name, arguments, transaction) of the job's escrow events, in order."""
        found = cls()
        for name, args, tx in events:
            if name == "JobSettled":
                part = Settled.from_event(args, tx)
                found = replace(
                    found,
                    parts=(*found.parts, part),
                    refund=found.refund + part.refund,
                    next_round=part.to_round,
                    over=part.last,
                )
            elif name == "UnitStruck":
                found = replace(found, struck=found.struck | {args["unitId"]})
            elif name == "JobRefunded":
                found = replace(found, refund=found.refund + args["amount"], over=True)
            elif name == "SettlementReverted":
                found = found._without(args["batchId"], args["net"] + args["fee"] if args["refunded"] else None)
        return found

    def _without(self, batch: int, refunded: int | None) -> "JobSettlement":
        next_round = self.next_round
        for part in reversed(self.parts):
            if part.batch == batch and part.to_round == next_round:
                next_round = part.from_round
        return replace(
            self,
            parts=tuple(part for part in self.parts if part.batch != batch),
            refund=self.refund + (refunded or 0),
            next_round=next_round,
            over=refunded is not None,
        )

    @property
    def last(self) -> Settled | None:
        """Line that ended the job; None while escrow holds money, or if refunded unsettled."""
        return self.parts[-1] if self.over and self.parts and self.parts[-1].last else None

    def lines_with(self, round_: int) -> list[Settled]:
        """Return the lines whose records may have a unit of this round: its own, and the job's last."""
        return [part for part in self.parts if part.last or part.from_round <= round_ < part.to_round]

    @property
    def paid(self) -> int:
        return sum(part.paid for part in self.parts)

    @property
    def fee(self) -> int:
        return sum(part.fee for part in self.parts)


@dataclass(frozen=True, slots=True)
class Slashed:
    """A penalty as the staking contract executed it (event Slashed), amount in wei.

    ``path`` and ``path_reason`` are those of :class:`zoo_protocol.payments.job_record.SlashRecord`.
    """

    provider: str
    offence: str
    amount: int
    tx: str
    path: str = "operator"
    path_reason: str | None = None


def unit_price(price: int, weight: int) -> int:
    """Return a unit's gross wei: price per GPU-hour, weight in GPU-microseconds."""
    exact = price * weight // MICROSECONDS_PER_HOUR
    return exact - exact % BPS


def net_unit_price(price: int, weight: int, fee_bps: int) -> int:
    """Return the provider's pay for one unit in wei: gross price less fee, exact."""
    gross = unit_price(price, weight)
    return gross - gross * fee_bps // BPS


def build_receipt(
    record: JobRecord,
    opened: Opened,
    settlement: JobSettlement,
    slashes: Sequence[Slashed],
    rollbacks: Mapping[int, Rollback],
    treasury_balance: int,
) -> dict[str, Any]:
    """Return the receipt of a fully settled job, as JSON.

    Amounts are decimal strings of wei; ``treasury_balance`` is the current one. A unit with a forfeited payout counts
    as refunded; ``settlements`` has what each line paid before that. ``rollbacks`` are by the round of their
    checkpoint.
    """
    last = settlement.parts[-1]
    price = max(part.price for part in settlement.parts)  # 0 in lines that pay no unit
    gross = unit_price(price, opened.unit_weight)
    net = net_unit_price(price, opened.unit_weight, opened.fee_bps)
    struck = [
        unit for unit in record.paid_units() if settlement.struck and unit.leaf(record.job_id) in settlement.struck
    ]
    return {
        "job_id": record.job_id,
        "tier": record.tier,
        "outcome": record.outcome,
        "clearing_price_wei_per_gpu_hour": str(price),
        "budget_wei": record.order["budget"],
        "escrowed_wei": str(opened.budget),
        "paid_wei": str(settlement.paid - len(struck) * net),
        "fee_wei": str(settlement.fee - len(struck) * (gross - net)),
        "refund_wei": str(settlement.refund + len(struck) * gross),
        "settlements": [
            {
                "batch": part.batch,
                "from_round": part.from_round,
                "to_round": part.to_round,
                "units": part.units,
                "paid_wei": str(part.paid),
                "fee_wei": str(part.fee),
                "tx": part.tx,
            }
            for part in settlement.parts
        ],
        "units": [
            {
                "provider": unit.provider,
                "round": unit.round,
                "slot": unit.slot,
                "status": unit.status,
                "reason": unit.reason,
                "paid_wei": str(net if unit.status == VERIFIED and unit not in struck else 0),
                "trace_root": unit.trace_root,
                "payload_cid": unit.payload_cid,
                "sampling_bps": unit.sampling_bps,
                "drawn_segments": unit.drawn_segments,
                "detection_probability": None
                if unit.sampling_bps is None
                else detection_at_rate(record.segments, 1, unit.sampling_bps),
            }
            for unit in record.units
        ],
        "slashes": [
            {
                "provider": slash.provider,
                "reason": slash.offence,
                "amount_wei": str(slash.amount),
                "tx": slash.tx,
                "path": slash.path,
                "path_reason": slash.path_reason,
            }
            for slash in slashes
        ],
        "checkpoints": [
            {
                "round": c.round,
                "cid": c.cid,
                "validation_loss": _number(c.validation_loss),
                "validation_error": _number(c.validation_error),
                "validation_samples": c.validation_samples,
                "pins": c.pins,
            }
            for c in record.checkpoints
        ],
        "rollbacks": [{"round": round_, "to": one.to, "reason": one.reason} for round_, one in rollbacks.items()],
        "initial_loss": _number(record.initial_loss),
        "final_loss": _number(record.final_loss),
        "final_error": _number(record.checkpoints[-1].validation_error) if record.checkpoints else None,
        "final_model_cid": record.final_model_cid,
        "settlement_tx": last.tx,
        "treasury_balance_wei": str(treasury_balance),
    }


def _number(text: str | None) -> float | None:
    return None if text is None else float(text)
