"""The job record: what a settlement was decided on, published before it is paid; and the units that a batch pays.

The market stores it as a file of canonical JSON and puts the SHA2-256 digest of its CID into ``JobEscrow.settle``: the
chain says which record is the right one, and its CID follows (:func:`zoo_protocol.content.cid.cids_of_digest`). With
the
record, the chain and a gateway anybody recomputes the settlement (:mod:`zoo_compute.audit.receipt`).
"""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, astuple, dataclass
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from eth_abi.abi import encode as abi_encode
from eth_abi.exceptions import EncodingError

from zoo_protocol import merkle
from zoo_protocol.hashing import canonical_json, from_hex, keccak, to_hex
from zoo_protocol.messages import JobOrder, UnitCommitment, struct_hash

KIND = "zoo-job-record/5"


BATCH_KIND = "zoo-settlement-batch/1"


VERIFIED = "verified"


MAX_RECORD_BYTES = 64 * 2**20


# Strings of a form, and numbers of a range: a record is computed with, and its author may be anybody.
Hash = Annotated[str, "0x[0-9a-f]{64}"]


Address = Annotated[str, "0x[0-9a-fA-F]{40}"]


Amount = Annotated[str, "[0-9]{1,78}"]


Loss = Annotated[str, r"[0-9]{1,40}\.[0-9]{1,40}"]


Count = Annotated[int, range(2**32)]


Segments = Annotated[int, range(1, 2**16)]  # as many as an order can name


Share = Annotated[int, range(10_001)]


class RecordError(ValueError):
    """The bytes are no job record; ``field`` says where."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field


@dataclass(frozen=True, slots=True)
class UnitRecord:
    """One unit: who computed what, what it committed to and what became of it.

    ``status`` is verified, rejected or lost. It started from the slot state ``start_slot_state_cid`` (None: a fresh
    one), to which the payload ``start_restored_payload_cid`` was added back unless that is None, and handed on
    ``slot_state_cid``; such files stay on their nodes unless somebody needed them. Its parameters were the
    checkpoint's, moved by the payload ``start_eager_payload_cid`` unless that is None
    (``training_gym.exchange.early_start``).
    ``top_k`` is how many entries of each chunk it was told to send; None is what the specification says. ``window`` is
    the id in the WorkWindows contract, None if the unit never entered one; ``window_index`` its leaf there.
    ``sampling_bps`` is the rate its segments are drawn at, None if it was not delivered. ``tolerated_segments`` are
    those of the drawn ones that only a verifier of another environment class replayed, which passed them by tolerance:
    weaker than equal bits.
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


@dataclass(frozen=True, slots=True)
class SlashRecord:
    """A penalty for a unit of this job; the amount is what the chain says.

    ``path``: "dispute" where the contract Disputes decided it, and ``evidence`` is that dispute's id; "operator" where
    the operator's key did, ``path_reason`` says why, and ``evidence`` is the digest inside ``evidence_cid``.
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
    """The model before ``round``; ``cid`` is its manifest, ``pins`` the providers that proved a copy.

    ``validation_loss`` is None where it was not known when the record was written; the first and, of a completed job,
    the last have one.
    """

    round: Count
    cid: str
    model_cid: str
    validation_loss: Loss | None
    pins: list[str]


@dataclass(frozen=True, slots=True)
class WindowRecord:
    """One committed window that holds units of this job: all its leaves, so that its root can be recomputed."""

    id: Count
    root: Hash
    leaves: list[Hash]


@dataclass(frozen=True, slots=True)
class JobRecord:
    """Everything that a settlement of one job rests on. Amounts are decimal strings of wei.

    The record of the line that ends a job has all its units; one of before has those that its line pays. ``batch_cid``
    names the :class:`PaidUnits` of the whole batch; None where nothing is paid.
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
        """Canonical JSON of the record."""
        return canonical_json({"kind": KIND, **asdict(self)})

    @classmethod
    def from_bytes(cls, data: bytes) -> "JobRecord":
        """Parse and check the shape of a record.

        Raises:
            RecordError: naming the field that is missing, unknown, of the wrong type or form, or out of range.
        """
        record = _parse(cls, KIND, data)
        assert isinstance(record, cls)
        order_of(record.order)
        return record

    def paid_units(self) -> list[UnitRecord]:
        """The verified units in (round, slot) order: those that are paid."""
        return sorted(
            (unit for unit in self.units if unit.status == VERIFIED), key=lambda unit: (unit.round, unit.slot)
        )


@dataclass(frozen=True, slots=True)
class PaidUnit:
    """A unit that a batch pays: its commitment, and its price in wei per GPU-hour as a decimal string."""

    job_id: Hash
    round: Count
    slot: Count
    provider: Address
    trace_root: Hash
    payload_hash: Hash
    price: Amount


@dataclass(frozen=True, slots=True)
class PaidUnits:
    """All units of one settlement batch, of whatever jobs: with the lines on chain they make its root."""

    units: list[PaidUnit]

    def to_bytes(self) -> bytes:
        """Canonical JSON."""
        return canonical_json({"kind": BATCH_KIND, **asdict(self)})

    @classmethod
    def from_bytes(cls, data: bytes) -> "PaidUnits":
        """Parse and check the shape.

        Raises:
            RecordError: as of a record.
        """
        found = _parse(cls, BATCH_KIND, data)
        assert isinstance(found, cls)
        return found


def order_of(fields: Mapping[str, str]) -> JobOrder:
    """The order in a record, whose integers are decimal strings.

    Raises:
        RecordError: it is none.
    """
    try:
        texts = ("payer", "specHash")
        values: dict[str, Any] = {name: text if name in texts else int(text) for name, text in fields.items()}
        order = JobOrder(**values)
        struct_hash(order)
    except (TypeError, ValueError, AttributeError) as error:
        raise RecordError("record.order", f"is none of a job: {error}") from error
    return order


def unit_leaf(job_id: str, round_: int, slot: int, provider: str, trace_root: str, payload_hash: str) -> bytes:
    """The leaf of a unit in its window's tree (Solidity ``abi.encode`` of the six).

    Raises:
        ValueError: one of them is not what the type says.
    """
    hashes = from_hex(job_id), from_hex(trace_root), from_hex(payload_hash)
    try:
        encoded = abi_encode(
            ["bytes32", "uint32", "uint32", "address", "bytes32", "bytes32"],
            [hashes[0], round_, slot, provider, *hashes[1:]],
        )
    except EncodingError as error:
        raise ValueError(f"no commitment to a unit: {error}") from error
    return merkle.leaf_hash(encoded)


def leaf_of(commitment: UnitCommitment) -> bytes:
    """The leaf of a commitment in its window's tree; in the Omissions contract the id of its unit."""
    return unit_leaf(*astuple(commitment))


def dispute_id(unit_key: str, challenger: str) -> str:
    """The id of a challenger's dispute of a unit in the contract Disputes (``disputeIdOf``), 0x hex.

    Args:
        unit_key: the leaf of the unit's commitment, 0x hex.
        challenger: address.
    """
    return to_hex(keccak(abi_encode(["bytes32", "address"], [from_hex(unit_key), challenger])))


def _parse(cls: type, kind: str, data: bytes) -> Any:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise RecordError("record", f"is not JSON: {error}") from error
    if not isinstance(document, dict) or document.pop("kind", None) != kind:
        raise RecordError("kind", f"is not {kind!r}")
    return _load(cls, document, "record")


def _load(kind: Any, value: Any, path: str) -> Any:
    """``value`` as ``kind``: a dataclass of this module, a JSON type, one with a form or range, a list or mapping of
    these, or any of them or None."""
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
