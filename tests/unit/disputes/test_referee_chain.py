"""A referee's reading of the opening transaction, whose input is untrusted."""

from types import SimpleNamespace
from typing import Any

import pytest
from web3 import Web3

from zoo_compute.chain.log_search import opening_calls
from zoo_compute.chain.referees import RefereeChain
from zoo_compute.chain.wallet import Wallet
from zoo_protocol.contracts import artifact
from zoo_protocol.hashing import from_hex, to_hex
from zoo_protocol.messages import UnitCommitment
from zoo_protocol.payments.job_record import leaf_of

A, B, HASH = "0x" + "11" * 20, "0x" + "22" * 20, "0x" + "ab" * 32
NAMES = ("ZenToken", "ProviderStaking", "JobEscrow", "Rewards", "Disputes", "Omissions")
FIRST, SECOND = (UnitCommitment(HASH, 0, slot, B, HASH, HASH) for slot in (0, 1))


@pytest.fixture
def chain() -> RefereeChain:
    return RefereeChain("http://127.0.0.1:1", dict.fromkeys(NAMES, A), Wallet("11" * 32))


def opened_by(chain: RefereeChain, call: bytes, unit: UnitCommitment) -> Any:
    log = {"args": {"unitId": leaf_of(unit), "provider": unit.provider}, "transactionHash": b"tx"}
    chain._opened_event = lambda _: log  # type: ignore[method-assign]
    chain._web3 = SimpleNamespace(eth=SimpleNamespace(get_transaction=lambda _: {"input": call}))  # type: ignore[assignment]
    return chain.opening(HASH)


def encoded(function: str, *arguments: Any) -> bytes:
    contract = Web3().eth.contract(abi=artifact("Disputes").abi)
    return bytes.fromhex(contract.encode_abi(function, args=arguments).removeprefix("0x"))


def opening_call(unit: UnitCommitment) -> bytes:
    order = (A, from_hex(HASH), 1, 1, 1, 4, 200, 1, 1, 1, 1)
    words = (from_hex(HASH), unit.round, unit.slot, unit.provider, from_hex(HASH), from_hex(HASH))
    return encoded("open", order, words, b"s" * 65, from_hex(HASH), [])


def multicall(call: bytes, count: int) -> bytes:
    """Repeat a call by equal offsets."""
    words = b"".join(number.to_bytes(32, "big") for number in (32, count, *[count * 32] * count, len(call)))
    return encoded("multicall", [b""])[:4] + words + call + bytes(-len(call) % 32)


def test_opening_of_disputed_unit_counts_among_several(chain: RefereeChain) -> None:
    call = encoded("multicall", [opening_call(FIRST), opening_call(SECOND)])
    found = opened_by(chain, call, SECOND)
    assert (found.unit_id, found.unit) == (to_hex(leaf_of(SECOND)), SECOND)


def test_opening_of_other_unit_is_ignored(chain: RefereeChain) -> None:
    found = opened_by(chain, opening_call(FIRST), SECOND)
    assert (found.unit_id, found.order, found.unit) == (to_hex(leaf_of(SECOND)), None, None)


@pytest.mark.parametrize("kept", [0, 3, 4, 5, 36, 300])
@pytest.mark.parametrize("rest", [b"", b"\xff" * 64])
def test_foreign_call_input_is_ignored(chain: RefereeChain, kept: int, rest: bytes) -> None:
    call = opening_call(FIRST)[:kept] + rest
    assert opened_by(chain, call, FIRST).unit is None
    assert opened_by(chain, encoded("multicall", [call]), FIRST).unit is None


@pytest.mark.parametrize("word", [(1 << 256) - 1, 1 << 63, (1 << 63) - 1, 1 << 31])
def test_invalid_offset_is_ignored(chain: RefereeChain, word: int) -> None:
    call = opening_call(FIRST)
    for at in range(4, len(call), 32):
        broken = call[:at] + word.to_bytes(32, "big") + call[at + 32 :]
        opened_by(chain, broken, FIRST)
        opened_by(chain, encoded("multicall", [broken]), FIRST)
        opened_by(chain, encoded("multicall", [call])[:at] + word.to_bytes(32, "big"), FIRST)


def test_deeply_nested_calls_name_no_unit(chain: RefereeChain) -> None:
    call = b""
    for _ in range(700):  # 112 kB: a transaction may have 128 kB
        call = multicall(call, 1)
    assert opened_by(chain, call, FIRST).unit is None


def test_calls_nested_by_shared_offsets_are_read_once() -> None:
    """Each level repeats the next one 60 times by equal offsets, which costs the sender nothing."""
    contract, decoded = Web3().eth.contract(abi=artifact("Disputes").abi), 0

    def decode(call: bytes) -> Any:
        nonlocal decoded
        decoded += 1
        return contract.decode_function_input(call)

    call = opening_call(FIRST)
    for _ in range(4):
        call = multicall(call, 60)
    assert opening_calls(SimpleNamespace(decode_function_input=decode), call) == []
    assert decoded == 61
