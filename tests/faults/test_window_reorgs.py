"""Reorganisations under a window's root and seed: the market draws by the final chain."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.chain.anvil import AnvilProcess
from kit.chain.deployed_chain import Chain, deploy_own
from kit.records import Records
from sqlalchemy import select

from market.chain.contracts.codec import decode_result, encode_call
from market.chain.transactions.sender import Sender
from market.domain.network import DEVNET
from market.domain.verification.lifecycle import WindowStatus
from market.platform.db.session import Database
from market.verification.windows import service as windows_service
from market.verification.windows.models import Window
from worker.chain_handlers import INTENT_HANDLERS, event_handlers
from zoo_protocol.hashing import from_hex, keccak, sha256, to_hex

EPOCH_BLOCKS = 4
FINALITY = 2 * EPOCH_BLOCKS
REACH = 256
"""Blocks for which the opcode BLOCKHASH knows a hash; the history of EIP-2935 has more."""


@pytest.fixture
def deep(tmp_path: Path) -> Iterator[Chain]:
    with AnvilProcess(epoch_blocks=EPOCH_BLOCKS) as anvil:
        chain = deploy_own(anvil, tmp_path, depth=FINALITY)
        anvil.automine(False)
        yield chain


class Windows(Records):
    def __init__(self, chain: Chain, database: Database, count: int) -> None:
        self.chain, self.database = chain, database
        self.sender: Sender = chain.sender(database, INTENT_HANDLERS)
        self.roots = [to_hex(sha256(f"window {number}".encode())) for number in range(count)]
        self.add(*(Window(status=WindowStatus.CLOSED, root=root, leaf_count=3) for root in self.roots))
        windows_service.commit_windows(database)

    def block(self, count: int = 1) -> None:
        for _ in range(count):
            windows_service.latch_seeds(self.database, lambda: self.chain.client().head().number)
            self.sender.step()
            self.chain.anvil.mine()
            self.chain.index(self.database, event_handlers(DEVNET, self.chain.deployment))

    def rows(self) -> list[Window]:
        return self.all(select(Window).order_by(Window.id))

    def on_chain(self, root: str) -> tuple[int, int, str]:
        """Return (id, seed block, seed) as of the newest block."""
        call = {
            "to": self.chain.deployment.address("WorkWindows"),
            "data": "0x" + encode_call("WorkWindows", "windows", [root]).hex(),
        }
        raw = bytes.fromhex(self.chain.anvil.rpc("eth_call", call, "latest")[2:])
        window = decode_result("WorkWindows", "windows", raw)
        return int(window["id"]), int(window["seedBlock"]), window["seed"]

    def known(self) -> list[tuple[int | None, int | None, str | None]]:
        return [(row.chain_id_in_contract, row.seed_block, row.seed) for row in self.rows()]


@pytest.mark.parametrize("depth", [1, 4, FINALITY])
def test_windows_in_one_block_survive_reorgs(deep: Chain, database: Database, depth: int) -> None:
    windows = Windows(deep, database, 2)
    windows.block()
    first = deep.client().head().number
    before = [windows.on_chain(root) for root in windows.roots]
    assert [row.status for row in windows.rows()] == ["closed", "closed"]  # nothing is believed before it is final
    windows.block(depth - 1)
    deep.anvil.reorg(depth)  # the roots' block with it
    for _ in range(4 * FINALITY):
        if all(row.status == "committed" for row in windows.rows()):
            break
        windows.block()
    assert [known[:2] for known in windows.known()] == [windows.on_chain(root)[:2] for root in windows.roots]
    assert deep.client().head().number > first
    seeds = []
    for _ in range(4 * FINALITY):
        windows.block()
        found = [windows.on_chain(root)[2] for root in windows.roots]
        if all(int(seed, 16) for seed in found) and not seeds:
            seeds = found
            assert [row.seed for row in windows.rows()] == [None, None]
            deep.anvil.reorg(min(depth, FINALITY - 1))  # the latching block with it
        if all(row.status == "latched" for row in windows.rows()):
            break
    final = [windows.on_chain(root) for root in windows.roots]
    assert windows.known() == final
    assert len({seed for _, _, seed in final}) == 2  # of one block, and different all the same
    assert {id_ for id_, _, _ in final} == {id_ for id_, _, _ in before}


def test_seed_of_announced_block_is_latched_after_outage(deep: Chain, database: Database) -> None:
    """No account recorded the seed for longer than the EVM's BLOCKHASH reaches."""
    windows = Windows(deep, database, 1)
    windows.block()
    window_id, seed_block, _ = windows.on_chain(windows.roots[0])
    deep.anvil.mine(2 * REACH)
    for _ in range(6 * FINALITY):
        windows.block()
        if windows.rows()[0].status == "latched":
            break
    block_hash = deep.anvil.rpc("eth_getBlockByNumber", hex(seed_block), False)["hash"]
    words = from_hex(block_hash) + window_id.to_bytes(32, "big") + from_hex(windows.roots[0])
    assert windows.known() == [(window_id, seed_block, to_hex(keccak(words)))]
