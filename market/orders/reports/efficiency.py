"""Efficiency of a job's training against the same work in one place.

Tokens, units and wall time are the market's records. Compute and transfer times, bytes and rates are the nodes' own
reports. They affect no payment, and the answer names them. The market bounds the reported time of a unit by the time
from its offer to its delivery.
"""

from collections.abc import Sequence
from datetime import datetime

from pydantic import BaseModel, Field
from sqlalchemy.orm import Session

from market.jobs.models import Job
from market.training.units import repository as units_repository
from market.training.units.models import Unit
from training_gym.spec.config import TrainingSpec

CLAIMED = (
    "seconds_compute, seconds_transfer, share_compute, share_transfer, share_wait, ideal_tokens_per_second, "
    "share_of_ideal, bytes_up, bytes_down and all of nodes but their units"
)


class NodeEfficiency(BaseModel):
    """One node's resource usage as it reported it. The rates are those of its last unit."""

    provider: str
    units: int
    seconds_compute: float
    seconds_transfer: float
    bytes_up: int
    bytes_down: int
    up_bytes_per_second: int | None
    down_bytes_per_second: int | None


class Efficiency(BaseModel):
    """Shares of slot time (replicas times ``seconds``); sum 1, null before the first report."""

    seconds: float = Field(description="From the match to the end of training, or to the last delivery.")
    units_delivered: int
    units_reported: int = Field(description="Delivered units with measurements.")
    units_late: int = Field(description="Units delivered after the end of their round.")
    tokens: int = Field(description="Training tokens of the delivered units.")
    tokens_per_second: float | None
    ideal_tokens_per_second: float | None = Field(
        description="Rate of the same replicas in one place, without waits and transfers."
    )
    share_of_ideal: float | None
    seconds_compute: float
    seconds_transfer: float
    share_compute: float | None
    share_transfer: float | None = Field(description="Transfers during compute count as compute.")
    share_wait: float | None = Field(description="The rest: waits for other units, aggregation or work.")
    bytes_up: int
    bytes_down: int
    bytes_up_measured: int = Field(description="Size of results as the market measured it.")
    nodes: list[NodeEfficiency]
    claims: str = Field(default=CLAIMED, description="Figures that nodes report.")


def efficiency(session: Session, job: Job) -> Efficiency:
    """Return a job's efficiency. All figures are zero before its match."""
    delivered = [unit for unit in units_repository.units_of_job(session, job.id) if unit.uploaded_at is not None]
    reported = [unit for unit in delivered if unit.report is not None]
    training, model = (spec := TrainingSpec.from_dict(job.spec)).training, spec.model
    tokens_of_unit = training.inner_steps * training.batch_size * model.sequence_length
    seconds = _seconds(job, delivered)
    compute, transfer = _taken(reported)
    slot_time = job.nodes * seconds
    shares = _shares(compute, transfer, slot_time) if reported and slot_time > 0 else (None, None, None)
    rate = len(delivered) * tokens_of_unit / seconds if seconds else None
    ideal = len(reported) * tokens_of_unit / (compute / job.nodes) if compute else None
    return Efficiency(
        seconds=round(seconds, 3),
        units_delivered=len(delivered),
        units_reported=len(reported),
        units_late=sum(bool(unit.rounds_late) for unit in delivered),
        tokens=len(delivered) * tokens_of_unit,
        tokens_per_second=_rounded(rate, 1),
        ideal_tokens_per_second=_rounded(ideal, 1),
        share_of_ideal=_rounded(rate / ideal if rate and ideal else None),
        seconds_compute=round(compute, 3),
        seconds_transfer=round(transfer, 3),
        share_compute=shares[0],
        share_transfer=shares[1],
        share_wait=shares[2],
        bytes_up=_sum(reported, "bytes_up"),
        bytes_down=_sum(reported, "bytes_down"),
        bytes_up_measured=sum(unit.uploaded_bytes for unit in delivered),
        nodes=_nodes(reported),
    )


def _seconds(job: Job, delivered: Sequence[Unit]) -> float:
    ends = [unit.uploaded_at for unit in delivered if unit.uploaded_at is not None]
    end: datetime | None = job.trained_at or max(ends, default=None)
    return (end - job.matched_at).total_seconds() if end is not None and job.matched_at is not None else 0.0


def _nodes(reported: Sequence[Unit]) -> list[NodeEfficiency]:
    by_node: dict[str, list[Unit]] = {}
    for unit in reported:
        by_node.setdefault(unit.provider, []).append(unit)
    return [
        NodeEfficiency(
            provider=provider,
            units=len(units),
            seconds_compute=round(_taken(units)[0], 3),
            seconds_transfer=round(_taken(units)[1], 3),
            bytes_up=_sum(units, "bytes_up"),
            bytes_down=_sum(units, "bytes_down"),
            up_bytes_per_second=(units[-1].report or {})["up_bytes_per_second"],
            down_bytes_per_second=(units[-1].report or {})["down_bytes_per_second"],
        )
        for provider, units in sorted(by_node.items())
    ]


def _sum(units: Sequence[Unit], field: str) -> int:
    return sum(int((unit.report or {})[field]) for unit in units)


def _taken(units: Sequence[Unit]) -> tuple[float, float]:
    """Return reported seconds of compute and of transfer, capped per unit."""
    # If their sum exceeds the time from the unit's offer to its delivery, both are reduced in proportion.
    compute = transfer = 0.0
    for unit in units:
        assert unit.report is not None
        assert unit.uploaded_at is not None
        claimed = [unit.report[field] / 1000 for field in ("compute_ms", "transfer_ms")]
        seen = max(0.0, (unit.uploaded_at - unit.created_at).total_seconds())
        factor = min(1.0, seen / sum(claimed)) if any(claimed) else 1.0
        compute, transfer = compute + factor * claimed[0], transfer + factor * claimed[1]
    return compute, transfer


def _shares(compute: float, transfer: float, slot_time: float) -> tuple[float, float, float]:
    """Return the shares of compute, transfer and wait in ``slot_time``, all in seconds."""
    # In overlapped rounds an upload runs during the next unit's compute. Their sum may then exceed the slot time.
    share_compute = round(min(1.0, compute / slot_time), 4)
    share_transfer = round(min(1.0 - share_compute, transfer / slot_time), 4)
    return share_compute, share_transfer, round(1.0 - share_compute - share_transfer, 4)


def _rounded(value: float | None, places: int = 4) -> float | None:
    return None if value is None else round(value, places)
