"""Sample order of training: pure, so nodes choose nothing and replays need no state."""

import hashlib
import struct


def window_start(seed: int, round_: int, slot: int, step: int, row: int, windows: int) -> int:
    """Return the window, from 0 to ``windows - 1``, that ``row`` of inner ``step`` reads.

    The start is a keyed hash of its coordinates, so any row is found in constant time. The modulo's bias is below
    2**-64 for any dataset.
    """
    coordinates = struct.pack(">QQQQQ", seed, round_, slot, step, row)
    word = hashlib.sha256(b"zoo-order-1" + coordinates).digest()[:16]
    return int.from_bytes(word, "big") % windows
