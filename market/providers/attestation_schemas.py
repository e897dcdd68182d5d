"""Requests and responses of attestations."""

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, Field

from market.api.types import HashString, RequestModel
from zoo_protocol.attestation import COLLATERAL_FIELDS, MAX_QUOTE_BYTES

Text = Annotated[str, Field(max_length=1 << 18)]
HexText = Annotated[str, Field(max_length=1 << 17, pattern="^([0-9a-fA-F]{2})+$")]


class ChallengeView(BaseModel):
    """What a quote must be bound to."""

    id: str
    nonce: str
    report_data: str = Field(description="The 64 bytes, as 0x hex, to have quoted.")
    deadline_at: datetime


class Collateral(RequestModel):
    """Intel's certificates, revocation lists and patch levels for the platform, as a PCCS gives them."""

    pck_crl_issuer_chain: Annotated[Text, Field(description="PEM.")]
    root_ca_crl: Annotated[HexText, Field(description="DER, hex.")]
    pck_crl: Annotated[HexText, Field(description="DER, hex.")]
    tcb_info_issuer_chain: Annotated[Text, Field(description="PEM.")]
    tcb_info: Annotated[Text, Field(description="JSON, as signed.")]
    tcb_info_signature: Annotated[HexText, Field(description="64 bytes, hex.")]
    qe_identity_issuer_chain: Annotated[Text, Field(description="PEM.")]
    qe_identity: Annotated[Text, Field(description="JSON, as signed.")]
    qe_identity_signature: Annotated[HexText, Field(description="64 bytes, hex.")]
    pck_certificate_chain: Annotated[Text | None, Field(description="PEM, if the quote does not hold it.")] = None


assert tuple(Collateral.model_fields) == COLLATERAL_FIELDS


class QuoteRequest(RequestModel):
    """A TDX or SGX quote with what checks it."""

    quote: Annotated[
        str,
        Field(description="Hex.", min_length=96, max_length=2 * MAX_QUOTE_BYTES, pattern="^([0-9a-fA-F]{2})+$"),
    ]
    collateral: Collateral


class AttestedView(BaseModel):
    """A quote that holds. The registry on chain records it; once that is final, it counts."""

    tee: str = Field(description="TDX or SGX.")
    measurement: HashString = Field(description="Of the software inside, as the registry knows it.")
    tcb_status: str = Field(description="Patch level of the platform.")
    advisories: list[str] = Field(description="Intel's, that apply to the platform.")
    attested_until: datetime
    report: str = Field(description="SHA-256 of the evidence, as on chain.")
    report_cid: str = Field(description="The evidence on storage: quote, challenge and collateral.")
