"""JSON messages over a pipe: length in four big-endian bytes, then UTF-8 JSON."""

import json
from typing import Any

MAX_FRAME_BYTES = 1 << 20

LENGTH_BYTES = 4


def encode_frame(message: dict[str, Any]) -> bytes:
    """Return the frame of ``message``.

    Raises:
        ValueError: larger than ``MAX_FRAME_BYTES``, or with a number that JSON does not have.
    """
    body = json.dumps(message, allow_nan=False).encode()
    if len(body) > MAX_FRAME_BYTES:
        raise ValueError(f"message has {len(body)} bytes; expected at most {MAX_FRAME_BYTES}")
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


def take_frame(buffer: bytearray) -> dict[str, Any] | None:
    """Remove the first frame from ``buffer``; None if it is incomplete.

    Raises:
        ValueError: the buffer does not contain frames.
    """
    if len(buffer) < LENGTH_BYTES:
        return None
    end = LENGTH_BYTES + int.from_bytes(buffer[:LENGTH_BYTES], "big")
    if end > LENGTH_BYTES + MAX_FRAME_BYTES:
        raise ValueError(f"message has {end - LENGTH_BYTES} bytes; expected at most {MAX_FRAME_BYTES}")
    if len(buffer) < end:
        return None
    message = json.loads(buffer[LENGTH_BYTES:end])
    del buffer[:end]
    if not isinstance(message, dict):
        raise ValueError("message is not a JSON object")
    return message
