"""JSON of reports on a job."""

from datetime import datetime
from enum import StrEnum

from pydantic import BaseModel, Field

from market.platform.http.types import WeiOut


class RoundMetrics(BaseModel):
    """One round. Losses in nats per token, as decimal strings."""

    round: int
    at: datetime
    seconds: float | None = Field(description="Since the previous round.")
    validation_loss: str | None = Field(description="Null if unknown; computed concurrently with later rounds.")
    validation_error: str | None = Field(description="Standard error of the loss, in nats per token.")
    train_loss: str | None = Field(description="Mean over the included units, as their nodes reported it.")
    units_included: int
    units_excluded: int
    units_lost: int
    rollback_reason: str | None = Field(
        description="Fault for which the round repeats an earlier model, such as loss_spike; null otherwise."
    )


class JobMetrics(BaseModel):
    rounds: list[RoundMetrics]


class FindingCode(StrEnum):
    """Reasons why a job waits, or that it does not wait. Codes are stable; sentences are not."""

    DEPOSIT_PENDING = "deposit_pending"
    PAUSED = "paused"
    MATCHED = "matched"
    SLOTS_VACANT = "slots_vacant"
    BEING_EVALUATED = "being_evaluated"
    FEW_VERIFIERS = "few_verifiers"
    PROBES_DIFFER = "probes_differ"
    ROLLED_BACK = "rolled_back"
    DIVERGED = "diverged"
    ENDED = "ended"
    WAIT_OVER = "wait_over"
    NEXT_ROUND = "next_round"
    LOT_PENDING = "lot_pending"
    RESERVATION = "reservation"
    BUDGET_CAPS_PRICE = "budget_caps_price"
    LIMIT_BELOW_RESERVE = "limit_below_reserve"
    NO_NODES = "no_nodes"
    NO_SUITABLE_NODES = "no_suitable_nodes"
    GANG_TOO_LARGE = "gang_too_large"
    ASKS_ABOVE_LIMIT = "asks_above_limit"
    NODES_BUSY = "nodes_busy"
    RESERVED_FOR_OTHERS = "reserved_for_others"
    OUTBID = "outbid"
    EXPIRES_FIRST = "expires_first"


class Finding(BaseModel):
    code: FindingCode
    sentence: str


class ConstraintView(BaseModel):
    code: str = Field(
        description="not_active, silent, no_ask, region, environment_class, gpu_memory, speed, reliability, "
        "attestation, price, busy or reserved"
    )
    sentence: str
    removes: int = Field(description="Nodes that this constraint alone removes.")
    left: int = Field(description="Nodes left after this constraint and all before it.")


class BookChance(BaseModel):
    """One order book of the job, for one environment class. All nodes of a job are of one class."""

    book: str
    environment_class: str
    suitable: int = Field(description="Nodes with an open ask that meet the requirements.")
    affordable: int = Field(description="Suitable nodes that ask at most the job's limit.")
    free: int = Field(description="Affordable nodes that could be sold to it now.")
    price_now_wei_per_gpu_hour: WeiOut | None = Field(
        description="Price that would serve it now if its limit allowed it, rounded up to a hundredth of the reserve; "
        "null if no price would."
    )
    last_price_wei_per_gpu_hour: WeiOut | None
    next_round_at: datetime | None
    expected_at: datetime | None = Field(
        description="Time at which enough nodes are free, estimated from running jobs' rounds; null if unknown."
    )


class Change(BaseModel):
    field: str = Field(description="Field of the submission.")
    sentence: str


class Why(BaseModel):
    """Reasons why a job is not matched, from the current market."""

    job_id: str
    status: str
    reason: str | None
    nodes: int
    limit_price_wei_per_gpu_hour: WeiOut | None = Field(
        description="The lower of max_price and the price that the budget pays; null if the job does not wait."
    )
    nodes_total: int = Field(description="Nodes with the tier.")
    findings: list[Finding] = Field(description="The most important first.")
    constraints: list[ConstraintView]
    books: list[BookChance]
    expected_at: datetime | None = Field(description="Earliest time over all books.")
    changes: list[Change] = Field(
        description="Helpful changes. The order is signed: cancel the job for a full refund, and submit a new one."
    )
