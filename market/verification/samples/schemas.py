"""JSON of included commitments."""

from datetime import datetime

from pydantic import BaseModel, Field

from market.platform.http.types import WeiOut
from market.training.commitments.schemas import AcknowledgementView


class CommitmentView(AcknowledgementView):
    """The acknowledgement of a commitment, and the proof from its leaf to its window's root."""

    window_root: str | None = Field(description="Null while it waits for a window.")
    proof: list[str] = Field(description="Sibling hashes from the leaf to the root, 0x hex.")
    trace: list[str] | None = Field(
        description="The trace's leaves; null until the unit is decided, or if not revealed."
    )
    states: dict[int, str] = Field(description="CIDs of the states served for replays, by segment.")


class OmissionView(BaseModel):
    """One claim in the contract Omissions, from final events."""

    unit_id: str
    status: str = Field(description="open, answered (you lost the stake) or compensated.")
    include_by: datetime
    deadline: datetime = Field(description="Last time for an answer; then any account can claim your compensation.")
    compensation_wei: WeiOut | None
    tx: str | None = Field(description="Transaction of the answer or compensation.")


class OpenWorkView(BaseModel):
    """Work of your node that is not over."""

    job_ids: list[str] = Field(description="Jobs in which the node holds a replica or an open lease.")
    undecided_units: int = Field(description="Its units without a decision, disputed ones included.")
