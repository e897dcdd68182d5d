"""JSON of reports on a job."""

from datetime import datetime
from enum import StrEnum

from pydantic import BaseModel, Field

from market.platform.http.types import WeiOut


class RoundMetrics(BaseModel):
    """One round. Losses in nats per token, as decimal strings."""

    round: int
    at: datetime
    seconds: float | None = Field(description="Since the round before.")
    validation_loss: str | None = Field(description="None until it is computed, beside the rounds that follow.")
    train_loss: str | None = Field(description="Mean of what the nodes whose work was included reported.")
    units_included: int
    units_excluded: int
    units_lost: int


class JobMetrics(BaseModel):
    rounds: list[RoundMetrics]


class FindingCode(StrEnum):
    """What keeps a job waiting, or that it does not wait. Codes are stable; sentences are not."""

    DEPOSIT_PENDING = "deposit_pending"
    MATCHED = "matched"
    SLOTS_VACANT = "slots_vacant"
    FEW_VERIFIERS = "few_verifiers"
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
        description="not_active, silent, no_ask, region, environment_class, gpu_memory, reliability, attestation, "
        "price, busy or reserved"
    )
    sentence: str
    removes: int = Field(description="Nodes that this constraint alone removes.")
    left: int = Field(description="Nodes left after this constraint and all before it.")


class BookChance(BaseModel):
    """One book that the job stands in, for one environment class, since all its nodes must be of one."""

    book: str
    environment_class: str
    suitable: int = Field(description="Nodes that stand in the book and meet the requirements.")
    affordable: int = Field(description="Those of them that ask no more than the job's limit.")
    free: int = Field(description="Those of them that could be sold to it now.")
    price_now_wei_per_gpu_hour: WeiOut | None = Field(
        description="At which it would be served now if its limit allowed it, rounded up to a hundredth of the "
        "reserve; null if at no price."
    )
    last_price_wei_per_gpu_hour: WeiOut | None
    next_round_at: datetime | None
    expected_at: datetime | None = Field(
        description="When enough nodes will be free by the measured rounds of running jobs; null if they do not tell."
    )


class Change(BaseModel):
    field: str = Field(description="Of the submission.")
    sentence: str


class Why(BaseModel):
    """Why a job has not been matched, from what stands in the market now."""

    job_id: str
    status: str
    reason: str | None
    nodes: int
    limit_price_wei_per_gpu_hour: WeiOut | None = Field(
        description="Lower of max_price and what the budget pays; null if it does not wait."
    )
    nodes_total: int = Field(description="Nodes that earned the tier.")
    findings: list[Finding] = Field(description="The most important first.")
    constraints: list[ConstraintView]
    books: list[BookChance]
    expected_at: datetime | None = Field(description="The earliest of all books.")
    changes: list[Change] = Field(
        description="What would help. An order is signed: cancel the job, which refunds it in full, and submit anew."
    )
