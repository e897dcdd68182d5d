"""NVIDIA's signed statement about the GPUs of a node, and refusals of evidence.

The statement is checked from bytes alone.

A GPU signs its firmware measurements over a nonce of 32 bytes. NVIDIA's attestation service compares them with its
reference values and revocations. It answers with tokens (EAT, RFC 9711, as JWTs): an overall one, and one for each GPU
that the overall one names by digest. Their signing keys are valid for two days; an NVIDIA intermediate certifies them,
and its key is trusted here. The claims: NVIDIA Attestation, "GPU Claims".

A statement proves that genuine GPUs with sound firmware answered the nonce. It does not prove their location or what
runs on them. It therefore counts only inside a quote of the environment that requested it (``tee_quotes``).
"""

from base64 import b64decode
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import jwt
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from zoo_protocol.hashing import canonical_json, sha256

ISSUER = "https://nras.attestation.nvidia.com"
NVIDIA_KEYS = frozenset({"fd32837f954e2c45db073105166dfe6985ae0480bb113fba63b091a75affe896"})
"""SHA-256 of the public keys (DER SubjectPublicKeyInfo) that certify the service's keys.

The only one, GPU Intermediate 004, expires in December 2029. NVIDIA publishes no root for it.
"""
MAX_GPUS = 64
MAX_TOKEN_CHARS = 1 << 14
MAX_CERTIFICATE_CHARS = 1 << 13
_VERSIONS = ("2.0", "3.0", "4.0")
_CLOCKS_SECONDS = 60
_SOUND = {"measres": "success", "secboot": True, "dbgstat": "disabled"}
_NONCE_MATCH = "x-nvidia-gpu-attestation-report-nonce-match"
_WARNING = "x-nvidia-attestation-warning"
_CERTIFICATE = {"x-nvidia-cert-status": "valid", "x-nvidia-cert-ocsp-status": "good"}


class QuoteRefused(ValueError):
    """Refusal of a quote or statement.

    Attributes:
        code: stable: ``malformed``, ``unverified`` or ``unbound``.
        part: refused part: ``quote`` (of the environment, with its collateral) or ``gpu_statement``.
    """

    def __init__(self, code: str, message: str, part: str = "quote") -> None:
        super().__init__(message)
        self.code = code
        self.part = part


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU: NVIDIA's model name (such as GH100), serial number, and attested versions."""

    model: str
    serial: str
    driver: str
    vbios: str


@dataclass(frozen=True, slots=True)
class GpuStatement:
    """The service's answer, with the certificates that verify it.

    Attributes:
        overall: overall JWT.
        devices: JWT of each GPU by its name (``GPU-0``).
        certificates: base64 DER of each signing key's certificate and of its issuer's, by key id.
    """

    overall: str
    devices: Mapping[str, str]
    certificates: Mapping[str, tuple[str, str]]

    @classmethod
    def of_answer(cls, answer: Any, key_set: Any) -> "GpuStatement":
        """Build from the service's answer and key set (JSON). Raises QuoteRefused: ``malformed``."""
        try:
            (_, overall), devices = answer
            known = {key["kid"]: key["x5c"] for key in key_set["keys"]}
            used = {_key_id(token) for token in (overall, *devices.values())}
            return cls(overall, dict(devices), {name: (known[name][0], known[name][1]) for name in used})
        except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError, jwt.PyJWTError) as error:
            raise _refused("malformed", f"this is not an answer of NVIDIA's attestation service: {error}") from error

    @classmethod
    def of_document(cls, document: Any) -> "GpuStatement":
        """Parse the output of :meth:`as_document`. Raises QuoteRefused: ``malformed``."""
        try:
            overall, devices, certificates = document["overall"], document["devices"], document["certificates"]
            chains = {name: (leaf, issuer) for name, (leaf, issuer) in certificates.items()}
            texts = [overall, *devices.values(), *(text for chain in chains.values() for text in chain)]
            if len(document) != 3 or not all(isinstance(text, str) for text in texts):
                raise ValueError("overall, devices and certificates are texts")
            return cls(overall, dict(devices), chains)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise _refused("malformed", f"this is not a statement about GPUs: {error}") from error

    def as_document(self) -> dict[str, Any]:
        """Return a JSON object."""
        certificates = {name: list(chain) for name, chain in self.certificates.items()}
        return {"overall": self.overall, "devices": dict(self.devices), "certificates": certificates}

    @property
    def digest(self) -> bytes:
        """SHA-256 of the canonical JSON, which the quote must contain."""
        return sha256(canonical_json(self.as_document()))

    def verify(self, nonce: bytes, now: int, keys: Collection[str] = NVIDIA_KEYS, slack: int = 0) -> tuple[Gpu, ...]:
        """Check signatures, times, nonce and verdicts.

        Args:
            nonce: 32 bytes that the GPUs had to sign.
            now: Unix seconds at which the tokens must be valid.
            keys: trusted keys (``NVIDIA_KEYS``).
            slack: seconds of tolerance before and after a token's validity.

        Raises:
            QuoteRefused: a check fails.
        """
        if not 0 < len(self.devices) <= MAX_GPUS:
            raise _refused("malformed", f"it names {len(self.devices)} GPUs; expected 1 to {MAX_GPUS}")
        overall = self._claims(self.overall, nonce, now, keys, slack)
        if overall.get("x-nvidia-ver") not in _VERSIONS:
            raise _refused("malformed", f"claims of version {overall.get('x-nvidia-ver')} are unknown")
        if overall.get("x-nvidia-overall-att-result") is not True:
            raise _refused("unverified", "NVIDIA's verdict is negative")
        if _named(overall.get("submods")) != {
            name: sha256(token.encode()).hex() for name, token in self.devices.items()
        }:
            raise _refused("unverified", "NVIDIA's verdict names other GPUs")
        found = [_gpu(name, self._claims(token, nonce, now, keys, slack)) for name, token in self.devices.items()]
        if len({gpu.serial for gpu in found}) != len(found):
            raise _refused("unverified", "one GPU is named twice")
        return tuple(found)

    def _claims(self, token: str, nonce: bytes, now: int, keys: Collection[str], slack: int) -> dict[str, Any]:
        try:
            key_id = _key_id(token)
        except (jwt.PyJWTError, RecursionError, UnicodeEncodeError) as error:
            raise _refused("malformed", f"a token is not a JWT: {error}") from error
        if key_id not in self.certificates:
            raise _refused("malformed", "the certificate of a token's key is missing")
        leaf, issuer = _certificates(self.certificates[key_id], keys)
        try:
            # The code below compares the times, because this library only uses its own clock.
            options: Any = {"verify_exp": False, "verify_nbf": False, "verify_iat": False, "verify_aud": False}
            required = ["iss", "iat", "nbf", "exp", "eat_nonce"]
            key = leaf.public_key()
            assert isinstance(key, ec.EllipticCurvePublicKey)
            claims: dict[str, Any] = jwt.decode(
                token, key, algorithms=["ES384"], issuer=ISSUER, options=options | {"require": required}
            )
        except jwt.PyJWTError as error:
            raise _refused("unverified", f"a token is not NVIDIA's: {error}") from error
        issued, starts, ends = claims["iat"], claims["nbf"], claims["exp"]
        if not all(isinstance(time, int) for time in (issued, starts, ends)):
            raise _refused("malformed", "a token's times are not whole seconds")
        if not max(issued, starts) - _CLOCKS_SECONDS - slack <= now < ends + slack:
            raise _refused("unverified", f"a token is valid only from {starts} to {ends}, in Unix seconds")
        signed_at = datetime.fromtimestamp(issued, UTC)
        if any(not by.not_valid_before_utc <= signed_at <= by.not_valid_after_utc for by in (leaf, issuer)):
            raise _refused("unverified", "a token's key had no valid certificate when it signed")
        if claims["eat_nonce"] != nonce.hex():
            raise _refused("unbound", "the GPUs signed another nonce, of another wallet, challenge or network")
        return claims


def _refused(code: str, message: str) -> QuoteRefused:
    return QuoteRefused(code, message, part="gpu_statement")


def _key_id(token: str) -> str:
    return str(jwt.get_unverified_header(token).get("kid"))


def _certificates(chain: tuple[str, str], keys: Collection[str]) -> tuple[x509.Certificate, x509.Certificate]:
    try:
        leaf, issuer = (x509.load_der_x509_certificate(b64decode(text, validate=True)) for text in chain)
        public = issuer.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        key = leaf.public_key()
    except (ValueError, UnsupportedAlgorithm, x509.InvalidVersion) as error:
        raise _refused("malformed", f"a certificate cannot be read: {error}") from error
    if (name := sha256(public).hex()) not in keys:
        raise _refused("unverified", f"an issuer with key {name} is not trusted")
    try:
        leaf.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm) as error:
        raise _refused("unverified", "a signing key's certificate is not NVIDIA's") from error
    if not (isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, ec.SECP384R1)):
        raise _refused("unverified", "a signing key is not on the curve P-384")
    return leaf, issuer


def _named(submods: Any) -> dict[str, str]:
    """Return the digests of the GPUs' tokens: ``{name: ["DIGEST", ["SHA-256", hex]]}``."""
    try:
        return {name: digest for name, (_, (_, digest)) in submods.items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise _refused("malformed", "the overall token does not name GPUs") from error


def _gpu(name: str, claims: Mapping[str, Any]) -> Gpu:
    """Return a GPU with all checks passed. Boolean claims of later versions must be true, too."""
    wrong = [claim for claim, value in (_SOUND | {_NONCE_MATCH: True}).items() if claims.get(claim) != value]
    wrong += [claim for claim, value in claims.items() if value is False and claim not in wrong]
    wrong += [claim for claim, value in claims.items() if isinstance(value, dict) and not _is_current(value)]
    if wrong or claims.get(_WARNING) is not None:
        raise _refused("unverified", f"{name} is not sound: {', '.join(wrong) or claims[_WARNING]}")
    names = ("hwmodel", "ueid", "x-nvidia-gpu-driver-version", "x-nvidia-gpu-vbios-version")
    if not all(isinstance(claims.get(claim), str) for claim in names):
        raise _refused("malformed", f"{name} has no name")
    return Gpu(*(claims[claim] for claim in names))


def _is_current(claim_set: Mapping[str, Any]) -> bool:
    return all(claim_set[claim] == value for claim, value in _CERTIFICATE.items() if claim in claim_set)
