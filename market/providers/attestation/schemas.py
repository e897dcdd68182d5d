"""Requests and responses of attestations."""

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, Field

from market.platform.http.types import HashString, RequestModel
from zoo_protocol.attestation.gpu_attestation import MAX_CERTIFICATE_CHARS, MAX_GPUS, MAX_TOKEN_CHARS
from zoo_protocol.attestation.tee_quotes import MAX_QUOTE_BYTES

Text = Annotated[str, Field(max_length=1 << 18)]
HexText = Annotated[str, Field(max_length=1 << 17, pattern="^([0-9a-fA-F]{2})+$")]
Token = Annotated[str, Field(max_length=MAX_TOKEN_CHARS, description="JWT.")]
Certificate = Annotated[str, Field(max_length=MAX_CERTIFICATE_CHARS, description="DER, base64.")]
Name = Annotated[str, Field(max_length=128)]


class ChallengeView(BaseModel):
    """Bytes that a TEE quote must contain."""

    id: str
    nonce: str
    report_data: str = Field(
        description="64 bytes to quote, as 0x hex. With GPUs, the last 32 are the digest of their statement."
    )
    gpu_nonce: HashString = Field(description="32 bytes for the GPUs to sign.")
    deadline_at: datetime


class Collateral(RequestModel):
    """Intel's certificates, revocation lists and patch levels, in the format of a PCCS."""

    pck_crl_issuer_chain: Annotated[Text, Field(description="PEM.")]
    root_ca_crl: Annotated[HexText, Field(description="DER, hex.")]
    pck_crl: Annotated[HexText, Field(description="DER, hex.")]
    tcb_info_issuer_chain: Annotated[Text, Field(description="PEM.")]
    tcb_info: Annotated[Text, Field(description="JSON, as signed.")]
    tcb_info_signature: Annotated[HexText, Field(description="64 bytes, hex.")]
    qe_identity_issuer_chain: Annotated[Text, Field(description="PEM.")]
    qe_identity: Annotated[Text, Field(description="JSON, as signed.")]
    qe_identity_signature: Annotated[HexText, Field(description="64 bytes, hex.")]
    pck_certificate_chain: Annotated[Text | None, Field(description="PEM, if the quote does not contain it.")] = None


class Statement(RequestModel):
    """Answer of NVIDIA's attestation service on all GPUs of the environment, over ``gpu_nonce``."""

    overall: Token
    devices: Annotated[dict[Name, Token], Field(min_length=1, max_length=MAX_GPUS, description="Token by GPU name.")]
    certificates: Annotated[
        dict[Name, tuple[Certificate, Certificate]],
        Field(
            min_length=1,
            max_length=MAX_GPUS,
            description="Certificate and issuer's certificate by signing key id, from the service's JWKS.",
        ),
    ]


class GpuView(BaseModel):
    """GPU in NVIDIA's statement."""

    model: str = Field(description="Model of the chip.", examples=["GH100"])
    serial: str
    driver: str
    vbios: str


class QuoteRequest(RequestModel):
    """TDX or SGX quote with its collateral; a node with GPUs adds NVIDIA's statement."""

    quote: Annotated[
        str, Field(description="Hex.", min_length=96, max_length=2 * MAX_QUOTE_BYTES, pattern="^([0-9a-fA-F]{2})+$")
    ]
    collateral: Collateral
    gpu_statement: Statement | None = None


class AttestedView(BaseModel):
    """Valid quote. The attestation counts once its on-chain record is final."""

    tee: str = Field(description="TDX or SGX.")
    measurement: HashString = Field(description="Measurement of the software, as in the registry.")
    tcb_status: str = Field(description="Patch level of the platform.")
    advisories: list[str] = Field(description="Intel's advisories for the platform.")
    attested_gpus: list[GpuView] = Field(description="GPUs of the environment.")
    attested_until: datetime
    report: str = Field(description="SHA-256 of the evidence, as on chain.")
    report_cid: str = Field(description="CID of the evidence: quote, challenge and collateral.")
