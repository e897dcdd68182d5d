"""The root of a settlement batch against chosen roots and lines."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from zoo_protocol import merkle
from zoo_protocol.payments.settlement_batch import JobLine, batch_root, settlement_hash

PAID = [JobLine("0x" + "01" * 32, 10**18, 1, 0, 1, False, "0x" + "02" * 32)]
FORGED = [replace(PAID[0], job_id="0x" + "03" * 32, units=800_000)]
_WORDS = st.binary(min_size=32, max_size=32)


@given(_WORDS, _WORDS)
def test_batch_root_has_one_split(first: bytes, second: bytes) -> None:
    hashes = [settlement_hash(first, second, lines) for lines in (PAID, FORGED)]
    nodes = {first, second, *hashes, *(merkle.parent_hash(second, node) for node in hashes)}
    splits = [(claims, units, lines) for claims in nodes for units in nodes for lines in (PAID, FORGED)]
    assert len({batch_root(*split) for split in splits}) == len(splits)
