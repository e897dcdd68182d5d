"""Writes the vectors of the payload format: ``python tests/vectors/payloads.py``.

``payloads.json`` is committed; ``tests/property/test_gym_wire.py`` holds the code to it. Another implementation needs
nothing else: values in, payload out, and the reason why each malformed payload is refused.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent.parent))  # run as a file, installed or not

from training_gym.compression.wire import Format, decode_vector, encode_vector  # noqa: E402
from training_gym.errors import PayloadError  # noqa: E402

LAYOUT = bytes(range(32))
SMALL = [0.5, -1.0, 0.0, 2.0, -0.25, 1.0, 0.125, -3.0, 0.75, -1.5, 1.25, 0.0625]


def _wave(size: int) -> list[float]:
    """A reproducible vector without short cuts: ((i * 40503) mod 65536) / 32768 - 1, exact in float32."""
    return [((index * 40503) % 65536) / 32768 - 1 for index in range(size)]


CASES: list[tuple[str, int, int, list[float]]] = [
    ("2 bits", 5, 2, SMALL),
    ("4 bits", 5, 4, SMALL),
    ("8 bits", 7, 8, SMALL),
    ("dense int8", 4096, 8, SMALL),
    ("zeros", 3, 4, [0.0] * 9),
    ("ties go to the lower index", 2, 4, [1.0, -1.0, 1.0, 1.0, -1.0]),
    ("one value", 1, 8, [-7.0]),
    ("two chunks, the last one shorter than k", 16, 2, _wave(4096 + 9)),
    ("levels in a Rice code", 64, 8, [value**3 for value in _wave(600)]),
    ("the default: all entries in 2 bits", 4096, 2, [round(8 * value**3) / 8 for value in _wave(4096 + 9)]),
]


def payloads() -> list[dict[str, Any]]:
    """Each case with its payload and what that decodes to."""
    written = []
    for name, top_k, bits, values in CASES:
        payload = encode_vector(Format(len(values), top_k, bits, LAYOUT), np.array(values, np.float32))
        decoded = decode_vector(Format(len(values), top_k, bits, LAYOUT), payload)
        written.append(
            {
                "name": name,
                "top_k": top_k,
                "bits": bits,
                "layout": LAYOUT.hex(),
                "values": np.array(values, np.float32).tolist(),
                "payload": payload.hex(),
                "indices": decoded.indices.tolist(),
                "decoded": decoded.values.tolist(),
            }
        )
    return written


def malformed() -> list[dict[str, Any]]:
    """Changes of one payload, each with the stable code of its refusal."""
    format_ = Format(len(SMALL), 5, 4, LAYOUT)
    good = encode_vector(format_, np.array(SMALL, np.float32))
    changes = {
        "cut short": good[:-1],
        "one byte too many": good + b"\0",
        "empty": b"",
        "another magic": b"ZIPG" + good[4:],
        "version 1": good[:4] + b"\x01" + good[5:],
        "Rice parameter of the indices beyond 8": good[:48] + b"\x09" + good[49:],
        "low above high": good[:66] + b"\x7f\x7f" + good[68:],
        "padding of the signs not zero": good[:70] + bytes([good[70] | 1]) + good[71:],
        "one index too few": good[:71] + b"\0" + good[72:],
    }
    written = []
    for name, payload in changes.items():
        try:
            decode_vector(format_, payload)
        except PayloadError as error:
            format_fields = {"size": format_.size, "top_k": format_.top_k, "bits": format_.bits, "layout": LAYOUT.hex()}
            written.append({"name": name, **format_fields, "payload": payload.hex(), "code": error.code})
        else:
            raise AssertionError(f"{name} was accepted")
    return written


if __name__ == "__main__":
    document = {"payloads": payloads(), "malformed": malformed()}
    lines = [
        f'"{kind}": [\n' + ",\n".join(json.dumps(case) for case in cases) + "\n]" for kind, cases in document.items()
    ]
    (FOLDER / "payloads.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
