"""Disputes and verdicts as JSON."""

from pydantic import BaseModel, Field

from market.platform.http.types import CidString, RequestModel


class CaseView(BaseModel):
    """What the disputed unit is, and what it starts from: all that a replay needs beside files by CID."""

    order: dict[str, str] = Field(description="Of the job; its struct hash is the job's id. Integers as strings.")
    round: int
    slot: int
    trace_root: str
    payload_hash: str
    environment_class: str = Field(description="That the job's units are trained in.")
    spec_cid: str = Field(description="Its keccak is the order's specHash.")
    checkpoint_cid: str = Field(description="The checkpoint that the round starts from.")
    slot_state_cid: str | None = Field(description="The replica state that the unit starts from; null: a fresh one.")
    restored_payload_cid: str | None = Field(description="A payload that is added back to it.")
    eager_payload_cid: str | None = Field(description="A payload that moves the checkpoint before the unit starts.")
    top_k: int | None = Field(description="What the unit was told to send of each chunk; null: as the specification.")
    salt: str | None = Field(description="Of the payload's hash; null until the unit is decided.")


class DisputeSummary(BaseModel):
    """A dispute as final blocks have it."""

    dispute_id: str
    unit_id: str
    provider: str
    challenger: str
    status: str = Field(description="trace, step, drawing, judging, provider_lost, challenger_lost, undecided or moot.")
    segments: int
    step: int | None = Field(description="The step from the boundary of that number to the next; null until named.")
    draw: int = Field(description="Number of the present committee, from 0.")
    committee: list[str] | None = Field(description="Its members; null while there is none.")
    state_cid: str | None = Field(description="Where the provider says that the state at the step's start is.")


class DisputeView(DisputeSummary):
    """A dispute with all that a referee needs. Do not take our word: every digest leads to the chain."""

    environment_class: str | None = Field(description="Of the states that were shown.")
    states: list[str] | None = Field(description="Digests of the states at all boundaries, as they were shown.")
    case: CaseView | None = Field(description="Null if we do not know the unit.")


class VerdictRequest(RequestModel):
    """A referee's signed verdict; anybody may deliver it."""

    draw: int = Field(ge=0, le=255)
    provider_correct: bool = Field(description="Whether the step's end follows from its start.")
    reason: str = Field(
        pattern=r"^[a-z_]{1,32}$",
        description="Why, as a code. `step_correct`, `step_false` and `diverged` are what a replay gave; any other one "
        "is an objection to the unit.",
    )
    signature: str = Field(
        pattern=r"^0x[0-9a-f]{130}$",
        description="EIP-712 signature of Verdict(disputeId, draw, providerCorrect) in the domain ZooDisputes; of an "
        "objection: of Objection(disputeId, draw).",
    )


class RefereeVerdict(BaseModel):
    """What one referee signed."""

    referee: str
    draw: int
    provider_correct: bool
    reason: str
    signature: str


class StateRequest(RequestModel):
    """Where the state at the start of the named step is."""

    state_cid: CidString = Field(description="Of the boundary state's file.")
