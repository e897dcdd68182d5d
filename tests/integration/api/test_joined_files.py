"""``POST /v1/files``: pieces of an account joined to one file, and refused with a reason."""

from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from kit.api.clients import Caller, accepted, refusal, sign_in
from kit.records import Records
from sqlalchemy import update

from market.platform.db.base import utc_now
from market.platform.http.services import Services
from market.platform.storage import quota
from market.platform.storage.client import Storage
from market.platform.storage.models import BlobUpload
from zoo_protocol.content.unixfs import CHUNK_BYTES, cid_of_file

PIECES = [bytes([number]) * CHUNK_BYTES for number in range(1, 4)] + [b"the rest"]


@pytest.fixture
def caller(api: httpx.Client) -> Caller:
    return sign_in(api)


def asked(pieces: list[bytes] | None = None, **changes: Any) -> dict[str, Any]:
    """Return the request that joins ``pieces``."""
    pieces = PIECES if pieces is None else pieces
    whole = b"".join(pieces)
    cids = [cid_of_file(piece) for piece in pieces]
    return {"cid": cid_of_file(whole), "size": len(whole), "piece_bytes": CHUNK_BYTES, "pieces": cids} | changes


def store(caller: Caller, pieces: list[bytes]) -> None:
    for piece in pieces:
        accepted(caller.post("/v1/blobs", content=piece), 201)


def test_stored_pieces_become_one_pinned_file(caller: Caller, services: Services) -> None:
    store(caller, PIECES)
    body = asked()
    for _ in range(2):  # idempotent
        assert accepted(caller.post("/v1/files", json=body), 201) == {"cid": body["cid"], "size": body["size"]}
    storage = services.part(Storage)
    assert storage.is_pinned(body["cid"])
    assert storage.get(body["cid"], max_bytes=body["size"]) == b"".join(PIECES)


def test_missing_pieces_are_listed_until_stored(caller: Caller) -> None:
    pieces = [b"missing" + piece[7:] for piece in PIECES[:3]]
    store(caller, pieces[:1])
    problem = refusal(caller.post("/v1/files", json=asked(pieces)), 409, "upload-incomplete")
    assert (problem["field"], problem["missing"]) == ("pieces", [1, 2])
    assert "2 of 3 pieces" in str(problem["detail"])
    assert "POST /v1/blobs" in str(problem["remedy"])
    store(caller, pieces[1:])
    accepted(caller.post("/v1/files", json=asked(pieces)), 201)


def test_pieces_of_another_account_are_missing(caller: Caller, api: httpx.Client) -> None:
    pieces = [b"another" + piece[7:] for piece in PIECES[:2]]
    store(sign_in(api), pieces)
    problem = refusal(caller.post("/v1/files", json=asked(pieces)), 409, "upload-incomplete")
    assert problem["missing"] == [0, 1]


def test_pieces_stored_before_a_day_are_missing(caller: Caller, records: Records) -> None:
    pieces = [b"earlier" + piece[7:] for piece in PIECES[:2]]
    store(caller, pieces)
    aged = update(BlobUpload).where(BlobUpload.cid == cid_of_file(pieces[1]))
    records.execute(aged.values(created_at=utc_now() - quota.PERIOD))
    assert refusal(caller.post("/v1/files", json=asked(pieces)), 409, "upload-incomplete")["missing"] == [1]
    store(caller, pieces[1:])
    accepted(caller.post("/v1/files", json=asked(pieces)), 201)


@pytest.mark.parametrize("chunks", [1, 2])  # the piece is one block, or a node over two
def test_lost_pieces_are_listed_until_stored_again(caller: Caller, records: Records, chunks: int) -> None:
    pieces = [bytes([number, chunks, *b"lost"]) + bytes(chunks * CHUNK_BYTES - 6) for number in (1, 2)]
    other = b"stored under the lost piece's row" + bytes([chunks])
    store(caller, [pieces[0], other])
    row = update(BlobUpload).where(BlobUpload.cid == cid_of_file(other))
    records.execute(row.values(cid=cid_of_file(pieces[1])))
    body = asked(pieces, piece_bytes=chunks * CHUNK_BYTES)
    problem = refusal(caller.post("/v1/files", json=body), 409, "upload-incomplete")
    assert (problem["field"], problem["missing"]) == ("pieces", [0, 1])
    assert "again" in str(problem["remedy"])
    store(caller, pieces)
    accepted(caller.post("/v1/files", json=body), 201)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({}, "cid"),
        ({"size": 8 * CHUNK_BYTES - 1}, "pieces"),
    ],
)
def test_other_file_or_sizes_are_refused(caller: Caller, changes: dict[str, Any], field: str) -> None:
    pieces = [bytes([number]) + bytes(2 * CHUNK_BYTES - 1) for number in range(1, 5)]
    store(caller, pieces)
    body = asked(pieces, piece_bytes=2 * CHUNK_BYTES) | {"cid": cid_of_file(b"unknown")} | changes
    problem = refusal(caller.post("/v1/files", json=body), 422, "wrong-file")
    assert problem["field"] == field
    assert problem["remedy"]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"cid": "nowhere"}, "cid"),
        ({"pieces": ["nowhere"] * 4}, "pieces.0"),
        ({"pieces": []}, "pieces"),
        ({"pieces": asked()["pieces"][:3]}, "pieces"),
        ({"size": 0}, "size"),
        ({"size": 1 << 40}, "size"),
        ({"piece_bytes": CHUNK_BYTES + 1}, "piece_bytes"),
        ({"piece_bytes": 1 << 40}, "piece_bytes"),
        ({"name": "file"}, "name"),
    ],
)
def test_malformed_request_names_its_field(caller: Caller, changes: dict[str, Any], field: str) -> None:
    problem = refusal(caller.post("/v1/files", json=asked() | changes), 422, "invalid-request")
    assert problem["field"] == field


def test_joining_needs_a_session(api: httpx.Client) -> None:
    refusal(api.post("/v1/files", json=asked()), 401, "not-authenticated")


def test_document_names_refusals_of_files(app: FastAPI) -> None:
    answers = app.openapi()["paths"]["/v1/files"]["post"]["responses"]
    for status, code in (("409", "upload-incomplete"), ("422", "wrong-file"), ("503", "storage-unavailable")):
        assert code in answers[status]["content"]["application/problem+json"]["examples"]
