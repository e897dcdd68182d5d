"""Uploads: the way for nodes and users to put content on storage."""

from tempfile import SpooledTemporaryFile
from typing import Annotated, Any, BinaryIO, cast

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, Field

from market.accounts.deps import CurrentAccount
from market.accounts.errors import NotAuthenticated
from market.api.deps import ServicesDep
from market.api.errors import BodyTooLarge, StorageDown
from market.api.openapi import refusals

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
    responses=refusals(NotAuthenticated, BodyTooLarge, StorageDown),
    openapi_extra=BINARY_BODY,
)
async def upload_blob(request: Request, account: CurrentAccount, services: ServicesDep) -> BlobView:
    """Store the request's body. The same bytes always get the same CID."""
    return await stored(request, services, services.settings.max_blob_bytes, "Split the content over several blobs.")


async def stored(request: Request, services: ServicesDep, limit: int, remedy: str) -> BlobView:
    """Put the request's body of at most ``limit`` bytes on storage. Raises BodyTooLarge, StorageDown."""
    with SpooledTemporaryFile(max_size=_IN_MEMORY) as file:
        await received(request, file, limit, remedy)
        blob = await run_in_threadpool(services.storage.put, cast(BinaryIO, file), max_bytes=limit)
    return BlobView(cid=blob.cid, size=blob.size)


async def received(request: Request, file: SpooledTemporaryFile[bytes], limit: int, remedy: str) -> None:
    """Write the request's body into ``file``, and go back to its start.

    Raises:
        BodyTooLarge: it has more than ``limit`` bytes.
    """
    too_large = BodyTooLarge(f"a body here may have {limit} bytes", field="body", remedy=remedy)
    if int(request.headers.get("content-length", "0")) > limit:
        raise too_large
    size = 0
    async for piece in request.stream():
        size += len(piece)
        if size > limit:
            raise too_large
        await run_in_threadpool(file.write, piece)
    file.seek(0)
