"""Requests and answers of orders. Amounts: decimal wei; times: ISO 8601 in UTC."""

from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import AwareDatetime, BaseModel, Field, model_validator
from pydantic_core import PydanticCustomError

from market.domain.lifecycle import JobStatus
from market.orders.quote_advice import Advice, ExpectedThroughput
from market.platform.http.types import HashString, Instant, RequestModel, RowId, SignatureString, WeiOut, WeiString
from market.training.leases.schemas import NodeReport

MAX_NODES = 256


class CheckpointOptions(RequestModel):
    """Storage of checkpoints during training."""

    interval: int = Field(
        default=1,
        ge=1,
        le=10_000,
        description="Rounds between pinned checkpoints. The initial and the final one are always pinned.",
    )
    storage: Literal["ipfs"] = "ipfs"
    redundancy: int = Field(default=3, ge=1, le=16, description="Distinct nodes that must prove a copy.")


JobName = Annotated[str, Field(pattern="^[a-z0-9][a-z0-9-]{0,47}$")]
Region = Annotated[str, Field(min_length=1, max_length=32, pattern="^[a-z0-9-]+$", examples=["eu-west"])]


class Requirements(RequestModel):
    """Requirements on nodes besides the tier. Unknown keys are refused."""

    regions: list[Region] = Field(default=[], max_length=64, description="Allowed regions; empty: all.")
    excluded_regions: list[Region] = Field(default=[], max_length=64, description="Excluded regions.")
    environment_classes: list[HashString] = Field(
        default=[], max_length=64, description="Allowed environment classes, as providers list them; empty: all."
    )
    min_gpu_memory_gb: float = Field(
        default=0,
        ge=0,
        le=10_000,
        allow_inf_nan=False,
        description="Memory of each GPU in GB, as nodes declare it; 2 % less suffices.",
    )
    min_reliability_bps: int = Field(default=0, ge=0, le=10_000, description="Reliability score; 10,000 is the best.")
    attested_only: bool = Field(default=False, description="Only nodes with their key in an attested environment.")

    @model_validator(mode="after")
    def _leave_a_region(self) -> Self:
        if self.regions and set(self.regions) <= set(self.excluded_regions):
            raise PydanticCustomError("no_region", "excluded_regions contains all of regions; remove one of them")
        return self


class JobSpec(RequestModel):
    """A training job with its payer's budget and price limit."""

    model_settings: dict[str, Any] = Field(
        default_factory=dict,
        alias="model_config",
        description="Settings of a new model, or {base: CID}: the manifest of a base model, which has the others.",
    )
    adapter_settings: dict[str, Any] | None = Field(
        default=None,
        alias="adapter_config",
        description="Settings of a LoRA adapter to train on the frozen base; null trains all parameters.",
    )
    data_settings: dict[str, Any] = Field(alias="data_config")
    training_settings: dict[str, Any] = Field(
        default_factory=dict,
        alias="training_config",
        description="Settings of the training. Its length is in rounds, or in epochs: a number, also a fraction, of "
        "passes over the training split, which the market rounds up to whole rounds.",
    )
    name: JobName | None = Field(default=None, description="Name in lists; need not be unique.")
    tier: str = Field(examples=["bronze"], max_length=32)
    nodes: int = Field(ge=1, le=MAX_NODES, description="Parallel replicas, one node each.")
    budget_max: WeiString = Field(description="Wei of ZEN in escrow; the upper bound of the cost.")
    max_price: WeiString = Field(description="Highest price in wei of ZEN per GPU-hour, fee included.")
    wait_until: Instant = Field(description="End of the wait for capacity, in whole seconds.")
    requirements: Requirements = Field(default_factory=Requirements)
    checkpoint: CheckpointOptions = Field(default_factory=CheckpointOptions)
    sampling_bps: int | None = Field(
        default=None,
        ge=1,
        le=10_000,
        description="Minimum share of each unit's segments that is replayed, in basis points: from the network's "
        "sampling_floor_bps, the default, to its newcomer_sampling_bps.",
    )

    def sections(self) -> dict[str, Any]:
        """Return the sections of the training specification, as they are given."""
        return {
            "model_config": self.model_settings,
            "adapter_config": self.adapter_settings,
            "data_config": self.data_settings,
            "training_config": self.training_settings,
        }


class SubmitJob(JobSpec):
    """A quoted job with the payer's signature over its order."""

    nonce: WeiString = Field(description="The nonce in the quote's order.")
    order_signature: SignatureString
    organisation: RowId | None = Field(
        default=None, description="Submit it for an organisation: its members see it and its caps apply."
    )


class CloneJob(RequestModel):
    """Changes against the first job."""

    name: JobName | None = Field(default=None, description="Name in lists; default: the first job's.")
    nodes: int | None = Field(
        default=None,
        ge=1,
        le=MAX_NODES,
        description="Nodes; default: as many. All settings stay, also those that the first job's nodes decided.",
    )
    budget_max: WeiString | None = None
    max_price: WeiString | None = None
    wait_until: Instant | None = None


class ExtendJob(CloneJob):
    rounds: int | None = Field(
        default=None, ge=1, le=10_000, description="Further rounds; default: the missing ones, or as many again."
    )
    final_rate_share: float | None = Field(
        default=None,
        ge=0,
        le=1,
        examples=[0.5],
        description="Share of the peak rates at the end; default: the first job's, but no more than a given start.",
    )
    start_rate_share: float | None = Field(
        default=None,
        gt=0,
        le=1,
        examples=[0.3],
        description="Share of the peak rates at the start; default: the first job's last, or first if that is 0.",
    )


class AmendJob(RequestModel):
    """Narrower terms for a waiting job, within its order. Omitted fields keep their values."""

    max_price: WeiString | None = Field(default=None, description="Wei of ZEN per GPU-hour, fee included.")
    wait_until: Instant | None = None


class JobFilters(BaseModel):
    """Filters of a list of jobs."""

    status: list[JobStatus] = Field(default_factory=list, max_length=len(JobStatus), description="One of these.")
    tier: str | None = Field(default=None, max_length=32, examples=["bronze"], description="Jobs of one tier.")
    organisation: RowId | None = Field(default=None, description="Jobs of an organisation that you belong to.")
    all: bool = Field(default=False, description="All accounts' jobs; for roles admin and treasury.")
    created_from: AwareDatetime | None = Field(default=None, description="Submitted at this time or later.")
    created_before: AwareDatetime | None = Field(default=None, description="Submitted before this time.")
    after: HashString | None = Field(default=None, description="Id of the previous page's last job.")
    limit: int = Field(default=20, ge=1, le=100, description="Maximum number.")


class Quote(BaseModel):
    """The cost of a job, and the order to sign for it.

    ``order`` is a complete EIP-712 document for ``eth_signTypedData_v4``. With eth-account, call
    ``Account.sign_typed_data(key, full_message=quote["order"])``. Integers in ``message`` are decimal strings, because
    JSON numbers cannot hold them. Both signers accept them.
    """

    spec: dict[str, Any] = Field(description="The training specification with all defaults filled in.")
    spec_hash: str
    settings_by_size: dict[str, Any] = Field(
        description="Training settings that the request omits, and that the model and the nodes decide. With up to 4 "
        "nodes: outer_learning_rate 1, outer_momentum 0, inner_steps 18 and error_feedback_decay 0.5. On a base model "
        "without an explicit optimizer: adamw with low rates. From 100 million parameters: the values of the method "
        "slow_links, unless the request names a method. With the optimizer adamw and hidden_size above 32: "
        "learning_rate, 0.032 * 32 / hidden_size. A setting in the request takes precedence."
    )
    rate_schedule: str = Field(
        description="Course of the learning rates over the job, and what a continuation keeps of the job before."
    )
    advice: list[Advice] = Field(description="Advice before signing. It does not refuse the job.")
    tier: str
    units: int = Field(description="Rounds times nodes.")
    unit_weight_us: int = Field(
        description="Size of one unit in GPU-microseconds at the reference speed. A node sells all its GPUs together, "
        "so idle ones count."
    )
    gpus: int = Field(description="GPUs of a node of the tier.")
    gpus_in_use: int = Field(description="GPUs that train a unit: as many as gradient_shards, at most those.")
    segments_per_unit: int
    validation_samples: int = Field(
        description="Validation samples that each unit evaluates on its checkpoint; weight and price include them. 0: "
        "units evaluate nothing. Unless the request has data_config.validation_samples: as many as 2 % of a unit's "
        "training allow, at most the split's."
    )
    flops_per_gpu: int = Field(description="Speed of one GPU in the job's precision that weight and price count on.")
    peak_share_bps: int = Field(description="Its share of the dense peak of the tier's GPU, in basis points.")
    min_mflops: int = Field(
        description="Lowest benchmark speed of a node that is offered the units, in 10^6 FLOP/s; 0: any of the tier."
    )
    unit_memory_bytes: int = Field(
        description="Peak memory of one unit's training, without libraries. A node with less gives the unit up as "
        "out_of_memory."
    )
    node_memory_bytes: int = Field(
        description="Memory of each GPU that the tier promises, or min_gpu_memory_gb if that is more, less 1 GB for "
        "driver and libraries. A unit that needs more is refused: invalid-order, reason unit_too_large."
    )
    unit_price_at_reserve_wei: WeiOut
    unit_price_at_max_price_wei: WeiOut
    cost_at_reserve_wei: WeiOut
    cost_at_max_price_wei: WeiOut = Field(description="Cost of all units, at most budget_max.")
    cost_at_last_price_wei: WeiOut | None = Field(description="Cost of all units; may exceed budget_max.")
    last_price_wei: WeiOut | None = Field(
        description="Last traded price of the tier in any zone, wei per GPU-hour; null before the first trade."
    )
    highest_payable_price_wei: WeiOut = Field(
        description="Maximum price of a trade, wei per GPU-hour: max_price, or less if budget_max pays less per unit."
    )
    reserve_price_wei: WeiOut
    fee_bps: int
    newcomer_sampling_bps: int
    sampling_bps: int = Field(description="Minimum sampling rate of a unit's segments, as in the order.")
    detection_probability: float = Field(
        description="Probability that one false segment in a newcomer's unit is replayed: 1 - C(N-1, q) / C(N, q), "
        "averaged over the number q of sampled segments out of N. With attested_only, at the rate of an attested "
        "newcomer: half the rate, at least sampling_bps."
    )
    least_detection_probability: float = Field(
        description="The same at sampling_bps, the rate of a provider with long correct work."
    )
    expected_seconds: float = Field(
        description="Time to train all rounds at the tier's reference speed, without waits, transfers and repeated "
        "rounds."
    )
    expected_throughput: ExpectedThroughput
    nonce: WeiOut
    order: dict[str, Any]
    balance_wei: WeiOut = Field(description="Wei of the caller's balance for new orders: see GET /v1/balance.")
    deposit_needed_wei: WeiOut = Field(description="Wei that budget_max exceeds the balance by; 0 if it suffices.")


class ProposedJob(BaseModel):
    """A job to sign. Send ``request`` with the signatures to POST /v1/jobs."""

    request: dict[str, Any]
    quote: Quote


class Progress(BaseModel):
    round: int = Field(description="Rounds completed.")
    rounds: int
    units: dict[str, int] = Field(description="Number of units by status.")
    validation_loss: str | None
    validation_error: str | None = Field(description="Standard error of the loss, in nats per token.")


class JobView(BaseModel):
    """A job as its payer sees it. ``status`` and its ``reason`` are stable codes."""

    id: str
    name: str | None
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
    sampling_bps: int = Field(description="Minimum sampling rate of a unit's segments, as in the order.")
    budget_wei: WeiOut
    max_price_wei: WeiOut
    wait_until: datetime
    price_cap_wei: WeiOut = Field(description="Current maximum bid in wei per GPU-hour.")
    expires_at: datetime = Field(description="Current end of its wait.")
    paused_at: datetime | None
    cancel_requested: bool = Field(description="It is cancelled and refunded once its deposit is final.")
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
    final_error: str | None = Field(description="Standard error of the final loss, in nats per token.")
    final_model_cid: str | None = Field(description="Model after the last round; null if the job ended early.")
    created_at: datetime
    funded_at: datetime | None
    matched_at: datetime | None
    first_step_at: datetime | None
    trained_at: datetime | None
    settled_at: datetime | None


class JobPage(BaseModel):
    jobs: list[JobView]
    next: str | None = Field(description="Pass it as `after` for the next page; null on the last one.")


class UnitView(BaseModel):
    id: int
    round: int
    slot: int
    provider: str
    status: str
    reason: str | None
    included: bool | None = Field(description="True if an aggregation used the payload, also one of a later round.")
    top_k: int | None = Field(description="Assigned number of entries per 4096 parameters.")
    rounds_late: int | None = Field(description="Rounds that had closed since its own round at the delivery.")
    exclusion_reason: str | None
    doubts: list[str] | None = Field(
        description="Outlier flags of the payload against the round's others, and `worse_model` for all before a worse "
        "model. They raise the node's sampling rate and have no penalty. Null: not examined."
    )
    trace_root: str | None
    payload_hash: str | None
    payload_cid: str | None
    train_loss: str | None
    report: NodeReport | None = Field(description="Resource usage as its node reported it; null without a report.")
    tolerated_segments: list[int] | None = Field(
        description="Sampled segments that passed a cross-class check instead of a replay in the job's environment "
        "class. A check within tolerance is weaker than equal bits."
    )
    committed_at: datetime | None
    uploaded_at: datetime | None
    decided_at: datetime | None
    dispute_id: str | None = Field(description="The market's on-chain dispute of it: /v1/disputes/{id}.")


class CheckpointView(BaseModel):
    round: int
    cid: str
    model_cid: str
    validation_loss: str | None = Field(description="Null if unknown; computed concurrently with later rounds.")
    validation_error: str | None = Field(description="Standard error of the loss, in nats per token.")
    validation_samples: int | None = Field(description="Number of samples that the loss is of.")
    pins: list[str] = Field(description="Nodes that proved a copy.")
    created_at: datetime


class NewDeposit(RequestModel):
    """A deposit with the caller's signature over its EIP-2612 permit."""

    amount: WeiString = Field(description="Wei of ZEN to move from the wallet into the balance.")
    permit_nonce: WeiString = Field(description="The nonce in the signed permit.")
    deadline: int = Field(ge=0, lt=2**53, description="The deadline in the signed permit, in Unix seconds.")
    signature: SignatureString


class DepositView(BaseModel):
    """A deposit that the market relays."""

    id: int
    amount_wei: WeiOut
    permit_nonce: WeiOut
    status: str = Field(
        description="queued, signed or broadcast: not on chain yet. mined: in the balance. final: it cannot be "
        "reorganised any more. reverted: nothing moved; see reason."
    )
    reason: str | None
    tx: str | None
    created_at: datetime


class BalanceView(BaseModel):
    """A payer's balance in the escrow contract, at the latest block."""

    available_wei: WeiOut = Field(description="Wei for new orders: balance_wei minus pending_wei.")
    balance_wei: WeiOut = Field(description="Wei in the contract; the payer can withdraw them at any time.")
    pending_wei: WeiOut = Field(description="Budgets of submitted jobs that are not opened yet.")
    wallet_wei: WeiOut
    deposits: list[DepositView] = Field(description="Deposits by the market, newest first, at most 20.")
    permit: dict[str, Any] | None = Field(
        description="With the parameter `deposit`: the EIP-712 document to sign for a deposit of this amount. It takes "
        "the nonce after all queued deposits."
    )
