"""Uploads of files: small ones in one request, larger ones in pieces that the market joins.

A repeated upload sends only the pieces that the account has not stored within a day, and none of a file that storage
has.
"""

from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from zoo_compute.base.errors import ApiError, ConfigError, Mismatch
from zoo_compute.client.http import Connection
from zoo_protocol.content.unixfs import CHUNK_BYTES, MAX_PIECE_BYTES, FileBuilder, cid_of_file

Sent = Callable[[int], object]
"""Called with the number of bytes that storage has got, or has had already."""
_ATTEMPTS = 3  # to store one piece that the market lists as missing again


def send_file(connection: Connection, path: Path, max_blob_bytes: int, sent: Sent = lambda _: None) -> str:
    """Store a file and return its CID, which is computed here.

    Args:
        max_blob_bytes: limit of one request, from the network's parameters.
        sent: called with the bytes that are stored.

    Raises:
        ConfigError: the file cannot be read.
        Mismatch: the market stored other content.
        ApiError: the market refuses it.
    """
    try:
        with path.open("rb") as file:
            return _send(connection, file, path.stat().st_size, max_blob_bytes, sent)
    except (OSError, ValueError) as error:  # ValueError: a path with U+0000
        reason = error.strerror if isinstance(error, OSError) else error
        remedy = "Give an existing file. Paths in a job file are relative to it."
        raise ConfigError("file-unreadable", f"{path}: {reason}", remedy=remedy) from error


def send_bytes(connection: Connection, content: bytes, max_blob_bytes: int) -> str:
    """Store bytes and return their CID. Raises as :func:`send_file`."""
    return _send(connection, BytesIO(content), len(content), max_blob_bytes, lambda _: None)


def _send(connection: Connection, file: BinaryIO, size: int, max_blob_bytes: int, sent: Sent) -> str:
    if size <= CHUNK_BYTES:
        cid = _send_piece(connection, file.read())
        sent(size)
        return cid
    piece_bytes = max(CHUNK_BYTES, min(MAX_PIECE_BYTES, max_blob_bytes // CHUNK_BYTES * CHUNK_BYTES))
    cid, pieces = _cids(file, piece_bytes)
    asked = {"cid": cid, "size": size, "piece_bytes": piece_bytes, "pieces": pieces}
    attempts = dict.fromkeys(range(len(pieces)), 0)
    reported = 0
    while missing := _missing(connection, asked, pieces):
        for number in missing:
            attempts[number] += 1
            if attempts[number] > _ATTEMPTS:
                raise Mismatch("upload-mismatch", f"the market does not keep piece {number} of {cid}")
            file.seek(number * piece_bytes)
            content = file.read(piece_bytes)
            if _send_piece(connection, content) != pieces[number]:
                raise ConfigError("file-changed", "the file changed during its upload", remedy="Send it again.")
            counted = min(len(content), size - reported)  # a lost piece is sent twice
            sent(counted)
            reported += counted
    sent(size - reported)
    return cid


def _cids(file: BinaryIO, piece_bytes: int) -> tuple[str, list[str]]:
    """Return the CID of the whole file and of each piece."""
    whole, pieces = FileBuilder(lambda _cid, _block: None), []
    while content := file.read(piece_bytes):
        whole.write(content)
        pieces.append(cid_of_file(content))
    return str(whole.finish().cid), pieces


def _missing(connection: Connection, asked: dict[str, object], pieces: list[str]) -> list[int]:
    """Join the pieces; return the numbers of missing ones, none if the file is stored."""
    try:
        connection.post("/v1/files", asked, repeatable=True)
    except ApiError as error:
        if error.code != "upload-incomplete":
            raise
        named = error.extra.get("missing")
        listed = named if isinstance(named, list) else []
        found = [number for number in listed if type(number) is int and 0 <= number < len(pieces)]
        return found or list(range(len(pieces)))  # none listed: all are missing
    return []


def _send_piece(connection: Connection, content: bytes) -> str:
    cid = cid_of_file(content)
    headers = {"Content-Type": "application/octet-stream"}
    stored = connection.call("POST", "/v1/blobs", repeatable=True, content=content, headers=headers)
    if stored["cid"] != cid:
        raise Mismatch("upload-mismatch", f"the market stored {stored['cid']}, but the content is {cid}")
    return cid
