"""Integers of few bits and unary numbers round-trip in the layout of ``docs/protocol.md``."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.errors import raises_code

from training_gym.compress.bits import pack, pack_unary, packed_size, unpack, unpack_unary
from training_gym.spec.errors import PayloadError


@settings(deadline=None)
@given(st.integers(0, 8), st.lists(st.integers(0, 255), max_size=40))
def test_packed_integers_round_trip_in_documented_layout(width: int, numbers: list[int]) -> None:
    values = np.array([number % (1 << width) for number in numbers], np.uint8)
    packed = pack(values, width)
    written = "".join(format(value, f"0{width}b") for value in values) if width else ""
    assert len(packed) == packed_size(len(values), width)
    assert "".join(format(byte, "08b") for byte in packed) == written.ljust(8 * len(packed), "0")
    assert unpack(memoryview(packed), len(values), width).tolist() == values.tolist()


@settings(deadline=None)
@given(st.lists(st.integers(0, 60), max_size=40))
def test_unary_numbers_round_trip_in_documented_layout(numbers: list[int]) -> None:
    packed = pack_unary(np.array(numbers, np.uint16), 0)
    written = "".join("0" * number + "1" for number in numbers)
    assert "".join(format(byte, "08b") for byte in packed) == written.ljust(8 * len(packed), "0")
    assert unpack_unary(memoryview(packed), len(numbers), 60, "wrong_level").tolist() == numbers
    if numbers:
        with raises_code(PayloadError, "wrong_level"):
            unpack_unary(memoryview(packed), len(numbers), max(numbers) - 1, "wrong_level")
