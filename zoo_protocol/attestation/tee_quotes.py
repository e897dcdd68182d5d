"""TEE quotes: binding to a wallet and a challenge, and verification by anyone.

A quote is a processor's signed statement about the software inside a protected environment (Intel TDX or SGX), with 64
bytes that this software chose. Those bytes bind it to one wallet and one challenge, so it cannot be reused.
``dcap_qvl`` checks signatures, revocations and the platform's patch level against collateral that Intel signed. The
formats: Intel SGX DCAP ECDSA Quote Library API and TDX DCAP Quoting Library API, appendix A each.

GPUs are outside the processor. The environment therefore requests their own statement (``gpu_attestation``) over the
same challenge, and its quote contains the digest of that statement. This proves that the software used these GPUs.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import dcap_qvl

from zoo_protocol.attestation.gpu_attestation import NVIDIA_KEYS, Gpu, GpuStatement, QuoteRefused
from zoo_protocol.hashing import canonical_json, from_hex, sha256, to_hex

VERSION = "zoo-attestation/1"
MAX_QUOTE_BYTES = 1 << 16
MAX_EVIDENCE_BYTES = 1 << 20
ACCEPTED_STATUSES = ("SWHardeningNeeded",)
"""Accepted states of a platform, next to UpToDate.

The platform is fully patched, but its software must contain mitigations itself. The accepted measurement covers that.
"""
_TDX_REGISTERS = ("mr_td", "rt_mr0", "rt_mr1", "rt_mr2", "rt_mr3", "mr_config_id", "mr_owner", "mr_owner_config")
_SGX_REGISTERS = ("mr_enclave", "mr_signer")
_SGX_CONFIG = (slice(240, 304), slice(308, 310))
"""CONFIGID and CONFIGSVN in an SGX quote (SDM volume 3D, table 39-21): the enclave's start parameters."""


@dataclass(frozen=True, slots=True)
class Verified:
    """Facts of a verified quote.

    Attributes:
        tee: ``TDX`` or ``SGX``.
        measurement: hash of the software inside, as in the on-chain registry; 0x hex of 32 bytes.
        tcb_status: the platform's patch level, ``UpToDate`` at best.
        advisories: Intel's advisories that apply to the platform.
        valid_until: Unix seconds of the collateral's expiry.
        gpus: the environment's attested GPUs.
    """

    tee: str
    measurement: str
    tcb_status: str
    advisories: tuple[str, ...]
    valid_until: int
    gpus: tuple[Gpu, ...] = ()


@dataclass(frozen=True, slots=True)
class Evidence:
    """Quote with all data to verify it; the bytes' SHA-256 is the registry's ``report``.

    Attributes:
        chain_id, registry: the deployment's Attestations contract.
        provider: wallet whose key the environment holds.
        nonce: nonce of the market's challenge, 0x hex of 32 bytes.
        quote: raw bytes.
        collateral: certificates, revocation lists and patch levels, all strings. Its members are ``tcb_info``,
            ``qe_identity``, and for both ``…_issuer_chain`` and ``…_signature``. Then ``pck_crl_issuer_chain``,
            ``root_ca_crl``, ``pck_crl`` and, only if the quote lacks it, ``pck_certificate_chain``.
        gpus: NVIDIA's statement about the environment's GPUs, if any.
    """

    chain_id: int
    registry: str
    provider: str
    nonce: str
    quote: bytes
    collateral: Mapping[str, str]
    gpus: GpuStatement | None = None

    def to_bytes(self) -> bytes:
        """Return the canonical JSON."""
        document: dict[str, Any] = {
            "version": VERSION,
            "chain_id": str(self.chain_id),
            "registry": self.registry,
            "provider": self.provider,
            "nonce": self.nonce,
            "quote": self.quote.hex(),
            "collateral": dict(self.collateral),
        }
        return canonical_json(document if self.gpus is None else document | {"gpus": self.gpus.as_document()})

    @classmethod
    def from_bytes(cls, content: bytes) -> "Evidence":
        """Parse the output of :meth:`to_bytes`. Raises QuoteRefused: ``malformed``."""
        try:
            document = json.loads(content)
            if document.pop("version") != VERSION:
                raise ValueError("another version")
            gpus = GpuStatement.of_document(document.pop("gpus")) if "gpus" in document else None
            found = cls(
                chain_id=int(document.pop("chain_id")),
                quote=bytes.fromhex(document.pop("quote")),
                gpus=gpus,
                **document,
            )
            canonical = found.to_bytes()
            _bound(found.chain_id, found.registry, found.provider, found.nonce)  # checks their form
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise QuoteRefused("malformed", f"this is not evidence of an attestation: {error}") from error
        if canonical != content:
            raise QuoteRefused("malformed", "the evidence is not in its canonical form")
        return found

    @property
    def binding(self) -> bytes:
        """The 64 bytes that the quote must contain."""
        return with_gpus(report_data(self.chain_id, self.registry, self.provider, self.nonce), self.gpus)

    def verify(
        self, now: int, root_ca: bytes | None = None, gpu_keys: Collection[str] = NVIDIA_KEYS, slack: int = 0
    ) -> Verified:
        """Check the quote, its binding to wallet and challenge, and the GPU statement.

        Args:
            now: Unix seconds at which the collateral must be valid.
            root_ca: DER of a root of trust other than Intel's, for private networks.
            gpu_keys: trusted keys (``gpu_attestation.NVIDIA_KEYS``).
            slack: seconds of tolerance before and after the validity of NVIDIA's short-lived tokens.

        Raises:
            QuoteRefused: a check fails.
        """
        try:
            collateral = dcap_qvl.QuoteCollateralV3.from_json(json.dumps(dict(self.collateral)))
            report = dcap_qvl.parse_quote(self.quote).report
        except (ValueError, TypeError) as error:
            raise QuoteRefused("malformed", str(error)) from error
        tee = "SGX" if hasattr(report, "mr_enclave") else "TDX"
        if tee == "SGX" and any(any(self.quote[part]) for part in _SGX_CONFIG):
            raise QuoteRefused("unverified", "the enclave was given a CONFIGID, which its measurement does not cover")
        try:
            verifier = dcap_qvl.QuoteVerifier(root_ca)
            claims = json.loads(verifier.verify_with_policy(self.quote, collateral, now, _policy(now)).to_json())
        except ValueError as error:
            raise QuoteRefused("unverified", str(error)) from error
        if bytes(report.report_data) != self.binding:
            raise QuoteRefused("unbound", "the quote is bound to another wallet, challenge or statement about GPUs")
        nonce = gpu_nonce(self.chain_id, self.registry, self.provider, self.nonce)
        return Verified(
            tee=tee,
            measurement=measurement(tee, report),
            tcb_status=claims["tcb"]["status"],
            advisories=tuple(claims["tcb"]["advisory_ids"]),
            valid_until=min(claims["earliest_expiration_date"], claims["qe_iden_earliest_expiration_date"]),
            gpus=self.gpus.verify(nonce, now, gpu_keys, slack) if self.gpus else (),
        )


def report_data(chain_id: int, registry: str, provider: str, nonce: str) -> bytes:
    """Return report data without GPUs for wallet and challenge: SHA-256 and 32 zero bytes."""
    return sha256(b"zoo-attestation-1" + _bound(chain_id, registry, provider, nonce)) + bytes(32)


def with_gpus(data: bytes, gpus: GpuStatement | None) -> bytes:
    """Return report data with GPUs: their statement's digest replaces the zero bytes."""
    return data if gpus is None else data[:32] + gpus.digest


def gpu_nonce(chain_id: int, registry: str, provider: str, nonce: str) -> bytes:
    """Return the 32 bytes that the GPUs of this wallet must sign for this challenge."""
    return sha256(b"zoo-gpu-attestation-1" + _bound(chain_id, registry, provider, nonce))


def _bound(chain_id: int, registry: str, provider: str, nonce: str) -> bytes:
    return chain_id.to_bytes(32, "big") + from_hex(registry, 20) + from_hex(provider, 20) + from_hex(nonce)


def key_of(provider: str) -> str:
    """Return the ``key`` of an attestation on chain: the wallet's address, as a 32-byte word."""
    return to_hex(bytes(12) + from_hex(provider, 20))


def measurement(tee: str, report: Any) -> str:
    """Return a hash over image and start parameters; ``report``: the registers of ``tee``."""
    registers = _SGX_REGISTERS if tee == "SGX" else _TDX_REGISTERS
    parts = b"".join(bytes(getattr(report, name)) for name in registers)
    return to_hex(sha256(b"zoo-measurement-1:" + tee.encode() + b":" + parts))


def _policy(now: int) -> dcap_qvl.QuotePolicy:
    """Return the policy: patched platforms only, any server set-up, no debug."""
    policy = dcap_qvl.QuotePolicy.strict(now).allow_dynamic_platform(True).allow_cached_keys(True).allow_smt(True)
    for status in ACCEPTED_STATUSES:
        policy = policy.allow_status(status)
    return policy
