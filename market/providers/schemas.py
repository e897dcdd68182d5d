"""Requests and responses of providers, benchmarks and asks."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from market.platform.http.types import (
    AddressString,
    CidString,
    HashString,
    RequestModel,
    SignatureString,
    WeiOut,
    WeiString,
)

Kind = Literal["provider", "verifier"]
Amount = Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)]
Gigabytes = Annotated[Amount, Field(description="In GB of 10**9 bytes, as the system reports it.")]
Uint32 = Annotated[int, Field(ge=1, lt=2**32)]


class Hardware(RequestModel):
    """Declared hardware of a node; only a benchmark earns a tier."""

    gpu_model: Annotated[str, Field(max_length=64, examples=["A100 40GB"])]
    gpu_count: Annotated[int, Field(ge=0, le=1024)]
    gpu_memory_gb: Gigabytes
    ram_gb: Gigabytes
    network_gbps: Amount
    processes: Annotated[int, Field(ge=1, le=8, description="Processes that can train a unit together.")] = 1
    network_removed: Annotated[
        bool, Field(description="False if the kernel refuses the training processes a network namespace.")
    ] = True


Place = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._-]*$")]


class RegistrationRequest(RequestModel):
    name: Annotated[str, Field(min_length=1, max_length=64, examples=["basement-1"])]
    kind: Kind
    region: Annotated[str, Field(min_length=1, max_length=32, pattern="^[a-z0-9-]+$", examples=["eu-west"])]
    hardware: Hardware
    environment_class: Annotated[
        HashString, Field(description="Hash of all that fixes the bits: build, device model, threads, flags.")
    ]
    site: Annotated[Place | None, Field(description="Building of the node.", examples=["fra-3"])] = None
    asn: Annotated[Uint32 | None, Field(description="Autonomous system number of its network.")] = None
    owner: Annotated[Place | None, Field(description="Owner; use the same name for all your nodes.")] = None


class NodeProblem(BaseModel):
    """Problem of a node that its operator can solve. It excludes no node."""

    code: str
    detail: str
    remedy: str


class ProviderView(BaseModel):
    address: str
    kind: Kind
    name: str
    region: str
    hardware: dict[str, object]
    environment_class: str
    site: Annotated[str | None, Field(description="Declared, not proven; so are asn, owner and hardware.")]
    asn: int | None
    owner: str | None
    round_trip_ms: Annotated[int | None, Field(description="To the market, measured by the node.")]
    status: str
    reason: str | None
    tier: str | None
    measured_mflops: int | None = Field(
        description="Speed in its last passed hardware benchmark, in 10^6 FLOP/s. It decides which units it is offered."
    )
    stake_wei: WeiOut
    reliability_bps: int = Field(
        description="Score from work, uptime and slashes; 10,000 is best, a newcomer has 8,000."
    )
    last_seen_at: datetime | None
    registered_at: datetime
    attested_until: datetime | None = Field(description="End of its attestation; null if it has none.")
    disputed_at: datetime | None = Field(
        description="Begin of an on-chain dispute by the market, during which the node gets no work; otherwise null."
    )
    problems: list[NodeProblem] = Field(description="Problems by what the node declared: of its sandbox, of its GPUs.")


class ProviderPage(BaseModel):
    items: list[ProviderView]
    next_after: Annotated[str | None, Field(description="`after` of the next page; null on the last one.")]


class PenaltyView(BaseModel):
    """Penalty of the staking contract for downtime in a committed period."""

    evidence: str = Field(description="Id of the penalty in the contract: the digest inside `evidence_cid`.")
    evidence_cid: str = Field(description="CID of the evidence, with the minutes.")
    amount_wei: WeiOut | None = Field(description="Slashed amount; null until it is final on chain.")
    tx: str | None


class EpochView(BaseModel):
    """Record of a node in one epoch, a UTC day. Its minutes are evaluated after its end."""

    epoch: int = Field(description="Days since 1970.")
    uptime_bps: int = Field(description="Share of the counted minutes with a heartbeat.")
    counted_minutes: int = Field(description="Minutes with heartbeats of at least half of the usual nodes.")
    committed_minutes: int = Field(description="Counted minutes that it committed to on chain.")
    committed_up_minutes: int
    served_bytes: int
    replays: int = Field(description="Replays of a verifier that agreed with the decision.")
    verified: int
    rejected: int = Field(
        description="Rejected units; for a verifier, outvoted replays and results that it never revealed."
    )
    lost: int = Field(description="Undelivered units; days with a late state; replays without an answer.")
    refused: int = Field(description="Replays that a verifier declined.")
    slashes: int
    penalty: PenaltyView | None


class HeartbeatRequest(RequestModel):
    challenge: Annotated[str, Field(max_length=66, description="Last received challenge; empty at first.")] = ""
    signature: Annotated[str, Field(max_length=132, description="Your wallet's signature of it, EIP-712.")] = ""
    round_trip_ms: Annotated[
        int | None, Field(ge=0, le=60_000, description="Shortest recent round trip to this API without waits.")
    ] = None

    session: Annotated[
        str, Field(max_length=64, description="Random id of the node's process. A wallet serves one process at a time.")
    ] = ""
    predecessors: Annotated[
        list[Annotated[str, Field(max_length=64)]],
        Field(
            default_factory=list,
            max_length=16,
            description="Ids of earlier processes in the same directory, which it replaces.",
        ),
    ]


class NodeStateView(BaseModel):
    status: str
    reason: str | None
    tier: str | None
    counted: bool = Field(description="True if this heartbeat counts. If not, sign `challenge` and poll again.")
    challenge: str = Field(description="Challenge for the next heartbeat.")
    benchmark_by: datetime | None = Field(
        description="Deadline of the next hardware benchmark (POST /v1/benchmarks); null if none is due."
    )
    next_within_seconds: Annotated[float, Field(description="Heartbeat timeout; after it the node gets no work.")]
    verifiers_of_class: int = Field(
        description="Live verifiers of this node's environment class. With none, sampled units wait for their pay. "
        "Fewer than two cannot refute a unit."
    )


class BenchmarkRequest(RequestModel):
    tier: Annotated[str, Field(max_length=16, examples=["bronze"])]


class WorkView(BaseModel):
    """Parameters of a challenge, defined in `training_gym.hardware.challenge`."""

    size: int = Field(description="Rows and columns of each matrix.")
    pool: int = Field(description="Matrices that must be resident.")
    lanes: int = Field(description="Devices that work in parallel.")
    rounds: int = Field(description="Products in the chain of each lane.")
    steps: int = Field(description="Steps of each lane's walk.")
    opened: int = Field(description="Checked steps per lane.")


class ChallengedView(BaseModel):
    """Challenge before its timed part."""

    id: str
    seed: str = Field(description="Seed of the pool.")
    work: WorkView
    tier: str
    deadline_at: datetime = Field(description="Deadline of the pool.")


class BegunView(BaseModel):
    """Challenge in its timed part."""

    nonce: str = Field(description="Start of the work.")
    deadline_at: datetime


class WorkCommitment(RequestModel):
    commitment: HashString


class OpeningsView(BaseModel):
    """Selection of the steps to open, made after the commitment."""

    secret: str
    in_time: Annotated[bool, Field(description="True if the work was fast enough for the tier.")]
    mflops: int
    answer_seconds: int


class AnswerRequest(RequestModel):
    cid: CidString


class VerdictView(BaseModel):
    passed: bool
    reason: Annotated[str, Field(description="passed, wrong_answer, too_slow, link_too_slow or too_late")]
    tier: str
    mflops: int


class AskFields(RequestModel):
    """Signed EIP-712 struct."""

    provider: AddressString
    tier: Annotated[int, Field(ge=1, le=255)]
    gpus: Uint32
    minPrice: Annotated[WeiString, Field(lt=2**96, description="Wei per GPU-hour, net of the fee.")]
    validUntil: Annotated[int, Field(ge=0, lt=2**40, description="Unix seconds.")]
    nonce: WeiString


class AskRequest(RequestModel):
    ask: AskFields
    signature: SignatureString


class AskView(BaseModel):
    id: Annotated[str, Field(description="The EIP-712 struct hash.")]
    provider: str
    tier: str
    gpus: int
    min_price_wei: WeiOut
    valid_until: datetime
    status: str
    placed_at: datetime
