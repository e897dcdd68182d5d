"""Requests and responses of leases. Times are ISO 8601 in UTC, hashes 0x hex."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Discriminator, Field, StringConstraints, Tag

from market.platform.http.types import CidString, HashString, RequestModel, SignatureString
from market.providers.schemas import HeartbeatRequest, NodeStateView
from market.training.commitments.schemas import AcknowledgementView
from training_gym.evaluate.sums import MAX_BYTES

MAX_WAIT_SECONDS = 30.0


class LeaseKind(StrEnum):
    TRAIN = "train"
    REVEAL = "reveal"
    REPLAY = "replay"
    PIN = "pin"
    PUBLISH = "publish"
    FOLLOW = "follow"
    EVALUATE = "evaluate"


Token = Annotated[str, StringConstraints(pattern=r"^0x[0-9a-f]{64}$")]

ReasonCode = Annotated[str, StringConstraints(pattern=r"^[a-z0-9_]{1,64}$")]

DecimalString = Annotated[str, StringConstraints(pattern=r"^-?[0-9]{1,12}(\.[0-9]{1,12})?$")]


class Poll(HeartbeatRequest):
    wait_seconds: float = Field(default=0, ge=0, le=MAX_WAIT_SECONDS, description="How long to wait for work.")
    kinds: list[LeaseKind] = Field(default_factory=list, max_length=len(LeaseKind), description="Work to wait for.")


class LeaseView(BaseModel):
    """Work assigned to the caller. ``token`` is needed later; ``task`` depends on ``kind``."""

    model_config = ConfigDict(frozen=True)

    id: str
    kind: LeaseKind
    job_id: str
    token: str
    task: dict[str, Any]
    expires_at: datetime
    lease_seconds: float = Field(description="A heartbeat extends the lease to this long from then.")


class PollView(NodeStateView):
    lease: LeaseView | None = Field(description="Work of one of the kinds; null if there was none.")
    waited_ms: int = Field(description="Time of this answer in which the market waited for work.")


class Heartbeat(RequestModel):
    token: Token
    step: int = Field(default=0, ge=0, lt=2**31, description="Inner steps done.")
    probe: HashString | None = Field(
        default=None,
        description="Digest of two steps of the job's shapes, before a unit whose task requests it. A node that "
        "computes otherwise than most nodes of the job loses its lease (probe_mismatch), at no cost.",
    )


class HeartbeatView(BaseModel):
    expires_at: datetime


class CommitTraining(RequestModel):
    """The signed result of a unit, before anything is revealed (EIP-712 UnitCommitment).

    With ``round_delay`` a commitment may also declare the payload and the replica state of the completion. The market
    then offers the replica's next unit at once, which starts from them.
    """

    token: Token
    trace_root: HashString
    payload_hash: HashString
    commitment_signature: SignatureString
    payload_cid: CidString | None = None
    slot_state_cid: CidString | None = None
    slot_state_digest: HashString | None = None

    @property
    def declared(self) -> tuple[str, str, str] | None:
        if self.payload_cid is None or self.slot_state_cid is None or self.slot_state_digest is None:
            return None
        return self.payload_cid, self.slot_state_cid, self.slot_state_digest


class CommitReplay(RequestModel):
    """keccak(end_leaf || verifier || salt) of a replay, with ``inner_digest`` if requested.

    The verifier signs it (EIP-712 ReplayCommitment).
    """

    token: Token
    result_hash: HashString
    commitment_signature: SignatureString


class NodeReport(RequestModel):
    """Resource usage of a unit as measured by its node. No payment or penalty depends on it."""

    compute_ms: int = Field(ge=0, lt=2**40)
    transfer_ms: int = Field(ge=0, lt=2**40, description="Time in which the node only fetched inputs or uploaded.")
    bytes_up: int = Field(ge=0, lt=2**50)
    bytes_down: int = Field(ge=0, lt=2**50)
    up_bytes_per_second: int | None = Field(default=None, gt=0, lt=2**50)
    down_bytes_per_second: int | None = Field(default=None, gt=0, lt=2**50)


class CompleteTraining(RequestModel):
    """The committed result, now uploaded; ``leaves``: one per boundary state.

    The digests (:mod:`training_gym.units.trace`) tie the last leaf to this payload and replica state. The replica state
    stays on the node, under the declared CID.
    """

    token: Token
    payload_cid: CidString
    payload_sha256: HashString
    salt: HashString
    slot_state_cid: CidString
    slot_state_digest: HashString
    leaves: list[HashString] = Field(min_length=2, max_length=1025)
    end_parameters_digest: HashString
    train_loss: DecimalString
    steps: int = Field(ge=1, lt=2**31)
    evaluation: str | None = Field(
        default=None,
        max_length=MAX_BYTES,
        description="Record of the start checkpoint's losses, if the job's units evaluate.",
    )
    report: NodeReport | None = None


class CompleteReveal(RequestModel):
    """``state_cid`` is null for segment 0; ``slot_state_cid`` is that of the task, or null."""

    token: Token
    state_cid: CidString | None
    slot_state_cid: CidString | None = None


class CompleteReplay(RequestModel):
    """The opened commitment; task ``across`` also uploads the end state.

    Its ``end_leaf`` is then of the state before compression, also for the last segment. ``inner_digest`` is of the
    state after the inner step ``inner`` of the task, and is omitted if that is null.
    """

    token: Token
    end_leaf: HashString
    salt: HashString
    inner_digest: HashString | None = None
    end_state_cid: CidString | None = None


class CompletePin(RequestModel):
    """``proof`` as :mod:`market.training.replication.pins` defines it."""

    token: Token
    proof: HashString


class CompletePublish(RequestModel):
    """The replica state that the task requests, now uploaded."""

    token: Token
    published_cid: CidString


class CompleteFollow(RequestModel):
    """The checkpoint of the task. The node holds its model and the job's data."""

    token: Token
    followed_cid: CidString


class CompleteEvaluation(RequestModel):
    """The losses of the task's checkpoint. Two equal records of an environment class count."""

    token: Token
    record: str = Field(max_length=MAX_BYTES, description="Sums over the samples, as a unit's `evaluation`.")


def _by_key(keys: dict[str, str], default: str) -> Discriminator:
    """Select the member of a union by a key that only one of them has."""

    def tag(value: Any) -> str:
        present = value if isinstance(value, dict) else getattr(value, "__dict__", {})  # untrusted input
        return next((name for key, name in keys.items() if key in present), default)

    return Discriminator(tag)


Commit = Annotated[
    Annotated[CommitTraining, Tag("train")] | Annotated[CommitReplay, Tag("replay")],
    _by_key({"result_hash": "replay"}, "train"),
]

Complete = Annotated[
    Annotated[CompleteTraining, Tag("train")]
    | Annotated[CompleteReveal, Tag("reveal")]
    | Annotated[CompleteReplay, Tag("replay")]
    | Annotated[CompletePin, Tag("pin")]
    | Annotated[CompletePublish, Tag("publish")]
    | Annotated[CompleteFollow, Tag("follow")]
    | Annotated[CompleteEvaluation, Tag("evaluate")],
    _by_key(
        {
            "state_cid": "reveal",
            "end_leaf": "replay",
            "proof": "pin",
            "published_cid": "publish",
            "followed_cid": "follow",
            "record": "evaluate",
        },
        "train",
    ),
]


class FailLease(RequestModel):
    token: Token
    code: ReasonCode
    detail: str = Field(default="", max_length=500)


class LeaseState(BaseModel):
    id: str
    status: str


class CommitState(LeaseState):
    acknowledgement: AcknowledgementView | None = Field(description="Of a unit commitment. Keep it.")
