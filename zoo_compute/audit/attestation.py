"""Verification of a provider's attestation from the chain and IPFS alone."""

from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any

from zoo_compute.base.errors import Mismatch, ZooError
from zoo_compute.chain.settlements import AttestedOnChain, ChainReader
from zoo_compute.content.gateway import GatewayClient
from zoo_protocol.attestation.gpu_attestation import NVIDIA_KEYS, QuoteRefused
from zoo_protocol.attestation.tee_quotes import MAX_EVIDENCE_BYTES, Evidence, Verified, key_of
from zoo_protocol.content import cid
from zoo_protocol.hashing import from_hex

_RECORDED_WITHIN = 86_400
"""Seconds between quote and record. NVIDIA's tokens are valid for an hour, but the transaction can be mined later, and
chain time differs from wall time. The nonce prevents reuse."""


@dataclass(frozen=True, slots=True)
class AttestationCheck:
    """Verified attestation. Times in Unix seconds.

    Attributes:
        counts: it has not expired, and the network accepts the software.
    """

    provider: str
    verified: Verified
    attested_at: int
    expires_at: int
    report: str
    counts: bool

    def as_json(self) -> dict[str, Any]:
        fields = asdict(self)
        return {**fields.pop("verified"), **fields}


def check_attestation(
    provider: str,
    chain: ChainReader,
    gateway: GatewayClient,
    root_ca: bytes | None = None,
    gpu_keys: Collection[str] = NVIDIA_KEYS,
) -> AttestationCheck:
    """Check the last attestation of a provider as of the block that recorded it.

    Args:
        provider: checksummed address.
        root_ca: DER of another root of trust than Intel's.
        gpu_keys: trusted keys (``zoo_protocol.attestation.gpu_attestation``).

    Raises:
        ZooError: ``not-attested``.
        Mismatch: the registry and the quote differ.
        BlockNotFound, ContentError, GatewayUnavailable: the evidence is not available.
    """
    found = chain.attested(provider)
    if found is None:
        remedy = (
            "Check the address. Attestation is optional: a provider records one with zoo-compute node start --attest."
        )
        raise ZooError("not-attested", f"{provider} has no attestation on chain", remedy=remedy)
    block, _ = cid.cids_of_digest(from_hex(found.report))
    try:
        evidence = Evidence.from_bytes(gateway.fetch(block, max_bytes=MAX_EVIDENCE_BYTES))
        place = (evidence.chain_id, evidence.registry, evidence.provider)
        if place != (chain.chain_id, chain.address("Attestations"), provider):
            raise Mismatch("wrong-evidence", f"the evidence names {evidence.provider}, or another registry or chain")
        verified = evidence.verify(found.at, root_ca, gpu_keys, slack=_RECORDED_WITHIN)
    except QuoteRefused as error:
        raise Mismatch("quote-refused", f"{provider}: {error}") from error
    _compare(found, provider, verified)
    return AttestationCheck(provider, verified, found.at, found.expires_at, found.report, found.counts)


def _compare(found: AttestedOnChain, provider: str, verified: Verified) -> None:
    quoted = {"measurement": verified.measurement, "key": key_of(provider)}
    recorded = {"measurement": found.measurement, "key": found.key}
    wrong = [name for name, value in quoted.items() if recorded[name] != value]
    if wrong or found.expires_at > verified.valid_until:
        name = wrong[0] if wrong else "end"
        raise Mismatch("attestation-differs", f"the registry's {name} of {provider} differs from its quote")
