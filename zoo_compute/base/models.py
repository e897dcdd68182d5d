"""Typed answers of the market. Amounts are ``int`` wei; unknown keys are ignored."""

from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainSerializer


def _integer(value: object) -> object:
    return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else value


Wei = Annotated[int, BeforeValidator(_integer), PlainSerializer(str, return_type=str, when_used="json")]
"""Wei of ZEN. JSON has a decimal string, because most JSON readers round numbers beyond 2^53."""


class Answer(BaseModel):
    """Base of all answers."""

    model_config = ConfigDict(frozen=True, extra="ignore", protected_namespaces=())


class Tier(Answer):
    """Tier of the network; prices in wei per GPU-hour, speed in FLOP/s of one GPU by precision."""

    id: int
    gpus: int
    reserve_price_wei: Wei
    minimum_stake_wei: Wei
    reference_flops_per_gpu: dict[str, int]


class Network(Answer):
    """Parameters and addresses of the network that a market serves."""

    name: str
    chain_id: int
    rpc_url: str
    gateway_url: str
    gateway_urls: list[str] = []
    contracts: dict[str, str]
    start_block: int = 0  # of their deployment
    max_blob_bytes: int = 64 * 1024 * 1024
    fee_bps: int
    sampling_floor_bps: int
    challenge_seconds: int
    verifier_minimum_stake_wei: Wei
    tiers: dict[str, Tier]

    @property
    def gateways(self) -> list[str]:
        """Gateways of its content. Clients ask all of them in parallel."""
        return self.gateway_urls or [self.gateway_url]


class Quote(Answer):
    """The market's unsigned proposal of an order and its cost."""

    spec: dict[str, Any]
    spec_hash: str
    settings_by_size: dict[str, Any] = {}
    rate_schedule: str = ""
    advice: list[dict[str, Any]] = []
    tier: str
    units: int
    unit_weight_us: int
    gpus: int | None = None  # of a node of the tier
    gpus_in_use: int | None = None  # of them, by a unit
    segments_per_unit: int
    validation_samples: int = 0  # that each unit evaluates on its checkpoint
    flops_per_gpu: int | None = None  # in the job's precision, that weight and price count on
    peak_share_bps: int | None = None  # its share of the dense peak
    min_mflops: int = 0  # lowest benchmark speed of a node that is offered the units
    unit_memory_bytes: int | None = None
    node_memory_bytes: int | None = None
    unit_price_at_reserve_wei: Wei
    unit_price_at_max_price_wei: Wei
    cost_at_reserve_wei: Wei
    cost_at_max_price_wei: Wei
    cost_at_last_price_wei: Wei | None = None
    last_price_wei: Wei | None = None
    highest_payable_price_wei: Wei
    reserve_price_wei: Wei
    fee_bps: int
    sampling_bps: int  # lowest rate at which segments are sampled
    detection_probability: float  # of one false segment, in a new provider's unit
    least_detection_probability: float  # the same at the lowest rate
    expected_seconds: float | None = None
    expected_throughput: dict[str, Any] | None = None
    nonce: Wei
    order: dict[str, Any]
    balance_wei: Wei  # for new orders
    deposit_needed_wei: Wei


class Deposit(Answer):
    """Deposit that the market relays. ``status`` mined or final: it is in the balance."""

    id: int
    amount_wei: Wei
    status: str
    reason: str | None
    tx: str | None


class Balance(Answer):
    """Balance of the account in the escrow; orders that are not opened yet take ``pending_wei``."""

    available_wei: Wei
    balance_wei: Wei
    pending_wei: Wei
    wallet_wei: Wei
    deposits: list[Deposit]
    permit: dict[str, Any] | None = None

    @property
    def uncommitted_wei(self) -> int:
        """Return the wei for new orders; negative if pending orders exceed the balance."""
        return self.balance_wei - self.pending_wei

    @property
    def permit_message(self) -> dict[str, Any]:
        """Return the message of the permit to sign; the answer to a request for a deposit."""
        return {} if self.permit is None else dict(self.permit["message"])


class Progress(Answer):
    """Progress of a job."""

    round: int
    rounds: int
    units: dict[str, int]
    validation_loss: str | None
    validation_error: str | None = None


class JobState(Answer):
    """State of a job; ``reason`` is the cause of its ``status``."""

    id: str
    name: str | None = None
    payer: str
    status: str
    reason: str | None
    tier: str
    nodes: int
    rounds: int
    spec: dict[str, Any]
    units_ordered: int
    unit_weight_us: int
    sampling_bps: int
    budget_wei: Wei
    max_price_wei: Wei
    wait_until: datetime
    price_cap_wei: Wei | None = None  # current bid per GPU-hour; max_price_wei and wait_until are the order's
    expires_at: datetime | None = None
    paused_at: datetime | None = None
    cancel_requested: bool = False
    organisation_id: int | None = None
    escrowed_wei: Wei
    clearing_price_wei_per_gpu_hour: Wei | None
    paid_wei: Wei | None
    fee_wei: Wei | None
    refund_wei: Wei | None
    open_tx: str | None
    settlement_tx: str | None
    progress: Progress
    initial_loss: str | None
    final_loss: str | None
    final_error: str | None = None
    final_model_cid: str | None
    created_at: datetime
    matched_at: datetime | None
    first_step_at: datetime | None
    settled_at: datetime | None

    @property
    def is_paused(self) -> bool:
        """Return true for a job that is paused; one that ended keeps ``paused_at``."""
        return self.paused_at is not None and self.status in ("matching", "running")

    @property
    def is_over(self) -> bool:
        """Return true for a final status."""
        return self.status in ("settled", "rejected")

    @property
    def is_successful(self) -> bool:
        """Return true for a settled job with a trained model."""
        return self.status == "settled" and self.reason == "completed"

    def __await__(self) -> Any:
        """Support ``await job.wait()``: ``wait`` blocks, so this returns at once."""
        yield from ()
        return self


class Checkpoint(Answer):
    """The model after ``round`` rounds; ``cid`` is its manifest."""

    round: int
    cid: str
    model_cid: str
    validation_loss: str | None
    validation_error: str | None = None
    validation_samples: int | None = None
    pins: list[str]


class Provider(Answer):
    """A node that trains (kind provider) or replays (kind verifier)."""

    address: str
    kind: str
    name: str
    region: str
    environment_class: str
    status: str
    reason: str | None
    tier: str | None
    stake_wei: Wei
    reliability_bps: int
    last_seen_at: datetime | None


class OpenWork(Answer):
    """Work of the account's node that is not over: jobs, and units without a decision."""

    job_ids: list[str]
    undecided_units: int


class Claim(Answer):
    """Pay that a provider can claim from one settlement batch, for its units in these jobs."""

    job_ids: list[str]
    batch_id: int
    amount_wei: Wei
    proof: list[str]
    claimable_at: datetime
    claim_tx: str | None


class RewardProof(Answer):
    """Claimable rewards of a posted epoch; ``cumulative_wei``: all that was ever earned."""

    epoch: int
    root: str
    cumulative_wei: Wei
    amount_wei: Wei
    proof: list[str]
    claimable_at: datetime


class RewardEarned(Answer):
    """Rewards of an account for the days ``first_epoch`` to ``last_epoch`` (days since 1970)."""

    post: int
    first_epoch: int
    last_epoch: int
    base_wei: Wei
    bandwidth_wei: Wei
    verifier_wei: Wei


class Rewards(Answer):
    """Rewards of an account for uptime, bandwidth and verification, claimable or pending."""

    account: str
    claimed_wei: Wei
    claimable: RewardProof | None
    pending: RewardProof | None
    earnings: list[RewardEarned]
    next_after: int | None


class OmissionClaim(Answer):
    """Omission claim for an acknowledged unit commitment: open, answered or compensated."""

    unit_id: str
    status: str
    include_by: datetime
    deadline: datetime
    compensation_wei: Wei | None
    tx: str | None


class Event(Answer):
    """Event of a job. ``kind``: status, step, unit, checkpoint, pin, round and others."""

    id: int
    kind: str
    data: dict[str, Any]
