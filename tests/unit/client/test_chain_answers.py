"""Malformed answers of the wallet's chain node do not end the program."""

import json
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from kit.engines.http_servers import Handler, Server, serving
from web3.exceptions import BlockNotFound

from zoo_compute.base.errors import Unreachable
from zoo_compute.chain.transactions import Chain
from zoo_compute.chain.wallet import Wallet

CONTRACTS = dict.fromkeys(("ZenToken", "ProviderStaking", "JobEscrow", "Rewards"), "0x" + "e5" * 20)


@pytest.fixture
def rpc() -> Iterator[Server]:
    class Rpc(Handler):
        def do_POST(self) -> None:
            asked = json.loads(self.body())
            status, body = server.answer  # type: ignore[attr-defined]
            if asked["method"] == "eth_chainId":
                status, body = 200, result("0x1")
            self.reply(body, status)

    with serving(Rpc) as server:
        yield server


def result(value: object) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 0, "result": value}).encode()


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, b"<html>we are back soon</html>"),
        (200, b""),
        (200, b'{"jsonrpc": "2.0", "id": 0}'),
        (200, json.dumps({"jsonrpc": "2.0", "id": 0, "error": {"code": -32000, "message": "syncing"}}).encode()),
        (429, b"too many requests"),
        pytest.param(502, b"bad gateway", marks=pytest.mark.long),
    ],
)
def test_malformed_answer_counts_as_no_answer(rpc: Server, status: int, body: bytes) -> None:
    rpc.answer = (status, body)  # type: ignore[attr-defined]
    chain = Chain(f"http://127.0.0.1:{rpc.server_port}", CONTRACTS, Wallet("11" * 32))
    for call in (chain.stake_account, chain.latest_block, chain.final_block):
        with pytest.raises(Unreachable):
            call()


def test_chain_behind_contract_block_does_not_answer(rpc: Server) -> None:
    rpc.answer = (200, result("0x"))  # type: ignore[attr-defined]
    chain = Chain(f"http://127.0.0.1:{rpc.server_port}", CONTRACTS, Wallet("11" * 32))
    with pytest.raises(Unreachable):
        chain.stake_account()


def test_confirmations_do_not_replace_available_finality(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node deletes an acknowledgement only once it is final."""
    tags: dict[object, int] = {}

    def get_block(which: object) -> dict[str, object]:
        if which == "finalized" and which not in tags:
            raise BlockNotFound("finalized block not found")
        return {"number": tags.get(which, which), "timestamp": 0}

    chain = Chain("http://127.0.0.1:1", CONTRACTS, Wallet("11" * 32))
    monkeypatch.setattr(chain, "_web3", SimpleNamespace(eth=SimpleNamespace(get_block=get_block, block_number=100)))
    assert chain.final_block().number == 88, "it has none"
    tags["finalized"] = 36
    assert chain.final_block().number == 36
    del tags["finalized"]  # its node has just started
    with pytest.raises(Unreachable):
        chain.final_block()
