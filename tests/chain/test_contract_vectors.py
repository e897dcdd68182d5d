"""The committed vectors equal the Python rules; Solidity tests use the same files."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

from zoo_protocol import merkle, messages
from zoo_protocol.hashing import from_hex

VECTORS = Path(__file__).resolve().parents[1] / "vectors"


def load_generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("vector_generator", VECTORS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", load_generator().VECTORS)
def test_committed_vectors_match_python(name: str) -> None:
    assert (VECTORS / name).read_text(encoding="utf-8") == load_generator().text_of(name)


def test_window_proofs_verify_only_their_own_leaf() -> None:
    for window in json.loads((VECTORS / "windows.json").read_text(encoding="utf-8"))["windows"]:
        root = from_hex(window["root"])
        for unit in window["units"]:
            path = [from_hex(node) for node in unit["proof"]]
            assert merkle.verify(root, from_hex(unit["leaf"]), path)
            assert not merkle.verify(root, merkle.leaf_hash(from_hex(unit["leaf"])), path)


def test_signatures_recover_signer() -> None:
    document = json.loads((VECTORS / "messages.json").read_text(encoding="utf-8"))
    generator = load_generator()
    for vector, order in zip(document["orders"], generator.orders(), strict=True):
        recovered = messages.recover(messages.typed_data(generator.DOMAIN, order), vector["signature"])
        assert recovered == vector["payer"]
