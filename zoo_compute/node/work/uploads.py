"""Uploads of a unit's files: small ones in one request, larger ones in chunks.

A repeated upload sends only the missing chunks, also after a restart or in another lease.
"""

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

from training_gym.compress.payload_format import payload_size
from training_gym.spec.config import TrainingSpec
from zoo_compute.base.errors import ApiError
from zoo_compute.base.link import Background, Link
from zoo_compute.client.http import answer_errors
from zoo_compute.node.market.calls import Asking, Disputed, Lease, Market
from zoo_compute.node.work.held_lease import HeldLease
from zoo_protocol.content.unixfs import PIECE_BYTES, cid_of_file

log = logging.getLogger(__name__)
_MEASURED_BYTES = 1 << 20
_ATTEMPTS = 3  # of an upload of which storage lost chunks


def upload_file(market: Market, held: HeldLease, path: Path, link: Link | None = None) -> str:
    """Upload a file that the lease names; returns its CID.

    Args:
        link: link on which the upload yields to urgent transfers; None makes it urgent.

    Raises:
        LeaseLost, ApiError: the market does not accept it.
        OSError: it cannot be read, or the node is stopping.
        Unreachable: the market does not answer.
    """
    size = path.stat().st_size
    if size <= PIECE_BYTES:
        return market.upload(_content(held.check, path, 0, size, link))
    return _upload_pieces(market, held.lease, held.check, path, link)


def upload_disputed(market: Market, dispute_id: str, path: Path) -> str:
    """Upload a disputed segment's start file, kept until the end; return its CID.

    Raises:
        ApiError: the market does not accept it.
        OSError: it cannot be read.
        Unreachable: the market does not answer.
    """
    return _upload_pieces(market, Disputed(dispute_id), lambda: None, path, None)


def measured_rate(market: Market, lease: Lease, link: Link) -> int:
    """Measure the uplink in bytes per second with one chunk of random bytes.

    The chunk counts against the upload quota of a ``train`` lease, so it is no longer than the payload.

    Raises:
        ApiError: the market does not accept the unit.
        Unreachable: the market does not answer.
    """
    size = min(payload_size(TrainingSpec.from_dict(lease.task["spec"])), _MEASURED_BYTES)
    content = os.urandom(size)
    cid = cid_of_file(content)
    before, started = link.up.bytes, time.monotonic()
    market.put_piece(lease, cid, 0, cid, content)
    return round((link.up.bytes - before) / (time.monotonic() - started))


def _upload_pieces(market: Market, asking: Asking, check: Callable[[], None], path: Path, link: Link | None) -> str:
    size = path.stat().st_size
    with path.open("rb") as file:
        cid = cid_of_file(file)
    for last in (False,) * (_ATTEMPTS - 1) + (True,):
        if _send_missing(market, asking, check, path, cid, size, link):
            try:
                market.join_pieces(asking, cid, size)
            except ApiError as error:
                if last or error.code != "upload-incomplete":
                    raise
                log.warning("upload_repeated cid=%s reason=%s", cid, error.detail)
                continue
        break
    return cid


def _send_missing(
    market: Market, asking: Asking, check: Callable[[], None], path: Path, cid: str, size: int, link: Link | None
) -> bool:
    with answer_errors("what storage has of a file"):
        known = market.file_state(asking, cid)
        if known["complete"]:
            return False
        have = {int(number): piece_cid for number, piece_cid in known["pieces"].items()}
    if have:
        log.info("upload_resumed cid=%s chunks=%d of=%d", cid, len(have), -(-size // PIECE_BYTES))
    for number, start in enumerate(range(0, size, PIECE_BYTES)):
        check()
        length = min(PIECE_BYTES, size - start)
        piece_cid = cid_of_file(_read(path, start, length))
        if have.get(number) != piece_cid:
            market.put_piece(asking, cid, number, piece_cid, _content(check, path, start, length, link))
    return True


def _content(check: Callable[[], None], path: Path, start: int, length: int, link: Link | None) -> bytes | Background:
    return _read(path, start, length) if link is None else Background(path, link, check, start, length)


def _read(path: Path, start: int, length: int) -> bytes:
    with path.open("rb") as file:
        file.seek(start)
        return file.read(length)
