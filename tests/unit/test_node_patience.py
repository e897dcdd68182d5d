"""What a node has ready is kept until the market answers, unless the lease is known to be lost, or the node stops."""

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from zoo_compute.errors import ApiError, Unreachable
from zoo_compute.http import Connection
from zoo_compute.node.agent import NodeAgent
from zoo_compute.node.config import NodeConfig
from zoo_compute.node.held import LeaseLost
from zoo_compute.node.market import Lease, Market
from zoo_compute.node.work import Worker
from zoo_compute.node.workspace import Workspace
from zoo_compute.wallet import Wallet

KEY = "0x" + "11" * 32
LEASE = Lease("follow", "follow", "0x" + "00" * 32, "0x" + "11" * 32, {"checkpoint_cid": "bafy"}, 30.0)


@pytest.fixture
def connection() -> Connection:
    """To a market that is away."""
    return Connection("http://127.0.0.1:1", patience=0.1)


def worker(connection: Connection) -> Worker:
    nothing: Any = None
    return Worker(Market(connection), nothing, nothing, nothing, nothing, nothing, nothing, nothing)


def held(lost_after: int) -> Any:
    """A lease of which a heartbeat tells at the so-manieth look that it is lost."""
    looks = iter(range(lost_after))

    def check() -> None:
        if next(looks, None) is None:
            raise LeaseLost("gone")

    return SimpleNamespace(lease=LEASE, check=check)


def test_a_result_is_kept_until_the_lease_is_known_to_be_lost(connection: Connection) -> None:
    with pytest.raises(LeaseLost):
        worker(connection)._complete(held(lost_after=2), {"followed_cid": "bafy"})


def test_a_result_is_kept_until_the_market_answers(connection: Connection) -> None:
    answers = [Unreachable("market-unreachable", "refused")] * 2

    def answer() -> str:
        if answers:
            raise answers.pop()
        raise ApiError(409, "lease-lost", "It is another node's.")

    with pytest.raises(ApiError, match="lease-lost"):
        worker(connection)._insist(held(lost_after=99), answer)
    assert not answers


def test_a_node_that_is_stopped_while_the_market_is_away_takes_its_lease_up_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = NodeConfig("http://127.0.0.1:1", "provider", tmp_path, "node", profile="cpu-avx2-1")
    agent = NodeAgent(config, Wallet(KEY), lambda *_: SimpleNamespace(close=lambda: None))  # type: ignore[arg-type,return-value]
    work = worker(agent._connection)
    begun = threading.Event()

    def do(held: Any) -> None:
        begun.set()
        work._complete(held, {"followed_cid": "bafy"})

    thread = threading.Thread(target=agent._do, args=(SimpleNamespace(do=do), LEASE))
    thread.start()
    assert begun.wait(60)
    agent.stop()
    thread.join(60)
    assert not thread.is_alive()
    assert Workspace(tmp_path).remembered() == [LEASE]
