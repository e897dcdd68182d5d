"""JSON messages over a pipe: four bytes of length, most significant first, then UTF-8 JSON."""

import json
from typing import Any

MAX_FRAME_BYTES = 1 << 20


LENGTH_BYTES = 4


def encode_frame(message: dict[str, Any]) -> bytes:
    """The frame of ``message``.

    Raises:
        ValueError: if it is larger than ``MAX_FRAME_BYTES`` or holds a number JSON cannot.
    """
    body = json.dumps(message, allow_nan=False).encode()
    if len(body) > MAX_FRAME_BYTES:
        raise ValueError(f"a message of {len(body)} bytes is beyond {MAX_FRAME_BYTES}")
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


def take_frame(buffer: bytearray) -> dict[str, Any] | None:
    """Remove the first frame from ``buffer``; None if it is not complete yet.

    Raises:
        ValueError: if the buffer does not hold frames.
    """
    if len(buffer) < LENGTH_BYTES:
        return None
    end = LENGTH_BYTES + int.from_bytes(buffer[:LENGTH_BYTES], "big")
    if end > LENGTH_BYTES + MAX_FRAME_BYTES:
        raise ValueError("a message is beyond the largest size")
    if len(buffer) < end:
        return None
    message = json.loads(buffer[LENGTH_BYTES:end])
    del buffer[:end]
    if not isinstance(message, dict):
        raise ValueError("a message must be a JSON object")
    return message
