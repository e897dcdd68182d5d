"""Requests and answers of quotes and jobs. Amounts are decimal strings of wei, times ISO 8601 in UTC."""

from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import AwareDatetime, BaseModel, Field, model_validator
from pydantic_core import PydanticCustomError

from market.domain.lifecycle import JobStatus
from market.orders.quote_advice import Advice, ExpectedThroughput
from market.platform.http.types import HashString, RequestModel, RowId, SignatureString, WeiOut, WeiString
from market.training.leases.schemas import NodeReport

MAX_NODES = 64


class CheckpointOptions(RequestModel):
    """How the model is kept while it trains."""

    interval: int = Field(
        default=1,
        ge=1,
        le=10_000,
        description="Every how many rounds a checkpoint is pinned; the initial and the final one always are.",
    )
    storage: Literal["ipfs"] = "ipfs"
    redundancy: int = Field(default=3, ge=1, le=16, description="Distinct nodes that must prove they hold a copy.")


Region = Annotated[str, Field(min_length=1, max_length=32, pattern="^[a-z0-9-]+$", examples=["eu-west"])]


class Requirements(RequestModel):
    """Wishes beyond the tier; a key that is not known is refused rather than ignored."""

    regions: list[Region] = Field(default=[], max_length=64, description="Where it may run; empty: anywhere.")
    excluded_regions: list[Region] = Field(default=[], max_length=64, description="Where it may not.")
    environment_classes: list[HashString] = Field(
        default=[], max_length=64, description="Classes that it may run in, as providers list them; empty: any."
    )
    min_gpu_memory_gb: float = Field(
        default=0, ge=0, le=10_000, allow_inf_nan=False, description="Of each GPU, as nodes declare it."
    )
    min_reliability_bps: int = Field(default=0, ge=0, le=10_000, description="10,000 is the best.")
    attested_only: bool = Field(default=False, description="Only nodes whose key lives in an attested environment.")

    @model_validator(mode="after")
    def _leave_a_region(self) -> Self:
        if self.regions and set(self.regions) <= set(self.excluded_regions):
            raise PydanticCustomError("no_region", "excluded_regions leaves none of regions; take one of them out")
        return self


class JobSpec(RequestModel):
    """A training job and what its payer offers for it."""

    model_settings: dict[str, Any] = Field(default_factory=dict, alias="model_config")
    data_settings: dict[str, Any] = Field(alias="data_config")
    training_settings: dict[str, Any] = Field(default_factory=dict, alias="training_config")
    tier: str = Field(examples=["bronze"], max_length=32)
    nodes: int = Field(ge=1, le=MAX_NODES, description="Workers that train at the same time, one slot each.")
    budget_max: WeiString = Field(description="Wei of ZEN put in escrow; never more is spent.")
    max_price: WeiString = Field(description="Highest price in wei of ZEN per GPU-hour, fee included.")
    wait_until: AwareDatetime = Field(description="Until when to wait for capacity, in whole seconds.")
    requirements: Requirements = Field(default_factory=Requirements)
    checkpoint: CheckpointOptions = Field(default_factory=CheckpointOptions)
    sampling_bps: int | None = Field(
        default=None,
        ge=1,
        le=10_000,
        description="Lowest share of each unit's segments that is replayed, in basis points, whoever delivers it: from "
        "the network's sampling_floor_bps, which is the default, to its newcomer_sampling_bps.",
    )


class SignedPermit(RequestModel):
    """The payer's EIP-2612 permit over exactly ``budget_max`` for the escrow contract."""

    deadline: int = Field(ge=0, lt=2**53, description="Unix seconds, as in the signed document.")
    signature: SignatureString


class SubmitJob(JobSpec):
    """A quoted job with the payer's two signatures."""

    nonce: WeiString = Field(description="The nonce in the quote's order.")
    order_signature: SignatureString
    permit: SignedPermit
    organisation: RowId | None = Field(
        default=None, description="Submit it in the name of an organisation: its members see it, its caps apply."
    )


class CloneJob(RequestModel):
    """What is to differ from the first job."""

    nodes: int | None = Field(default=None, ge=1, le=MAX_NODES)
    budget_max: WeiString | None = None
    max_price: WeiString | None = None
    wait_until: AwareDatetime | None = None


class ExtendJob(CloneJob):
    rounds: int | None = Field(
        default=None, ge=1, le=10_000, description="Further rounds; default: those it did not do, or as many again."
    )


class AmendJob(RequestModel):
    """Narrower terms for a waiting job. The signed order's are the outer limits; what is left out stays."""

    max_price: WeiString | None = Field(default=None, description="Wei of ZEN per GPU-hour, fee included.")
    wait_until: AwareDatetime | None = None


class JobFilters(BaseModel):
    """Which jobs to list."""

    status: list[JobStatus] = Field(default_factory=list, max_length=len(JobStatus), description="Any of these.")
    tier: str | None = Field(default=None, max_length=32, examples=["bronze"], description="Those of one tier.")
    organisation: RowId | None = Field(default=None, description="Those of an organisation that you are in.")
    all: bool = Field(default=False, description="Everybody's, if you are an admin or of the treasury.")
    created_from: AwareDatetime | None = Field(default=None, description="Submitted at this instant or later.")
    created_before: AwareDatetime | None = Field(default=None, description="Submitted before this instant.")
    after: HashString | None = Field(default=None, description="Id of the last job of the page before.")
    limit: int = Field(default=20, ge=1, le=100, description="How many at most.")


class Quote(BaseModel):
    """What a job would cost, and the two documents to sign for it.

    ``order`` and ``permit`` are complete EIP-712 documents for ``eth_signTypedData_v4``; for eth-account:
    ``Account.sign_typed_data(key, full_message=quote["order"])``. Integers in ``message`` are decimal strings, since a
    JSON number cannot hold them; both kinds of signer take them so.
    """

    spec: dict[str, Any] = Field(description="The training specification with all defaults filled in.")
    spec_hash: str
    settings_by_size: dict[str, Any] = Field(
        description="Of the training settings in spec, those that the request left out and that the model's size "
        "decided: with 100 million parameters or more the values of the method slow_links, unless a method is named; "
        "with the optimizer adamw and a hidden_size above 32 its learning_rate, 0.032 * 32 / hidden_size. Naming "
        "the setting itself decides otherwise."
    )
    advice: list[Advice] = Field(description="What to look at before signing; nothing of it refuses the job.")
    tier: str
    units: int = Field(description="Rounds times nodes.")
    unit_weight_us: int = Field(description="Size of one unit in reference GPU-microseconds.")
    segments_per_unit: int
    unit_price_at_reserve_wei: WeiOut
    unit_price_at_max_price_wei: WeiOut
    cost_at_reserve_wei: WeiOut
    cost_at_max_price_wei: WeiOut = Field(description="Of all units; never more than budget_max.")
    cost_at_last_price_wei: WeiOut | None = Field(description="Of all units; may be beyond budget_max.")
    last_price_wei: WeiOut | None = Field(
        description="Wei per GPU-hour at which the tier traded last, in whatever zone; null if it never did."
    )
    highest_payable_price_wei: WeiOut = Field(
        description="Wei per GPU-hour: the lower of max_price and what budget_max pays for all units. "
        "The job trades at no more than this."
    )
    reserve_price_wei: WeiOut
    fee_bps: int
    newcomer_sampling_bps: int
    sampling_bps: int = Field(description="Lowest rate at which a unit's segments are drawn, as the order says.")
    detection_probability: float = Field(
        description="Chance that one falsified segment in a newcomer's unit is replayed: 1 - C(N-1, q) / C(N, q), "
        "averaged over the number q of its N segments that are drawn. An attested newcomer's are drawn at half the "
        "rate, never below sampling_bps; with attested_only that is what is stated."
    )
    least_detection_probability: float = Field(
        description="The same at sampling_bps, the rate for who has delivered clean work for long."
    )
    expected_seconds: float = Field(
        description="Time to train all rounds at the tier's reference speed. Waiting, transfers, and rounds that are "
        "done over come on top."
    )
    expected_throughput: ExpectedThroughput
    nonce: WeiOut
    permit_deadline: int
    order: dict[str, Any]
    permit: dict[str, Any]


class ProposedJob(BaseModel):
    """A job to sign: send ``request`` with the signatures of ``quote``'s documents to POST /v1/jobs."""

    request: dict[str, Any]
    quote: Quote


class Progress(BaseModel):
    round: int = Field(description="Rounds completed.")
    rounds: int
    units: dict[str, int] = Field(description="Number of units by status.")
    validation_loss: str | None


class JobView(BaseModel):
    """A job as its payer sees it. ``status`` says where it is, ``reason`` why it got there (stable codes)."""

    id: str
    payer: str
    status: str
    reason: str | None
    tier: str
    nodes: int
    rounds: int
    spec: dict[str, Any]
    spec_hash: str
    spec_cid: str
    checkpoint: dict[str, Any]
    requirements: dict[str, Any]
    units_ordered: int
    unit_weight_us: int
    sampling_bps: int = Field(description="Lowest rate at which a unit's segments are drawn, as the order says.")
    budget_wei: WeiOut
    max_price_wei: WeiOut
    wait_until: datetime
    price_cap_wei: WeiOut = Field(description="What it bids at most now, in wei per GPU-hour.")
    expires_at: datetime = Field(description="Until when it waits now.")
    paused_at: datetime | None
    cancel_requested: bool = Field(description="It is cancelled and refunded as soon as its deposit is final.")
    organisation_id: int | None
    nonce: WeiOut
    escrowed_wei: WeiOut
    fee_bps: int | None
    clearing_price_wei_per_gpu_hour: WeiOut | None
    unit_price_wei: WeiOut | None
    paid_wei: WeiOut | None
    fee_wei: WeiOut | None
    refund_wei: WeiOut | None
    open_tx: str | None
    settlement_tx: str | None
    record_cid: str | None
    environment_class: str | None
    progress: Progress
    initial_loss: str | None
    final_loss: str | None
    final_model_cid: str | None
    created_at: datetime
    funded_at: datetime | None
    matched_at: datetime | None
    first_step_at: datetime | None
    trained_at: datetime | None
    settled_at: datetime | None


class JobPage(BaseModel):
    jobs: list[JobView]
    next: str | None = Field(description="Give it as `after` to get the next page; null at the end.")


class UnitView(BaseModel):
    id: int
    round: int
    slot: int
    provider: str
    status: str
    reason: str | None
    included: bool | None = Field(description="Whether the payload is in its round's aggregate, or if late in a later.")
    top_k: int | None = Field(description="Entries per 4096 parameters that it was told to send.")
    rounds_late: int | None = Field(description="How many rounds had closed since its own when it was delivered.")
    exclusion_reason: str | None
    doubts: list[str] | None = Field(
        description="What is unusual about the payload beside the round's others. It costs nothing: more of the "
        "node's next segments are replayed. Null: not examined."
    )
    trace_root: str | None
    payload_hash: str | None
    payload_cid: str | None
    train_loss: str | None
    report: NodeReport | None = Field(description="What its node said that it took; null if it said nothing.")
    tolerated_segments: list[int] | None = Field(
        description="Drawn segments that no verifier of the job's environment class replayed, but one of another, "
        "whose result was near: weaker than equal bits."
    )
    committed_at: datetime | None
    uploaded_at: datetime | None
    decided_at: datetime | None
    dispute_id: str | None = Field(description="Of the dispute on chain that we brought over it: /v1/disputes/{id}.")


class CheckpointView(BaseModel):
    round: int
    cid: str
    model_cid: str
    validation_loss: str | None = Field(description="None until it is computed, beside the rounds that follow.")
    pins: list[str] = Field(description="Nodes that proved to hold a copy.")
    created_at: datetime
