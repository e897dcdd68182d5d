"""Unsigned LEB128 integers, as in protobuf and the CAR format."""

MAX_VARINT_BYTES = 10  # enough for 64 bits


def encode(number: int) -> bytes:
    """Return the shortest encoding of ``number`` (not negative)."""
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def decode(data: bytes, offset: int = 0) -> tuple[int, int]:
    """Return (number at ``offset``, offset after it). Raises ValueError: cut, or over 64 bits."""
    number = 0
    for index, byte in enumerate(data[offset : offset + MAX_VARINT_BYTES]):
        number |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            if number >= 1 << 64:
                break
            return number, offset + index + 1
    raise ValueError("a variable-length integer is cut short or exceeds 64 bits")
