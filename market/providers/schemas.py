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
Gigabytes = Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)]
Uint32 = Annotated[int, Field(ge=1, lt=2**32)]


class Hardware(RequestModel):
    """What the node says that it has; a tier is earned by benchmark, never by this."""

    gpu_model: Annotated[str, Field(max_length=64, examples=["A100 40GB"])]
    gpu_count: Annotated[int, Field(ge=0, le=1024)]
    gpu_memory_gb: Gigabytes
    ram_gb: Gigabytes
    network_gbps: Gigabytes


Place = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._-]*$")]


class RegistrationRequest(RequestModel):
    name: Annotated[str, Field(min_length=1, max_length=64, examples=["basement-1"])]
    kind: Kind
    region: Annotated[str, Field(min_length=1, max_length=32, pattern="^[a-z0-9-]+$", examples=["eu-west"])]
    hardware: Hardware
    environment_class: Annotated[
        HashString, Field(description="Hash of what bit equality depends on: build, device model, threads, flags.")
    ]
    site: Annotated[Place | None, Field(description="The building it stands in.", examples=["fra-3"])] = None
    asn: Annotated[Uint32 | None, Field(description="Number of its network's autonomous system.")] = None
    owner: Annotated[Place | None, Field(description="Who owns it; the same name for all your nodes.")] = None


class ProviderView(BaseModel):
    address: str
    kind: Kind
    name: str
    region: str
    hardware: dict[str, object]
    environment_class: str
    site: Annotated[str | None, Field(description="As declared, not proven; like asn, owner and hardware.")]
    asn: int | None
    owner: str | None
    round_trip_ms: Annotated[int | None, Field(description="To the market, as the node measured it.")]
    status: str
    reason: str | None
    tier: str | None
    stake_wei: WeiOut
    reliability_bps: int = Field(
        description="Score from work, uptime and slashes; 10,000 is best, a newcomer has 8,000."
    )
    last_seen_at: datetime | None
    registered_at: datetime
    attested_until: datetime | None = Field(
        description="End of the attestation that its key lives in an accepted environment; null if it has none."
    )
    disputed_at: datetime | None = Field(
        description="Since when we dispute a unit of its on chain: it gets no work until that has ended. Else null."
    )


class ProviderPage(BaseModel):
    items: list[ProviderView]
    next_after: Annotated[str | None, Field(description="Pass it as `after` for the next page; null on the last.")]


class PenaltyView(BaseModel):
    """The staking contract's penalty for downtime in a committed period."""

    evidence: str = Field(description="By which the contract knows it: the digest inside `evidence_cid`.")
    evidence_cid: str = Field(description="The minutes that it rests on, on storage.")
    amount_wei: WeiOut | None = Field(description="What it came to; null until it is final on chain.")
    tx: str | None


class EpochView(BaseModel):
    """What a node did in one epoch: a day, UTC. Its minutes are judged once it is over."""

    epoch: int = Field(description="Days since 1970.")
    uptime_bps: int = Field(description="Share of the minutes that counted in which it sent heartbeats.")
    counted_minutes: int = Field(description="Minutes in which the market saw at least half of its usual nodes.")
    committed_minutes: int = Field(description="Those of them that it had committed to on chain.")
    committed_up_minutes: int
    served_bytes: int
    replays: int = Field(description="Of a verifier: those that agreed with the decision.")
    verified: int
    rejected: int = Field(
        description="Units; of a verifier, replays in which two others overruled it, or whose result it never opened."
    )
    lost: int = Field(description="Units that it did not deliver; days with a late state; replays without an answer.")
    refused: int = Field(description="Of a verifier: replays that it gave back.")
    slashes: int
    penalty: PenaltyView | None


class HeartbeatRequest(RequestModel):
    busy: Annotated[bool, Field(description="Whether the node is computing; informative.")] = False
    challenge: Annotated[str, Field(max_length=66, description="The last one told; empty before the first.")] = ""
    signature: Annotated[str, Field(max_length=132, description="Your wallet's, of it: EIP-712 Heartbeat.")] = ""
    round_trip_ms: Annotated[
        int | None, Field(ge=0, le=60_000, description="Its shortest recent round trip to this API; helps placement.")
    ] = None

    session: Annotated[
        str, Field(max_length=64, description="Random id of the node's process: a wallet serves one node at a time.")
    ] = ""
    predecessors: Annotated[
        list[Annotated[str, Field(max_length=64)]],
        Field(
            default_factory=list,
            max_length=16,
            description="Ids of its earlier processes in the same directory, whose place it takes.",
        ),
    ]


class HeartbeatView(BaseModel):
    status: str
    reason: str | None
    tier: str | None
    counted: bool = Field(description="Whether this one did; if not, sign `challenge` and send another at once.")
    challenge: str = Field(description="To be signed with the next heartbeat.")
    benchmark_by: datetime | None = Field(
        description="By when it has to show its hardware again (POST /v1/benchmarks); null while it need not."
    )
    next_within_seconds: Annotated[float, Field(description="Silence beyond this takes the node out of the book.")]
    verifiers_of_class: int = Field(
        description="Live verifiers of this node's environment class. With none, what is drawn of its units waits for "
        "its pay; with fewer than two, nobody can contradict a wrong one."
    )


class BenchmarkRequest(RequestModel):
    tier: Annotated[str, Field(max_length=16, examples=["bronze"])]


class WorkView(BaseModel):
    """What a challenge asks for; `training_gym.hardware.challenge` is its definition."""

    size: int = Field(description="Rows and columns of each matrix.")
    pool: int = Field(description="Matrices that must be resident.")
    lanes: int = Field(description="Devices that work side by side.")
    rounds: int = Field(description="Products in the chain of each lane.")
    steps: int = Field(description="Of the walk of each lane.")
    opened: int = Field(description="Steps of each that are checked.")


class ChallengedView(BaseModel):
    """A challenge whose clock does not run yet."""

    id: str
    seed: str = Field(description="Of the pool.")
    work: WorkView
    tier: str
    deadline_at: datetime = Field(description="By when the pool must be ready.")


class BegunView(BaseModel):
    """The clock runs."""

    nonce: str = Field(description="From which the work starts.")
    deadline_at: datetime


class WorkCommitment(RequestModel):
    commitment: HashString


class OpeningsView(BaseModel):
    """What is to be opened, drawn after the commitment."""

    secret: str
    in_time: Annotated[bool, Field(description="Whether the work was quick enough; if not, nothing can be earned.")]
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
    """The signed EIP-712 struct, field for field."""

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
