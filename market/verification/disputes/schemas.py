"""Disputes and verdicts as JSON."""

from pydantic import BaseModel, Field

from market.platform.http.types import CidString, RequestModel


class CaseView(BaseModel):
    """The disputed unit and its start: all that a replay needs, besides files by CID."""

    order: dict[str, str] = Field(description="Of the job; its struct hash is the job's id. Integers as strings.")
    round: int
    slot: int
    trace_root: str
    payload_hash: str
    environment_class: str = Field(description="Environment class of the job's units.")
    spec_cid: str = Field(description="Its keccak is the order's specHash.")
    checkpoint_cid: str = Field(description="The round's start checkpoint.")
    slot_state_cid: str | None = Field(description="The unit's start replica state; null: a fresh one.")
    restored_payload_cid: str | None = Field(description="A payload that is restored to it.")
    eager_payload_cid: str | None = Field(description="A payload that is applied to the start checkpoint.")
    top_k: int | None = Field(description="Entries per chunk of the unit's payload; null: by the specification.")
    salt: str | None = Field(description="Salt of the payload's hash; null until the unit is decided.")


class DisputeSummary(BaseModel):
    """A dispute by final blocks."""

    dispute_id: str
    unit_id: str
    provider: str
    challenger: str
    status: str = Field(description="trace, step, drawing, judging, provider_lost, challenger_lost, undecided or moot.")
    segments: int
    step: int | None = Field(description="The selected segment; null until the selection.")
    draw: int = Field(description="Number of the current committee, from 0.")
    committee: list[str] | None = Field(description="Its members; null before a draw.")
    state_cid: str | None = Field(description="The segment's start state, as the provider declares it.")


class DisputeView(DisputeSummary):
    """A dispute with all data for a referee, who can check every digest on chain."""

    environment_class: str | None = Field(description="Of the revealed states.")
    states: list[str] | None = Field(description="Revealed digests of all boundary states.")
    case: CaseView | None = Field(description="Null if the market does not know the unit.")


class VerdictRequest(RequestModel):
    """A referee's signed verdict, delivered by any account."""

    draw: int = Field(ge=0, le=255)
    provider_correct: bool = Field(description="True if the segment's end follows from its start.")
    reason: str = Field(
        pattern=r"^[a-z_]{1,32}$",
        description="Code of the reason. `step_correct`, `step_false` and `diverged` are replay results; any other one "
        "is an objection to the unit.",
    )
    signature: str = Field(
        pattern=r"^0x[0-9a-f]{130}$",
        description="EIP-712 signature of Verdict(disputeId, draw, providerCorrect) in the domain ZooDisputes; of an "
        "objection: of Objection(disputeId, draw).",
    )


class RefereeVerdict(BaseModel):
    """One referee's signed verdict."""

    referee: str
    draw: int
    provider_correct: bool
    reason: str
    signature: str


class StateRequest(RequestModel):
    """CID of the selected segment's start state."""

    state_cid: CidString = Field(description="Of the boundary state's file.")
