"""JSON of inclusion acknowledgements."""

from pydantic import BaseModel, Field


class AcknowledgementView(BaseModel):
    """Operator-signed deadline for including a unit commitment (EIP-712, Omissions)."""

    unit_id: str = Field(description="The commitment's leaf in its window's tree.")
    include_by: int = Field(description="Unix time by which that window's root is committed on chain.")
    signature: str
