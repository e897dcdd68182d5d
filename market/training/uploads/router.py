"""Routes for uploads by nodes and users: whole files, and large files of units in pieces."""

from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import SpooledTemporaryFile
from typing import Annotated, Any, BinaryIO, cast

from fastapi import APIRouter, Header, Path, Query, Request
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, Field

from market.accounts.deps import CurrentAccount
from market.platform.http.deps import ServicesDep
from market.platform.http.errors import BodyTooLarge, InvalidRequest, StorageDown, StorageQuotaExceeded
from market.platform.http.refusals import refusals
from market.platform.http.services import Services
from market.platform.http.types import CidString, RequestModel
from market.platform.storage import quota
from market.platform.storage.client import Storage, StoredBlob
from market.platform.storage.errors import StorageError
from market.providers.benchmarks import service as benchmarks
from market.training.leases.api_liveness import REPORTS_LIVENESS, LeaseId
from market.training.leases.errors import LeaseLost
from market.training.leases.schemas import Token
from market.training.uploads import service
from market.training.uploads.errors import FileNotAsked, PieceRefused, UploadIncomplete, WrongFile
from zoo_protocol.content.cid import InvalidCid
from zoo_protocol.content.unixfs import CHUNK_BYTES, MAX_PIECE_BYTES, PIECE_BYTES

blobs_router = APIRouter(prefix="/v1", tags=["storage"])
router = APIRouter(prefix="/v1/leases/{lease_id}/files/{cid}", tags=["leases"], dependencies=[REPORTS_LIVENESS])

UPLOAD_PATH = "/v1/blobs"
PIECE_PATH = "/v1/leases/[^/]+/files/[^/]+/pieces/[^/]+"
"""Matches the paths of pieces, whose bodies are too large for memory."""

_IN_MEMORY = 1024 * 1024
MAX_FILE_BYTES = 1 << 37
BINARY_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}

FileCid = Annotated[CidString, Path(description="The whole file's CID.")]

PieceNumber = Annotated[int, Path(ge=0, lt=2**20, description="The piece's number, from 0.")]

PieceCid = Annotated[CidString, Query(description="CID of the piece as a file of its own.")]

LeaseToken = Annotated[Token, Header(alias="X-Lease-Token", description="The lease's token.")]


@contextmanager
def _storage_errors() -> Iterator[None]:
    try:
        yield
    except InvalidCid as error:
        raise InvalidRequest(str(error), field="cid") from error
    except StorageError as error:  # includes lost and corrupt content
        raise StorageDown(str(error)) from error


class FileView(BaseModel):
    """State of a file in storage; pieces have ``piece_bytes``, the last one has the rest."""

    cid: str
    max_bytes: int = Field(description="Maximum bytes of the file by the job's specification.")
    piece_bytes: int
    pieces: dict[int, str] = Field(description="CID of each stored piece, by its number from 0.")
    complete: bool = Field(description="True if storage has the whole file, so that no piece is needed.")


class PieceView(BaseModel):
    """A stored piece."""

    number: int
    cid: str


class JoinedView(BaseModel):
    """A stored and pinned file."""

    cid: str
    size: int = Field(description="Bytes.")


@router.get("", responses=refusals(LeaseLost, FileNotAsked, StorageDown))
def read_file(
    lease_id: LeaseId, cid: FileCid, token: LeaseToken, account: CurrentAccount, services: ServicesDep
) -> FileView:
    """Return the state of a requested file; pieces of the unit's earlier leases count."""
    return file_view(services, service.expect_for_lease(lease_id, account.address, token, cid), cid)


def file_view(services: Services, asked: service.FindExpected, cid: str) -> FileView:
    """Return the state of a file. Raises like ``asked``; StorageDown."""
    with _storage_errors():
        found = service.progress(services.database, services.part(Storage), asked, cid)
    limit = found.expected.max_bytes
    return FileView(cid=cid, max_bytes=limit, piece_bytes=PIECE_BYTES, pieces=found.pieces, complete=found.complete)


@router.put(
    "/pieces/{number}",
    responses=refusals(LeaseLost, FileNotAsked, PieceRefused, StorageQuotaExceeded, BodyTooLarge, StorageDown),
    openapi_extra=BINARY_BODY,
)
async def put_piece(
    lease_id: LeaseId,
    cid: FileCid,
    number: PieceNumber,
    piece_cid: PieceCid,
    token: LeaseToken,
    request: Request,
    account: CurrentAccount,
    services: ServicesDep,
) -> PieceView:
    """Store a piece of a file. The market checks its CID and the file's maximum size."""
    asked = service.expect_for_lease(lease_id, account.address, token, cid)
    return await take_piece(services, request, asked, account.address, cid, number, piece_cid)


async def take_piece(
    services: Services,
    request: Request,
    asked: service.FindExpected,
    address: str,
    cid: str,
    number: int,
    piece_cid: str,
) -> PieceView:
    """Store the body as a piece. Raises like :func:`service.store_chunk`, and BodyTooLarge."""
    with SpooledTemporaryFile(max_size=PIECE_BYTES // 16) as file:
        await receive_body(request, file, PIECE_BYTES, "Send the file in pieces of piece_bytes.")
        with _storage_errors():
            await run_in_threadpool(
                service.store_chunk,
                services.database,
                services.part(Storage),
                asked,
                address,
                cid,
                number,
                piece_cid,
                cast(BinaryIO, file),
                services.settings.blob_bytes_per_day,
            )
    return PieceView(number=number, cid=piece_cid)


@router.post(
    "",
    responses=refusals(LeaseLost, FileNotAsked, UploadIncomplete, WrongFile, StorageQuotaExceeded, StorageDown),
)
def join_pieces(
    lease_id: LeaseId, cid: FileCid, token: LeaseToken, account: CurrentAccount, services: ServicesDep
) -> JoinedView:
    """Join the pieces into one file. Idempotent."""
    return joined_view(services, service.expect_for_lease(lease_id, account.address, token, cid), account.address, cid)


def joined_view(services: Services, asked: service.FindExpected, address: str, cid: str) -> JoinedView:
    """Join the pieces into one file. Raises like :func:`service.join`; StorageDown."""
    with _storage_errors():
        day_quota = services.settings.blob_bytes_per_day
        size = service.join(services.database, services.part(Storage), asked, address, cid, day_quota)
    return JoinedView(cid=cid, size=size)


class BlobView(BaseModel):
    """Stored and pinned content."""

    cid: Annotated[str, Field(description="CIDv1, as `ipfs add --cid-version=1 --raw-leaves` computes it.")]
    size: Annotated[int, Field(description="Bytes.")]


class FileRequest(RequestModel):
    """A file whose pieces are stored; each has ``piece_bytes``, the last one has the rest."""

    cid: CidString = Field(description="The whole file's CID.")
    size: int = Field(ge=1, le=MAX_FILE_BYTES, description="Bytes of the whole file.")
    piece_bytes: int = Field(
        ge=CHUNK_BYTES, le=MAX_PIECE_BYTES, multiple_of=CHUNK_BYTES, description="Bytes of each piece but the last."
    )
    pieces: list[CidString] = Field(
        min_length=1, max_length=MAX_FILE_BYTES // MAX_PIECE_BYTES, description="CID of each piece, in order."
    )


@blobs_router.post("/files", status_code=201, responses=refusals(UploadIncomplete, WrongFile, StorageDown))
def join_file(asked: FileRequest, account: CurrentAccount, services: ServicesDep) -> JoinedView:
    """Join pieces that the account stored within a day to one file. Idempotent.

    If pieces are missing, `missing` lists their numbers from 0.
    """
    count = -(-asked.size // asked.piece_bytes)
    if len(asked.pieces) != count:
        detail = f"pieces has {len(asked.pieces)} entries; {asked.size} bytes are {count} pieces."
        raise InvalidRequest(detail, field="pieces")
    sizes = [asked.piece_bytes] * (count - 1) + [asked.size - (count - 1) * asked.piece_bytes]
    pieces = list(zip(asked.pieces, sizes, strict=True))
    with _storage_errors():
        size = service.join_stored(services.database, services.part(Storage), account.address, asked.cid, pieces)
    return JoinedView(cid=asked.cid, size=size)


@blobs_router.post(
    "/blobs",
    status_code=201,
    responses=refusals(StorageQuotaExceeded, BodyTooLarge, StorageDown),
    openapi_extra=BINARY_BODY,
)
async def upload_blob(request: Request, account: CurrentAccount, services: ServicesDep) -> BlobView:
    """Store the request's body. Equal bytes get an equal CID."""
    most, upload = await run_in_threadpool(_reserve, services, account.address, request.headers.get("content-length"))
    try:
        with SpooledTemporaryFile(max_size=_IN_MEMORY) as file:
            size = await receive_body(request, file, most, "Split the content over several blobs.")
            blob = await run_in_threadpool(services.part(Storage).put, cast(BinaryIO, file), max_bytes=size)
    except BaseException:
        await run_in_threadpool(_refund, services, upload)
        raise
    await run_in_threadpool(_record, services, upload, blob)
    return BlobView(cid=blob.cid, size=blob.size)


def _reserve(services: Services, account: str, announced: str | None) -> tuple[int, int]:
    """Charge the upload before its body arrives, and return its maximum bytes and its id.

    A pending benchmark answer raises the limits. A body of unknown size is charged as the largest one until it is here.
    """
    settings = services.settings
    with services.database.transaction() as session:
        asked = benchmarks.answer_bytes(session, account)
        most = max(settings.max_blob_bytes, asked)
        size = most if announced is None else min(int(announced), most)
        return most, quota.charge(session, account, size, settings.blob_bytes_per_day + asked)


def _refund(services: Services, upload: int) -> None:
    with services.database.transaction() as session:
        quota.refund(session, upload)


def _record(services: Services, upload: int, stored: StoredBlob) -> None:
    with services.database.transaction() as session:
        quota.record_stored(session, upload, stored.cid, stored.size)


async def receive_body(request: Request, file: SpooledTemporaryFile[bytes], limit: int, remedy: str) -> int:
    """Write the body into ``file``, rewind it and return its bytes. Raises BodyTooLarge."""
    too_large = BodyTooLarge(f"The body exceeds {limit} bytes.", field="body", remedy=remedy)
    if int(request.headers.get("content-length", "0")) > limit:
        raise too_large
    size = 0
    async for piece in request.stream():
        size += len(piece)
        if size > limit:
            raise too_large
        await run_in_threadpool(file.write, piece)
    file.seek(0)
    return size
