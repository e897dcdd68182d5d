"""Job record, published before a settlement pays and sufficient to recompute it.

The market stores a record as canonical JSON and puts the SHA2-256 digest of its CID into ``JobEscrow.settle``. The
chain therefore identifies the record, and its CID follows (:func:`zoo_protocol.content.cid.cids_of_digest`). With the
record, the chain and a gateway anyone can recompute the settlement (:mod:`zoo_compute.audit.receipt`).
"""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, astuple, dataclass, field
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

from eth_abi.abi import encode as abi_encode
from eth_abi.exceptions import EncodingError

from zoo_protocol import merkle
from zoo_protocol.hashing import canonical_json, from_hex, keccak, to_hex
from zoo_protocol.messages import JobOrder, ReplayCommitment, UnitCommitment, struct_hash

KIND = "zoo-job-record/7"
BATCH_KIND = "zoo-settlement-batch/1"
AGGREGATION_KIND = "zoo-aggregation/4"
VERIFIED = "verified"
ROLLED_BACK = "rolled_back"
"""Verdict on the payloads of a round whose checkpoint repeats an earlier one."""
PAYLOAD_LOST = "payload_lost"
"""Reason of a verified unit whose payload the market's storage had lost: no aggregation lists it."""
MAX_ROLLBACKS = 2
"""Rollbacks of a job; it fails as ``diverged`` when it needs another one."""
INPUT_FILES = ("checkpoint_cid", "slot_state_cid", "restored_payload_cid", "eager_payload_cid")
"""Files that a unit starts from, as leases name them; a :class:`UnitRecord` has the prefix ``start_``."""
MAX_RECORD_BYTES = 64 * 2**20
_Record = TypeVar("_Record")

# Strings of a form, and numbers of a range: records are untrusted, and readers compute with them.
Hash = Annotated[str, "0x[0-9a-f]{64}"]
Address = Annotated[str, "0x[0-9a-fA-F]{40}"]
Amount = Annotated[str, "[0-9]{1,78}"]
Loss = Annotated[str, r"[0-9]{1,40}\.[0-9]{1,40}"]
Code = Annotated[str, "[a-z_]{1,32}"]
Count = Annotated[int, range(2**32)]
Segments = Annotated[int, range(1, 2**16)]  # the range of an order's segments
Share = Annotated[int, range(10_001)]


class RecordError(ValueError):
    """The bytes are not a job record; ``field`` names the place."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field


@dataclass(frozen=True, slots=True)
class ReplayRecord:
    """A verifier's opened result on a sampled segment, with its signed commitment.

    ``verdict`` is bit_equal, refuted or tolerated; the last is of another environment class.
    """

    segment: Count
    verifier: Address
    environment_class: Hash
    signature: str
    end_leaf: Hash
    inner_digest: Hash | None
    salt: Hash
    verdict: str

    def commitment(self, job_id: str, round_: int, slot: int, start_leaf: str) -> ReplayCommitment:
        """Return the message that ``signature`` must sign, for a replay from ``start_leaf``."""
        opened = result_hash(self.end_leaf, self.inner_digest, self.verifier, self.salt)
        return ReplayCommitment(job_id, round_, slot, self.segment, start_leaf, self.environment_class, opened)


@dataclass(frozen=True, slots=True)
class UnitRecord:
    """One unit: its provider, its commitment and its outcome.

    - ``status`` is verified, rejected or lost. ``reason`` is that of the last two, or ``PAYLOAD_LOST``.
    - ``start_slot_state_cid`` is the replica state at the start; None is a fresh one. The payload
      ``start_restored_payload_cid`` was restored to it, unless None. ``slot_state_cid`` is the state at the end. Such
      files stay on their nodes unless another node needs them.
    - ``start_eager_payload_cid`` is the payload that updated the checkpoint's parameters at the start, unless None
      (``training_gym.exchange.early_start``).
    - ``top_k`` is the unit's number of entries per chunk; None is the specification's.
    - ``window`` is the id in the WorkWindows contract, None if the unit never entered one; ``window_index`` its leaf.
    - ``sampling_bps`` is the sampling rate of its segments, None if it was not delivered.
    - ``tolerated_segments`` are the sampled segments that passed only a cross-class check, which is weaker than equal
      bits.
    - ``leaves`` is the trace of a sampled unit, and ``replays`` are the results on its segments.
    """

    round: Count
    slot: Count
    provider: Address
    status: str
    reason: str | None
    start_checkpoint_cid: str
    start_slot_state_cid: str | None
    start_restored_payload_cid: str | None
    start_eager_payload_cid: str | None
    top_k: int | None
    trace_root: Hash | None
    payload_hash: Hash | None
    payload_cid: str | None
    salt: Hash | None
    slot_state_cid: str | None
    commitment_signature: str | None
    window: Count | None
    window_index: Count | None
    sampling_bps: Share | None
    drawn_segments: list[int]
    tolerated_segments: list[int]
    leaves: list[Hash] = field(default_factory=list)
    replays: list[ReplayRecord] = field(default_factory=list)

    def commitment(self, job_id: str) -> UnitCommitment | None:
        """Return the provider's commitment to this unit of a job; None if it has none."""
        if self.trace_root is None or self.payload_hash is None:
            return None
        return UnitCommitment(job_id, self.round, self.slot, self.provider, self.trace_root, self.payload_hash)

    def leaf(self, job_id: str) -> str | None:
        """Return the leaf of :meth:`commitment` in its window's tree, 0x hex."""
        commitment = self.commitment(job_id)
        return None if commitment is None else to_hex(leaf_of(commitment))


@dataclass(frozen=True, slots=True)
class SlashRecord:
    """A penalty for a unit of this job; the chain has the amount.

    ``path`` is "dispute" if the contract Disputes decided it; ``evidence`` is then the dispute's id. It is "operator"
    if the operator's key decided it; ``path_reason`` gives the reason, ``evidence`` the digest inside
    ``evidence_cid``.
    """

    round: Count
    slot: Count
    provider: Address
    offence: str
    evidence: Hash
    evidence_cid: str
    path: str
    path_reason: str | None


@dataclass(frozen=True, slots=True)
class CheckpointRecord:
    """Model before ``round``; ``cid``: its manifest, ``pins``: proven providers.

    ``validation_loss`` is None if unknown when the record was written. The last checkpoint of a completed job has a
    loss, and so has the first one unless units evaluate it. ``validation_error`` is the loss's standard error in nats,
    ``validation_samples`` the number of samples; None if unknown.
    """

    round: Count
    cid: str
    model_cid: str
    validation_loss: Loss | None
    validation_error: Loss | None
    validation_samples: Count | None
    pins: list[str]


@dataclass(frozen=True, slots=True)
class WindowRecord:
    """One committed window with units of this job: all its leaves, to recompute its root."""

    id: Count
    root: Hash
    leaves: list[Hash]


@dataclass(frozen=True, slots=True)
class JobRecord:
    """All input to the settlement of one job. Amounts are decimal strings of wei.

    The record of a job's last line has all its units; an earlier one has the units that its line pays. ``batch_cid``
    names the :class:`PaidUnits` of the whole batch; None if it pays nothing.
    """

    job_id: Hash
    network: str
    tier: str
    segments: Segments
    environment_class: str | None
    spec_cid: str
    order: dict[str, str]
    order_signature: str
    outcome: str
    clearing_price_wei_per_gpu_hour: Amount
    auction: dict[str, Any] | None
    units: list[UnitRecord]
    slashes: list[SlashRecord]
    checkpoints: list[CheckpointRecord]
    windows: list[WindowRecord]
    initial_loss: Loss | None
    final_loss: Loss | None
    final_model_cid: str | None
    times: dict[str, str]
    batch_cid: str | None

    def to_bytes(self) -> bytes:
        """Return the canonical JSON of the record."""
        return canonical_json({"kind": KIND, **asdict(self)})

    @classmethod
    def from_bytes(cls, data: bytes) -> "JobRecord":
        """Parse and check the shape of a record.

        Raises:
            RecordError: a field is missing, unknown, of the wrong type or form, or out of range.
        """
        record = _parse(cls, KIND, data)
        order_of(record.order)
        return record

    def paid_units(self) -> list[UnitRecord]:
        """Return the verified units, which are paid, in (round, slot) order."""
        return sorted(
            (unit for unit in self.units if unit.status == VERIFIED), key=lambda unit: (unit.round, unit.slot)
        )


@dataclass(frozen=True, slots=True)
class PaidUnit:
    """Unit that a batch pays: its commitment, and its price in wei per GPU-hour."""

    job_id: Hash
    round: Count
    slot: Count
    provider: Address
    trace_root: Hash
    payload_hash: Hash
    price: Amount


@dataclass(frozen=True, slots=True)
class PaidUnits:
    """All units of a settlement batch; with the lines on chain they give its root."""

    units: list[PaidUnit]

    def to_bytes(self) -> bytes:
        """Return the canonical JSON."""
        return canonical_json({"kind": BATCH_KIND, **asdict(self)})

    @classmethod
    def from_bytes(cls, data: bytes) -> "PaidUnits":
        """Parse and check the shape. Raises RecordError."""
        return _parse(cls, BATCH_KIND, data)


@dataclass(frozen=True, slots=True)
class PlacedPayload:
    """Payload of an aggregation: place, unit, CID, weight, and code of the verdict."""

    place: Count
    round: Count
    slot: Count
    payload: str
    weight: Count
    verdict: str


@dataclass(frozen=True, slots=True)
class AggregationRecord:
    """Input and verdicts of the aggregation after ``round``, from ``checkpoint`` (CID).

    ``rolled_back_to`` is the round of the earlier checkpoint that the next one repeats, for ``rollback_reason``
    (:data:`zoo_protocol.verification.training_faults.FAULTS`). Both are None after an aggregation.
    """

    job_id: Hash
    round: Count
    checkpoint: str
    weight_one: Count
    payloads: list[PlacedPayload]
    rolled_back_to: Count | None = None
    rollback_reason: Code | None = None

    def to_bytes(self) -> bytes:
        """Return the canonical JSON."""
        return canonical_json({"kind": AGGREGATION_KIND, **asdict(self)})

    @classmethod
    def from_bytes(cls, data: bytes) -> "AggregationRecord":
        """Parse and check the shape. Raises RecordError."""
        return _parse(cls, AGGREGATION_KIND, data)


def order_of(fields: Mapping[str, str]) -> JobOrder:
    """Return the order in a record (decimal strings). Raises RecordError: it is invalid."""
    try:
        texts = ("payer", "specHash")
        values: dict[str, Any] = {name: text if name in texts else int(text) for name, text in fields.items()}
        order = JobOrder(**values)
        struct_hash(order)
    except (TypeError, ValueError, AttributeError) as error:
        raise RecordError("record.order", f"is not an order: {error}") from error
    return order


def unit_leaf(job_id: str, round_: int, slot: int, provider: str, trace_root: str, payload_hash: str) -> bytes:
    """Return a unit's leaf in its window's tree (``abi.encode``). Raises ValueError."""
    hashes = from_hex(job_id), from_hex(trace_root), from_hex(payload_hash)
    try:
        encoded = abi_encode(
            ["bytes32", "uint32", "uint32", "address", "bytes32", "bytes32"],
            [hashes[0], round_, slot, provider, *hashes[1:]],
        )
    except EncodingError as error:
        raise ValueError(f"not a unit commitment: {error}") from error
    return merkle.leaf_hash(encoded)


def leaf_of(commitment: UnitCommitment) -> bytes:
    """Return a commitment's leaf in its window's tree: the unit's id in Omissions."""
    return unit_leaf(*astuple(commitment))


def result_hash(end_leaf: str, inner_digest: str | None, verifier: str, salt: str) -> str:
    """Return the hash that a verifier commits to (0x hex). Raises ValueError."""
    inner = b"" if inner_digest is None else from_hex(inner_digest)
    return to_hex(keccak(from_hex(end_leaf) + inner + from_hex(verifier, 20) + from_hex(salt)))


def dispute_id(unit_key: str, challenger: str) -> str:
    """Return the id (``disputeIdOf``, 0x hex) of a challenger's dispute of ``unit_key``."""
    return to_hex(keccak(abi_encode(["bytes32", "address"], [from_hex(unit_key), challenger])))


def _parse(cls: type[_Record], kind: str, data: bytes) -> _Record:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise RecordError("record", f"is not JSON: {error}") from error
    if not isinstance(document, dict) or document.pop("kind", None) != kind:
        raise RecordError("kind", f"is not {kind!r}")
    found: _Record = _load(cls, document, "record")
    return found


def _load(kind: Any, value: Any, path: str) -> Any:
    """Return ``value`` as ``kind``: dataclass, (annotated) JSON type, list, mapping or None."""
    if hasattr(kind, "__dataclass_fields__"):
        hints = get_type_hints(kind, include_extras=True)
        if not isinstance(value, dict) or set(value) != set(hints):
            given = set(value) if isinstance(value, dict) else set()
            raise RecordError(path, f"needs exactly the keys {sorted(hints)}; differing: {sorted(given ^ set(hints))}")
        return kind(**{name: _load(hint, value[name], f"{path}.{name}") for name, hint in hints.items()})
    if type(None) in get_args(kind):
        return None if value is None else _load(get_args(kind)[0], value, path)
    if get_origin(kind) is Annotated:
        base, form = get_args(kind)
        _require_form(_load(base, value, path), form, path)
        return value
    if not isinstance(value, get_origin(kind) or kind) or isinstance(value, bool):
        raise RecordError(path, f"has the wrong type {type(value).__name__}")
    if get_origin(kind) is list:
        return [_load(get_args(kind)[0], item, f"{path}[{index}]") for index, item in enumerate(value)]
    if get_origin(kind) is dict and get_args(kind)[1] is not Any:
        return {name: _load(get_args(kind)[1], item, f"{path}.{name}") for name, item in value.items()}
    return value


def _require_form(value: str | int, form: str | range, path: str) -> None:
    if isinstance(form, str) and re.fullmatch(form, str(value)) is None:
        raise RecordError(path, f"{value!r:.100} is not of the form {form}")
    if isinstance(form, range) and value not in form:
        raise RecordError(path, f"{value} is not from {form.start} to {form.stop - 1}")
