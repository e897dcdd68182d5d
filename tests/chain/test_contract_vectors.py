"""The committed vectors equal the Python rules; Solidity tests use the same files."""

import json

import pytest

from tools import message_vectors as generator
from zoo_protocol import merkle, messages
from zoo_protocol.hashing import from_hex

VECTORS = generator.FOLDER


@pytest.mark.parametrize("name", generator.VECTORS)
def test_committed_vectors_match_python(name: str) -> None:
    assert (VECTORS / name).read_text(encoding="utf-8") == generator.text_of(name)


def test_window_proofs_verify_only_their_own_leaf() -> None:
    for window in json.loads((VECTORS / "windows.json").read_text(encoding="utf-8"))["windows"]:
        root = from_hex(window["root"])
        for unit in window["units"]:
            path = [from_hex(node) for node in unit["proof"]]
            assert merkle.verify(root, from_hex(unit["leaf"]), path)
            assert not merkle.verify(root, merkle.leaf_hash(from_hex(unit["leaf"])), path)


def test_signatures_recover_signer() -> None:
    document = json.loads((VECTORS / "messages.json").read_text(encoding="utf-8"))
    for vector, order in zip(document["orders"], generator.orders(), strict=True):
        recovered = messages.recover(messages.typed_data(generator.DOMAIN, order), vector["signature"])
        assert recovered == vector["payer"]
