"""EIP-712 messages of users, providers and the market.

The domain (name, version, chain id, contract) makes a signature worthless on another chain or deployment. Most messages
have the JobEscrow contract as domain; acknowledgements have Omissions, verdicts and objections Disputes. The Solidity
side declares the same structs; tests run the same vectors on both.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

from coincurve import PublicKey
from eth_account import Account
from eth_account.messages import SignableMessage
from eth_utils.address import to_checksum_address

from zoo_protocol.hashing import from_hex, keccak, to_hex

DOMAIN_NAME = "ZooCompute"
DOMAIN_VERSION = "1"
OMISSIONS_DOMAIN_NAME = "ZooOmissions"
DISPUTES_DOMAIN_NAME = "ZooDisputes"

MAX_PROMISE_SECONDS = 86_400
"""Latest inclusion, after delivery, that an acknowledgement may grant and still protect a node."""
_CURVE_ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141  # of secp256k1 (SEC 2)


def _members(declaration: str) -> list[dict[str, str]]:
    """Return the fields of an EIP-712 struct, declared as in Solidity: ``type name, type name``."""
    return [{"name": name, "type": kind} for kind, name in (member.split() for member in declaration.split(", "))]


_DOMAIN_TYPE = _members("string name, string version, uint256 chainId, address verifyingContract")
_PERMIT_TYPE = _members("address owner, address spender, uint256 value, uint256 nonce, uint256 deadline")

REPLAYED = frozenset({"step_correct", "step_false", "diverged"})
"""Reasons of a referee that come from its replay, so that it signs a :class:`Verdict`."""


@lru_cache(1024)
def _checksummed(address: str) -> str:
    return str(to_checksum_address(address))


@dataclass(frozen=True, slots=True)
class Domain:
    """EIP-712 domain of one deployment."""

    chain_id: int
    contract: str
    name: str = DOMAIN_NAME
    version: str = DOMAIN_VERSION

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "version": self.version,
            "chainId": self.chain_id,
            "verifyingContract": _checksummed(self.contract),
        }


@dataclass(frozen=True, slots=True)
class JobOrder:
    """Payer's signed order: ``budget`` for at most ``units`` units at up to ``maxPrice``.

    Units: ``unitWeight`` in reference GPU-microseconds, ``budget`` in wei of ZEN, ``maxPrice`` in wei of ZEN per
    GPU-hour, ``waitUntil`` in Unix seconds. ``tier``: 1 Bronze, 2 Silver, 3 Gold, 4 Iron. A unit's trace has
    ``segments``, of which at least ``samplingBps`` are sampled for a replay on average. The struct hash is the job id.
    """

    TYPE: ClassVar = _members(
        "address payer, bytes32 specHash, uint8 tier, uint32 units, uint48 unitWeight, uint16 segments, "
        "uint16 samplingBps, uint96 budget, uint80 maxPrice, uint40 waitUntil, uint256 nonce"
    )
    payer: str
    specHash: str
    tier: int
    units: int
    unitWeight: int
    segments: int
    samplingBps: int
    budget: int
    maxPrice: int
    waitUntil: int
    nonce: int


@dataclass(frozen=True, slots=True)
class Ask:
    """Provider's offer: ``gpus`` of ``tier`` from ``minPrice`` wei per GPU-hour, net of fee."""

    TYPE: ClassVar = _members(
        "address provider, uint8 tier, uint32 gpus, uint96 minPrice, uint40 validUntil, uint256 nonce"
    )
    provider: str
    tier: int
    gpus: int
    minPrice: int
    validUntil: int
    nonce: int


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A node's answer to the market's challenge, which proves access to its wallet's key."""

    TYPE: ClassVar = _members("address provider, bytes32 challenge")
    provider: str
    challenge: str


@dataclass(frozen=True, slots=True)
class UnitCommitment:
    """A provider's signed commitment to one unit's result, before any reveal or sampling."""

    TYPE: ClassVar = _members(
        "bytes32 jobId, uint32 round, uint32 slot, address provider, bytes32 traceRoot, bytes32 payloadHash"
    )
    jobId: str
    round: int
    slot: int
    provider: str
    traceRoot: str
    payloadHash: str


@dataclass(frozen=True, slots=True)
class ReplayCommitment:
    """A verifier's signed commitment to a segment's end, before it is shown the claim.

    ``startLeaf`` keeps the result of a canary, or of another attempt, from standing for this one. ``environmentClass``
    is the verifier's own.
    """

    TYPE: ClassVar = _members(
        "bytes32 jobId, uint32 round, uint32 slot, uint32 segment, bytes32 startLeaf, bytes32 environmentClass, "
        "bytes32 resultHash"
    )
    jobId: str
    round: int
    slot: int
    segment: int
    startLeaf: str
    environmentClass: str
    resultHash: str


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """Operator's receipt: leaf ``unitId`` enters a window committed by ``includeBy``.

    ``unitId`` is :func:`zoo_protocol.payments.job_record.unit_leaf` of the commitment, ``includeBy`` in Unix seconds.
    """

    TYPE: ClassVar = _members("bytes32 unitId, uint40 includeBy")
    unitId: str
    includeBy: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """Referee's decision from its replay of the disputed segment, for committee ``draw``."""

    TYPE: ClassVar = _members("bytes32 disputeId, uint32 draw, bool providerCorrect")
    disputeId: str
    draw: int
    providerCorrect: bool


@dataclass(frozen=True, slots=True)
class Objection:
    """A referee's decision against the provider without a replay, from invalid or missing input."""

    TYPE: ClassVar = _members("bytes32 disputeId, uint32 draw")
    disputeId: str
    draw: int


Message = JobOrder | Ask | Heartbeat | UnitCommitment | ReplayCommitment | Acknowledgement | Verdict | Objection


def finding_of(dispute_id: str, draw: int, provider_correct: bool, reason: str) -> Verdict | Objection:
    """Return the message to sign for ``reason``: verdict if in :data:`REPLAYED`, or objection.

    Raises:
        ValueError: an objection cannot be for the provider.
    """
    if reason in REPLAYED:
        return Verdict(dispute_id, draw, provider_correct)
    if provider_correct:
        raise ValueError(f"{reason} is not a reason to decide for the provider")
    return Objection(dispute_id, draw)


def omissions_domain(chain_id: int, contract: str) -> Domain:
    """Return the domain of acknowledgements, given the address of the Omissions contract."""
    return Domain(chain_id, contract, OMISSIONS_DOMAIN_NAME)


def disputes_domain(chain_id: int, contract: str) -> Domain:
    """Return the domain of verdicts and objections, given the address of the Disputes contract."""
    return Domain(chain_id, contract, DISPUTES_DOMAIN_NAME)


def typed_data(domain: Domain, message: Message) -> dict[str, Any]:
    """Return the EIP-712 document for ``eth_signTypedData_v4``, hashes as 0x hex."""
    name = type(message).__name__
    return {
        "types": {"EIP712Domain": _DOMAIN_TYPE, name: message.TYPE},
        "primaryType": name,
        "domain": domain.as_dict(),
        "message": _values(message),
    }


def _values(message: Message) -> dict[str, Any]:
    return {name: getattr(message, name) for name in message.__slots__}


def permit_typed_data(
    chain_id: int, token: str, token_name: str, owner: str, spender: str, value: int, nonce: int, deadline: int
) -> dict[str, Any]:
    """Return the EIP-2612 permit document of an OpenZeppelin token (domain version "1")."""
    return {
        "types": {"EIP712Domain": _DOMAIN_TYPE, "Permit": _PERMIT_TYPE},
        "primaryType": "Permit",
        "domain": Domain(chain_id, token, token_name, "1").as_dict(),
        "message": {"owner": owner, "spender": spender, "value": value, "nonce": nonce, "deadline": deadline},
    }


def signable(document: dict[str, Any]) -> SignableMessage:
    """Return the signable form of an EIP-712 document of structs and plain types.

    Equals the result of ``eth_account.messages.encode_typed_data`` at a tenth of the time; tests compare the two.

    Raises:
        ValueError: a value does not fit its type, or a type is unsupported.
    """
    name = document["primaryType"]
    body = _hash_struct(name, document["types"], document["message"])
    return SignableMessage(b"\x01", _separator(*document["domain"].values()), body)


@lru_cache(64)
def _separator(name: str, version: str, chain_id: int, contract: str) -> bytes:
    values = {"name": name, "version": version, "chainId": chain_id, "verifyingContract": contract}
    return _hash_struct("EIP712Domain", {"EIP712Domain": _DOMAIN_TYPE}, values)


_Types = Mapping[str, Sequence[Mapping[str, str]]]


def _hash_struct(name: str, types: _Types, values: Mapping[str, Any]) -> bytes:
    words = []
    for field in types[name]:
        kind, value = field["type"], values[field["name"]]
        words.append(_hash_struct(kind, types, value) if kind in types else _word(kind, value))
    return keccak(_type_hash(_encode_type(name, types)) + b"".join(words))


def _encode_type(name: str, types: _Types) -> str:
    """Return the struct's declaration, then those of its members, by name (EIP-712, encodeType)."""
    named: set[str] = set()
    waiting = [name]
    while waiting:
        found = {field["type"] for field in types[waiting.pop()]} & types.keys()
        waiting += found - named
        named |= found
    return "".join(
        f"{one}({','.join(field['type'] + ' ' + field['name'] for field in types[one])})"
        for one in [name, *sorted(named - {name})]
    )


@lru_cache(64)
def _type_hash(declaration: str) -> bytes:
    return keccak(declaration.encode())


def _word(kind: str, value: Any) -> bytes:
    """Return the 32 bytes that encode one value (EIP-712, encodeData)."""
    if kind == "string":
        return keccak(str(value).encode())
    if kind in ("bytes32", "address"):
        if not isinstance(value, str):
            raise ValueError(f"{value!r} is not 0x hex")
        return from_hex(value) if kind == "bytes32" else bytes(12) + from_hex(value, 20)
    if kind == "bool":
        if not isinstance(value, bool):
            raise ValueError(f"{value!r} is not a bool")
        return int(value).to_bytes(32)
    if not kind.startswith("uint"):
        raise ValueError(f"no encoding for {kind}")
    if not isinstance(value, int) or value < 0 or value.bit_length() > int(kind[4:]):
        raise ValueError(f"{value!r} is not a {kind}")
    return value.to_bytes(32)


def struct_hash(message: Message) -> str:
    """Return the message's EIP-712 ``hashStruct``, 0x hex; the job id of a :class:`JobOrder`."""
    name = type(message).__name__
    return to_hex(_hash_struct(name, {name: message.TYPE}, _values(message)))


def digest(domain: Domain, message: Message) -> bytes:
    """Return the 32 signed bytes: keccak(0x1901 || domainSeparator || hashStruct)."""
    return _digest(typed_data(domain, message))


def _digest(document: dict[str, Any]) -> bytes:
    form = signable(document)
    return keccak(b"\x19" + bytes(form.version) + bytes(form.header) + bytes(form.body))


def sign(private_key: str, document: dict[str, Any]) -> str:
    """Return the 65-byte signature (r, s, v) of an EIP-712 document as 0x hex."""
    return to_hex(bytes(Account.sign_message(signable(document), private_key).signature))


def recover_strictly(document: dict[str, Any], signature: str) -> str:
    """Return :func:`recover` if contracts accept it: 65 bytes, low s, v 27 or 28."""
    if not re.fullmatch("0x[0-9a-fA-F]{130}", signature):
        raise ValueError("malformed signature: it is not 65 bytes of 0x hex")
    raw = bytes.fromhex(signature[2:])
    if int.from_bytes(raw[32:64]) > _CURVE_ORDER // 2 or raw[64] not in (27, 28):
        raise ValueError("malformed signature: contracts refuse its s or v")
    return recover(document, signature)


def recover(document: dict[str, Any], signature: str) -> str:
    """Return the checksummed address that signed the document.

    Equals the result of ``Account.recover_message`` without building a key object each time; tests compare the two.

    Raises:
        ValueError: the signature is malformed.
    """
    raw = from_hex(signature, 65)
    parity = raw[64] - 27 if raw[64] >= 27 else raw[64]
    if parity not in (0, 1):
        raise ValueError(f"malformed signature: v is {raw[64]}")
    try:
        key = PublicKey.from_signature_and_message(raw[:64] + bytes([parity]), _digest(document), hasher=None)
    except Exception as error:  # libsecp256k1 raises a bare Exception
        raise ValueError(f"malformed signature: {error}") from error
    return _checksummed(to_hex(keccak(key.format(compressed=False)[1:])[12:]))
