"""Writes vectors of payloads and tensors: ``python -m tools.payload_vectors``.

``payloads.json`` is committed; ``tests/property/test_gym_wire.py`` holds the code to it. Another implementation needs
nothing else: values in, payload out, and the reason why each malformed payload is refused. ``tensors.json`` has leaves
of tensors of one and of several chunks, whose values are those of :func:`_wave`.
"""

import json
import math
import struct
from pathlib import Path
from typing import Any

import numpy as np

from training_gym.compress.payload_format import Format, decode_vector, encode_vector
from training_gym.model.tensors import tensor_leaf
from training_gym.spec.errors import PayloadError
from zoo_protocol.hashing import to_hex

FOLDER = Path(__file__).resolve().parents[1] / "tests" / "vectors"
LAYOUT = bytes(range(32))
SMALL = [0.5, -1.0, 0.0, 2.0, -0.25, 1.0, 0.125, -3.0, 0.75, -1.5, 1.25, 0.0625]


def _wave(size: int) -> list[float]:
    """Return ((i * 40503) mod 65536) / 32768 - 1 for each i, exact in float32."""
    return [((index * 40503) % 65536) / 32768 - 1 for index in range(size)]


CASES: list[tuple[str, int, int, list[float]]] = [
    ("2 bits", 1600, 2, SMALL),
    ("4 bits", 1600, 4, SMALL),
    ("8 bits", 2300, 8, SMALL),
    ("dense int8", 4096, 8, SMALL),
    ("zeros", 1300, 4, [0.0] * 9),
    ("ties go to the lower index", 1600, 4, [1.0, -1.0, 1.0, 1.0, -1.0]),
    ("one value", 1, 8, [-7.0]),
    ("two chunks, the last one short", 16, 2, _wave(4096 + 9)),
    ("levels in a Rice code", 400, 8, [value**3 for value in _wave(600)]),
    ("the default: all entries in 2 bits", 4096, 2, [round(8 * value**3) / 8 for value in _wave(4096 + 9)]),
    ("one magnitude, nearest to the lower of two", 4096, 2, [1.001, -1.001, 1.001]),
    ("one magnitude, nearest to the higher of two", 4096, 2, [1.007, -1.007, 1.007]),
    ("one magnitude, between two bfloat16", 4096, 4, [1.003, -1.003]),
    ("levels that other scales spell too", 4096, 8, [1.0 + (level + 0.9) / 128 for level in (0, 5, 126)]),
]


SEVERAL: list[tuple[str, int, int, list[int]]] = [
    ("each tensor begins a chunk", 700, 4, [5, 4096 + 9, 31, 1]),
    ("all entries of several tensors", 4096, 2, [5, 4096 + 9, 31, 1]),
]
"""Cases of several tensors, by their sizes; values of odd tensors are a thousandth of the others'."""


def leaves() -> list[dict[str, Any]]:
    shapes: list[tuple[str, list[int]]] = [("bias", []), ("norm", [7]), ("full", [1024, 1024]), ("more", [1025, 1024])]
    shapes.append(("error_feedback", [2**21 + 3]))
    written = []
    for name, shape in shapes:
        values = np.array(_wave(math.prod(shape)), np.float32).reshape(shape)
        written.append({"name": name, "shape": shape, "leaf": to_hex(tensor_leaf(name, values))})
    return written


def _tensors(sizes: list[int]) -> list[float]:
    """Return the values of tensors whose magnitudes differ."""
    return [value / 1000 ** (number % 2) for number, size in enumerate(sizes) for value in _wave(size)]


def payloads() -> list[dict[str, Any]]:
    written = []
    cases = [(name, top_k, bits, [len(values)], values) for name, top_k, bits, values in CASES]
    cases += [(name, top_k, bits, sizes, _tensors(sizes)) for name, top_k, bits, sizes in SEVERAL]
    for name, top_k, bits, sizes, values in cases:
        format_ = Format(tuple(sizes), top_k, bits, LAYOUT)
        payload = encode_vector(format_, np.array(values, np.float32))
        decoded = decode_vector(format_, payload)
        written.append(
            {
                "name": name,
                "top_k": top_k,
                "bits": bits,
                "layout": LAYOUT.hex(),
                "sizes": sizes,
                "values": np.array(values, np.float32).tolist(),
                "payload": payload.hex(),
                "indices": decoded.indices.tolist(),
                "decoded": decoded.values.tolist(),
            }
        )
    return written


def _changed(payload: bytes, place: int, replacement: bytes) -> bytes:
    return payload[:place] + replacement + payload[place + len(replacement) :]


def malformed() -> list[dict[str, Any]]:
    """Change payloads into one per error code except ``not_finite`` (writers only)."""
    sparse = Format((len(SMALL),), 1600, 4, LAYOUT)
    good = encode_vector(sparse, np.array(SMALL, np.float32))
    of_sparse = {
        "cut short": good[:-1],
        "one byte too many": good + b"\0",
        "empty": b"",
        "a length beyond 63 bits": _changed(good, 50, b"\xff" * 8),
        "two lengths that add up to the right one modulo 2^64": _changed(
            good, 50, struct.pack("<QQ", 2**64 - 1, sum(struct.unpack_from("<QQ", good, 50)) + 1)
        ),
        "another magic": _changed(good, 0, b"ZIPG"),
        "version 2": _changed(good, 4, b"\x02"),
        "Rice parameter of the indices beyond 8": _changed(good, 48, b"\x09"),
        "low above high": _changed(good, 66, b"\x7f\x7f"),
        "low is negative": _changed(good, 66, b"\x80\xbf"),
        "high is infinite": _changed(good, 68, b"\x80\x7f"),
        "high is no number": _changed(good, 68, b"\xc0\x7f"),
        "padding of the signs not zero": _changed(good, 70, bytes([good[70] | 1])),
        "one index too few": _changed(good, 71, b"\0"),
    }
    zeros, equal, pair = Format((6,), 4096, 8, LAYOUT), Format((3,), 4096, 2, LAYOUT), Format((3,), 2700, 4, LAYOUT)
    of_zeros = encode_vector(zeros, np.zeros(6, np.float32))
    of_equal = encode_vector(equal, np.ones(3, np.float32))
    of_pair = encode_vector(pair, np.array([1, 0, 2], np.float32))
    cases: list[tuple[str, Format, bytes]] = [(name, sparse, payload) for name, payload in of_sparse.items()]
    cases += [
        ("an index beyond the vector", pair, _changed(of_pair, 71, b"\x90")),
        ("a level beyond its bits", equal, _changed(of_equal, 71, b"\x38")),
        ("a level above 0 where all are equal", equal, _changed(of_equal, 71, b"\x70")),
        ("a negative zero", zeros, _changed(of_zeros, 70, b"\x80")),
        ("a high that no level needs", equal, _changed(of_equal, 68, b"\x81\x3f")),
        ("a low that no level needs", equal, _changed(_changed(of_equal, 66, b"\x7f"), 71, b"\x54")),
    ]
    written = []
    for name, format_, payload in cases:
        try:
            decode_vector(format_, payload)
        except PayloadError as error:
            format_fields = {
                "sizes": format_.sizes,
                "top_k": format_.top_k,
                "bits": format_.bits,
                "layout": LAYOUT.hex(),
            }
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
    (FOLDER / "tensors.json").write_text(json.dumps({"tensors": leaves()}, indent=1) + "\n")
