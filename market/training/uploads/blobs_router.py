"""Route for uploads of whole files by nodes and users."""

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
