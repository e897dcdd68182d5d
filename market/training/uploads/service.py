"""Large files of units, uploaded in pieces, so that an interruption costs at most one piece.

A lease, or a dispute of the unit, defines which files may be uploaded, and the job's specification their maximum size.
This bounds what a node can store. A piece has ``PIECE_BYTES`` of the file (the last one has the rest) and is checked
against its CID. Stored pieces belong to the unit, not to the lease, so that the next lease continues. Complete pieces
are joined into one file, checked against its CID and pinned. It is delivered like a file from ``POST /v1/blobs``.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import BinaryIO

from sqlalchemy.orm import Session

from market.jobs.models import Job
from market.platform.db.base import utc_now
from market.platform.db.session import Database
from market.platform.storage import quota
from market.platform.storage.client import Storage
from market.platform.storage.errors import BlobCorrupt, BlobNotFound, StorageUnavailable
from market.training.commitments import repository as commitments_repository
from market.training.leases import repository as leases_repository
from market.training.leases.models import Lease
from market.training.leases.schemas import LeaseKind
from market.training.leases.service import require_held
from market.training.leases.verification_hooks import hooks
from market.training.units import repository as units_repository
from market.training.units.facts import unit_spec
from market.training.units.models import Unit
from market.training.uploads import repository as uploads_repository
from market.training.uploads.errors import FileNotAsked, PieceRefused, UploadIncomplete, WrongFile
from market.training.uploads.models import Upload
from training_gym.compress.payload_format import payload_size
from training_gym.units.replica_state import slot_state_bytes
from training_gym.units.trace import boundary_state_bytes
from zoo_protocol.content.cid import parse
from zoo_protocol.content.unixfs import PIECE_BYTES, cid_of_file

PAYLOAD, SLOT_STATE, START_SLOT_STATE = "payload", "slot_state", "start_slot_state"
"""Purposes of files. Boundary states have ``state_<segment>``, end states of other environment classes
``end_state_<segment>``. Files for a committee are kept while the unit is disputed."""

DISPUTED = "disputed_"
DISPUTED_START = f"{DISPUTED}start"

MAX_NAMED = 64
"""Missing pieces that an error lists."""


@dataclass(frozen=True, slots=True)
class Expected:
    """A file that the caller may upload: purpose and maximum bytes."""

    unit_id: int
    purpose: str
    max_bytes: int


@dataclass(frozen=True, slots=True)
class Progress:
    """Stored parts of a file: piece CIDs by number; ``complete`` if storage has it whole."""

    expected: Expected
    pieces: dict[int, str]
    complete: bool


FindExpected = Callable[[Session], Expected]
"""Returns the expected file of a caller. Raises FileNotAsked, or the reason why the caller may upload nothing."""


def expect_for_lease(lease_id: str, address: str, token: str, cid: str) -> FindExpected:
    """Return the lookup for a lease holder, which raises LeaseLost, FileNotAsked."""
    return lambda session: _held(session, lease_id, address, token, cid)


def expect_for_dispute(session: Session, unit_key: str, step: int, cid: str) -> Expected:
    """Return the expected file of a disputed unit's provider, for the selected segment ``step``.

    Raises:
        FileNotAsked: the unit has no acknowledgement, or needs no such file.
    """
    found = commitments_repository.acknowledged_unit(session, unit_key)
    if found is None:
        raise FileNotAsked("The unit has no acknowledgement.", field="cid")
    _, job, unit = found
    spec = unit_spec(job, unit)
    if cid == unit.start_slot_state_cid:
        return Expected(unit.id, DISPUTED_START, slot_state_bytes(spec))
    if step == 0:
        raise FileNotAsked(f"Segment 0 starts from the replica state {unit.start_slot_state_cid}.", field="cid")
    return Expected(unit.id, f"{DISPUTED}{step}", boundary_state_bytes(spec))


def expected(lease: Lease, job: Job, unit: Unit, cid: str) -> Expected:
    """Return the expected file ``cid`` of the holder of ``lease``. Raises FileNotAsked."""
    spec = unit_spec(job, unit)
    asked = lease.task.get("slot_state_cid")
    match lease.kind:
        case LeaseKind.TRAIN:
            return Expected(unit.id, PAYLOAD, payload_size(spec))
        case LeaseKind.PUBLISH if cid == asked:
            return Expected(unit.id, SLOT_STATE, slot_state_bytes(spec))
        case LeaseKind.REVEAL if cid == asked:
            return Expected(unit.id, START_SLOT_STATE, slot_state_bytes(spec))
        case LeaseKind.REVEAL if lease.task["segment"]:
            return Expected(unit.id, f"state_{lease.task['segment']}", boundary_state_bytes(spec))
        case LeaseKind.REPLAY if lease.task.get("across"):
            return Expected(unit.id, _end_state(lease), boundary_state_bytes(spec))
    what = f"the replica state {asked}" if asked else "no file"
    raise FileNotAsked(f"This {lease.kind} lease requests {what}.", field="cid")


def _end_state(lease: Lease) -> str:
    return f"end_state_{lease.task.get('segment')}"


def progress(database: Database, storage: Storage, asked: FindExpected, cid: str) -> Progress:
    """Return the state of a file. Raises InvalidCid, errors of ``asked``, StorageUnavailable."""
    parse(cid)
    with database.transaction() as session:
        file = asked(session)
        row = uploads_repository.lock_upload(session, file.unit_id, file.purpose)
        mine = row is not None and row.cid == cid
        found = uploads_repository.pieces(session, file.unit_id, file.purpose) if mine else []
        pieces = {piece.number: piece.cid for piece in found}
        joined = row is not None and mine and row.joined
    return Progress(file, pieces, joined or storage.is_pinned(cid))


def store_chunk(
    database: Database,
    storage: Storage,
    asked: FindExpected,
    address: str,
    cid: str,
    number: int,
    piece_cid: str,
    body: BinaryIO,
    day_quota: int,
) -> None:
    """Store a piece. Idempotent; another file for the same purpose replaces the earlier one.

    Replaced bytes count against the account's ``day_quota``, so that a lease does not bypass it. ``cid`` is the whole
    file's, ``piece_cid`` that of the piece as a file of its own.

    Raises:
        PieceRefused, StorageQuotaExceeded, InvalidCid, errors of ``asked``; StorageUnavailable: retry.
    """
    parse(cid)
    parse(piece_cid)
    with database.transaction() as session:
        file = asked(session)
        row = uploads_repository.lock_upload(session, file.unit_id, file.purpose)
        if row is not None and row.cid == cid and row.joined:
            return
        if row is not None and (
            replaced_bytes := uploads_repository.replaced_bytes(session, row, cid, number, piece_cid)
        ):
            quota.charge(session, address, replaced_bytes, day_quota)
        replaced = _begin(session, file, cid)
    _release(database, storage, replaced)
    content = body.read()
    _check_piece(file, number, piece_cid, content)
    storage.put(content, max_bytes=PIECE_BYTES, pin=False)
    with database.transaction() as session:
        row = uploads_repository.lock_upload(session, file.unit_id, file.purpose)
        if row is not None and row.cid == cid and not row.joined:
            row.touched_at = utc_now()
            uploads_repository.put_piece(session, file.unit_id, file.purpose, number, piece_cid, len(content))


def _check_piece(file: Expected, number: int, piece_cid: str, content: bytes) -> None:
    left = file.max_bytes - number * PIECE_BYTES
    if left <= 0 or len(content) > left:
        raise PieceRefused(
            f"The file exceeds {file.max_bytes} bytes, the maximum by the job's specification.",
            field="number" if left <= 0 else "body",
            extra={"reason": "file_too_large", "max_bytes": file.max_bytes},
        )
    if not content:
        raise PieceRefused("The piece is empty.", field="body", extra={"reason": "piece_empty"})
    if (found := cid_of_file(content)) != piece_cid:
        raise PieceRefused(
            f"The bytes have the CID {found}, not {piece_cid}.", field="piece_cid", extra={"reason": "piece_mismatch"}
        )


def join(database: Database, storage: Storage, asked: FindExpected, address: str, cid: str, day_quota: int) -> int:
    """Join a file's pieces, pin it and return its bytes. Idempotent.

    Pieces that form another file count against the account's quota, like replaced pieces.

    Raises:
        InvalidCid, errors of ``asked``; StorageUnavailable: retry.
        UploadIncomplete: pieces are missing or lost by storage; send the listed ones.
        WrongFile: the pieces form another file; send all of them again.
        StorageQuotaExceeded: another file, and the account's quota is used up.
    """
    parse(cid)
    with database.transaction() as session:
        file = asked(session)
        row = uploads_repository.lock_upload(session, file.unit_id, file.purpose)
        joined = row is not None and row.cid == cid and row.joined
        found = uploads_repository.pieces(session, file.unit_id, file.purpose)
        pieces = [(piece.number, piece.cid, piece.size) for piece in found] if row and row.cid == cid else []
    if joined or (not pieces and storage.is_pinned(cid)):
        return storage.stat(cid)
    _require_whole(pieces)
    try:
        blob = storage.join([(piece_cid, size) for _, piece_cid, size in pieces])
        if blob.cid != cid:
            raise WrongFile(f"The pieces form the file {blob.cid}.", field="cid")
        if not storage.is_pinned(cid):
            _record_pin(database, file, cid)
        storage.pin(cid, size=blob.size)
    except (BlobNotFound, BlobCorrupt) as error:
        _drop_pieces(database, file, cid)
        detail = f"Storage has lost pieces: {error}"
        raise UploadIncomplete(detail, field="cid", extra={"missing": []}) from error
    except WrongFile:
        with database.transaction() as session:
            quota.charge(session, address, blob.size, day_quota)
        _drop_pieces(database, file, cid)
        raise
    with database.transaction() as session:
        row = uploads_repository.lock_upload(session, file.unit_id, file.purpose)
        if row is not None and row.cid == cid and not row.joined:
            row.joined, row.touched_at = True, utc_now()
            uploads_repository.delete_pieces(session, file.unit_id, file.purpose)
    return blob.size


def join_stored(database: Database, storage: Storage, account: str, cid: str, pieces: Sequence[tuple[str, int]]) -> int:
    """Join files that the account stored within a day, pin the result, return its bytes.

    Idempotent. The pieces are charged to the account's quota already. Pieces of other accounts do not count, so that
    the answer shows nothing about them.

    Args:
        pieces: (CID, size in bytes) in order.

    Raises:
        InvalidCid, StorageUnavailable: retry.
        UploadIncomplete: pieces are missing or lost by storage; store the listed ones and repeat the call.
        WrongFile: the pieces form another file, or have other sizes.
    """
    parse(cid)
    if storage.is_pinned(cid):
        return storage.stat(cid)
    with database.reading() as session:
        stored = quota.stored_within_day(session, account, {piece for piece, _ in pieces})
    missing = [number for number, (piece, _) in enumerate(pieces) if piece not in stored]
    if missing:
        remedy = "Store the missing pieces with POST /v1/blobs and repeat this call."
        detail = f"{len(missing)} of {len(pieces)} pieces are not stored by this account within a day."
        raise UploadIncomplete(detail, field="pieces", remedy=remedy, extra={"missing": missing[:MAX_NAMED]})
    try:
        blob = storage.join(pieces)
        if blob.cid != cid:
            raise WrongFile(f"The pieces form the file {blob.cid}.", field="cid")
        storage.pin(cid, size=blob.size)  # reads the pieces' last blocks, which joining does not
    except BlobNotFound as error:
        extra = {"missing": list(range(len(pieces)))}  # storage names a block, not its piece
        remedy = "Store the listed pieces again with POST /v1/blobs and repeat this call."
        raise UploadIncomplete(
            f"Storage has lost pieces: {error}", field="pieces", remedy=remedy, extra=extra
        ) from error
    except BlobCorrupt as error:
        raise WrongFile(f"The pieces do not have these sizes: {error}", field="pieces") from error
    return blob.size


def _require_whole(pieces: Sequence[tuple[int, str, int]]) -> None:
    full = {number for number, _, size in pieces if size == PIECE_BYTES}
    last = max((number for number, _, _ in pieces), default=0)
    missing = [number for number in range(last) if number not in full]
    if missing or not pieces:
        raise UploadIncomplete(
            f"{len(missing) or 'All'} pieces are missing or not full.",
            field="cid",
            extra={"missing": missing[:MAX_NAMED]},
        )


def hand_over(session: Session, lease: Lease, cids: Sequence[str | None]) -> None:
    """Hand the checked files of a lease over to its unit."""
    if lease.unit_id is None:
        return
    quota.stop_charging(session, lease.holder, cids)
    purposes = {
        LeaseKind.TRAIN: [PAYLOAD],
        LeaseKind.PUBLISH: [SLOT_STATE],
        LeaseKind.REVEAL: [START_SLOT_STATE, f"state_{lease.task.get('segment')}"],
        LeaseKind.REPLAY: [_end_state(lease)],
    }
    uploads_repository.delete_uploads(session, lease.unit_id, purposes.get(LeaseKind(lease.kind), []))


def delete_stale(database: Database, storage: Storage, before: datetime) -> int:
    """Delete unaccepted uploads without a change since ``before``; return their number."""
    with database.transaction() as session:
        due = uploads_repository.stale(session, before, without=DISPUTED)
    return _discard(database, storage, due)


def delete_disputed(database: Database, storage: Storage, disputed: Collection[str]) -> int:
    """Delete dispute files of all units except ``disputed``, keys of units in open disputes."""
    with database.transaction() as session:
        found = [commitments_repository.acknowledged_unit(session, key) for key in disputed]
        kept = {one[2].id for one in found if one is not None}
        due = [row for row in uploads_repository.uploads_for(session, DISPUTED) if row.unit_id not in kept]
    return _discard(database, storage, due)


def _discard(database: Database, storage: Storage, uploads: Sequence[Upload]) -> int:
    due = [(row.unit_id, row.purpose, row.cid, row.pinned_here) for row in uploads]
    for unit_id, purpose, cid, pinned_here in due:
        try:
            _release(database, storage, cid if pinned_here else None)
        except StorageUnavailable:
            return 0  # the next sweep retries
        with database.transaction() as session:
            uploads_repository.delete_uploads(session, unit_id, [purpose])
    return len(due)


def _held(session: Session, lease_id: str, address: str, token: str, cid: str) -> Expected:
    lease = require_held(leases_repository.lease(session, lease_id), address, token, utc_now())
    found = None if lease.unit_id is None else units_repository.unit(session, lease.unit_id)
    if found is None:
        raise FileNotAsked(f"This {lease.kind} lease requests no file.", field="cid")
    return expected(lease, *found, cid)


def _begin(session: Session, file: Expected, cid: str) -> str | None:
    """Start or continue the upload for this purpose; return a replaced file's pinned CID."""
    now = utc_now()
    row = uploads_repository.begin(session, file.unit_id, file.purpose, cid, now)
    if row.cid == cid:
        return None
    replaced = row.cid if row.pinned_here else None
    uploads_repository.delete_pieces(session, file.unit_id, file.purpose)
    row.cid, row.joined, row.pinned_here, row.touched_at = cid, False, False, now
    return replaced


def _record_pin(database: Database, file: Expected, cid: str) -> None:
    """Record the pin before it is made, so that an abandoned upload leaves no pin."""
    with database.transaction() as session:
        row = uploads_repository.lock_upload(session, file.unit_id, file.purpose)
        if row is not None and row.cid == cid and not row.joined:
            row.pinned_here = True


def _drop_pieces(database: Database, file: Expected, cid: str) -> None:
    with database.transaction() as session:
        row = uploads_repository.lock_upload(session, file.unit_id, file.purpose)
        if row is not None and row.cid == cid and not row.joined:
            row.pinned_here = False  # an incomplete file is not pinned
            uploads_repository.delete_pieces(session, file.unit_id, file.purpose)


def _release(database: Database, storage: Storage, cid: str | None) -> None:
    """Unpin an abandoned upload's file, unless it has another use."""
    if cid is None:
        return
    with database.transaction() as session:
        needed = uploads_repository.is_named(session, cid) or hooks().is_revealed(session, cid)
    if not needed:
        storage.unpin(cid)
