"""Route for uploads of whole files by nodes and users."""

from dataclasses import dataclass
from tempfile import SpooledTemporaryFile
from typing import Annotated, Any, BinaryIO, cast

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, Field

from market.accounts.deps import CurrentAccount
from market.platform.http.deps import ServicesDep
from market.platform.http.errors import BodyTooLarge, StorageDown, StorageQuotaExceeded
from market.platform.http.refusals import refusals
from market.platform.http.services import Services
from market.platform.storage import quota
from market.platform.storage.client import Storage, StoredBlob
from market.platform.storage.errors import StorageError
from market.providers.benchmarks import service as benchmarks

router = APIRouter(prefix="/v1", tags=["storage"])

UPLOAD_PATH = "/v1/blobs"
_IN_MEMORY = 1024 * 1024
BINARY_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}


class BlobView(BaseModel):
    """Stored and pinned content."""

    cid: Annotated[str, Field(description="CIDv1, as `ipfs add --cid-version=1 --raw-leaves` computes it.")]
    size: Annotated[int, Field(description="Bytes.")]


@router.post(
    "/blobs",
    status_code=201,
    responses=refusals(StorageQuotaExceeded, BodyTooLarge, StorageDown),
    openapi_extra=BINARY_BODY,
)
async def upload_blob(request: Request, account: CurrentAccount, services: ServicesDep) -> BlobView:
    """Store the request's body. Equal bytes get an equal CID."""
    room = await run_in_threadpool(_upload_limits, services, account.address, _announced_size(request))
    with SpooledTemporaryFile(max_size=_IN_MEMORY) as file:
        size = await receive_body(request, file, room.max_bytes, "Split the content over several blobs.")
        blob = await run_in_threadpool(_store, services, account.address, cast(BinaryIO, file), size, room.quota)
    return BlobView(cid=blob.cid, size=blob.size)


@dataclass(frozen=True, slots=True)
class _Room:
    """Upload limits of an account in bytes: of one file, and per day."""

    max_bytes: int
    quota: int


def _upload_limits(services: Services, account: str, announced: int) -> _Room:
    """Return the account's limits, raised by the size of a pending benchmark answer."""
    settings = services.settings
    with services.database.reading() as session:
        asked = benchmarks.answer_bytes(session, account)
        room = _Room(max(settings.max_blob_bytes, asked), settings.blob_bytes_per_day + asked)
        quota.require_quota(session, account, min(announced, room.max_bytes), room.quota)
    return room


def _store(services: Services, account: str, file: BinaryIO, size: int, max_bytes: int) -> StoredBlob:
    with services.database.transaction() as session:
        upload = quota.charge(session, account, size, max_bytes)
    try:
        stored = services.part(Storage).put(file, max_bytes=size)
    except StorageError:
        with services.database.transaction() as session:
            quota.refund(session, upload)
        raise
    with services.database.transaction() as session:
        quota.record_stored(session, upload, stored.cid)
    return stored


def _announced_size(request: Request) -> int:
    return int(request.headers.get("content-length", "0"))


async def receive_body(request: Request, file: SpooledTemporaryFile[bytes], limit: int, remedy: str) -> int:
    """Write the body into ``file``, rewind it and return its bytes. Raises BodyTooLarge."""
    too_large = BodyTooLarge(f"The body exceeds {limit} bytes.", field="body", remedy=remedy)
    if _announced_size(request) > limit:
        raise too_large
    size = 0
    async for piece in request.stream():
        size += len(piece)
        if size > limit:
            raise too_large
        await run_in_threadpool(file.write, piece)
    file.seek(0)
    return size
