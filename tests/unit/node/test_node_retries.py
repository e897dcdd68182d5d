"""A node keeps its results until the market answers, the lease is lost, or the node stops."""

import json
import threading
from http.server import ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kit.engines.http_servers import Handler
from kit.errors import raising
from kit.nodes.lone_nodes import agent_of
from kit.waiting import wait_until

from zoo_compute.base.errors import ApiError, Unreachable
from zoo_compute.client.http import Connection
from zoo_compute.content.blockstore import BlockNotFound
from zoo_compute.node.disk.workspace import Workspace
from zoo_compute.node.market.calls import Lease, Market
from zoo_compute.node.work.held_lease import HeldLease, LeaseLost
from zoo_compute.node.work.worker import Worker

LEASE = Lease("follow", "follow", "0x" + "00" * 32, "0x" + "11" * 32, {"checkpoint_cid": "bafy"}, 30.0)


@pytest.fixture
def connection() -> Connection:
    """To a market that is away."""
    return Connection("http://127.0.0.1:1", retry_seconds=0.1)


def worker(connection: Connection) -> Worker:
    nothing: Any = None
    return Worker(Market(connection), nothing, nothing, nothing, nothing, nothing, nothing, nothing)


class Held(HeldLease):
    def __init__(self, connection: Connection, lost_after: int) -> None:
        super().__init__(Market(connection), LEASE)
        self._looks = iter(range(lost_after))

    def check(self) -> None:
        if next(self._looks, None) is None:
            raise LeaseLost("gone")


def test_result_is_kept_until_lease_is_lost(connection: Connection) -> None:
    with pytest.raises(LeaseLost):
        worker(connection)._complete(Held(connection, lost_after=2), {"followed_cid": "bafy"})


def test_result_is_kept_until_market_answers(connection: Connection) -> None:
    answers = [Unreachable("market-unreachable", "refused")] * 2

    def answer() -> str:
        if answers:
            raise answers.pop()
        raise ApiError(409, "lease-lost", "It is another node's.")

    with pytest.raises(ApiError, match="lease-lost"):
        Held(connection, lost_after=99).call_until_answered(answer)
    assert not answers


@pytest.mark.parametrize("can_be_done", [True, False])
def test_node_stopped_during_outage_resumes_lease(tmp_path: Path, can_be_done: bool) -> None:
    agent = agent_of(tmp_path)
    work = worker(agent._connection)
    begun = threading.Event()

    def do(held: Any) -> None:
        begun.set()
        if not can_be_done:
            raise BlockNotFound("an input is not there")
        work._complete(held, {"followed_cid": "bafy"})

    thread = threading.Thread(target=agent._process_lease, args=(SimpleNamespace(do=do), LEASE))
    thread.start()
    assert begun.wait(60)
    agent.stop()
    thread.join(60)
    assert not thread.is_alive()
    assert Workspace(tmp_path).stored_leases() == [LEASE]


class Away(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Taking, bind_and_activate=False)
        self.server_bind()
        self.requests: list[tuple[str, dict[str, Any]]] = []

    def back(self) -> None:
        self.server_activate()
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Taking(Handler):
    server: Away

    def do_POST(self) -> None:
        self.server.requests.append((self.path, json.loads(self.body())))
        self.reply(b"{}")


def test_lease_refusal_is_repeated_until_market_answers(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The market takes a missing refusal for silence, which costs more."""
    with Away() as market:
        agent = agent_of(tmp_path, f"http://127.0.0.1:{market.server_port}")
        agent._connection._retry_seconds = 0.1
        cannot = raising(BlockNotFound("an input is not there"))
        thread = threading.Thread(target=agent._process_lease, args=(SimpleNamespace(do=cannot), LEASE))
        thread.start()

        def has_waited_twice() -> bool:
            assert thread.is_alive(), "it gave up"
            return caplog.text.count("market_unreachable") >= 2

        wait_until(has_waited_twice)
        market.back()
        thread.join(60)
        assert not thread.is_alive()
        market.shutdown()
    codes = [body["code"] for path, body in market.requests if path == f"/v1/leases/{LEASE.id}/fail"]
    assert codes == ["block_not_found"]
    assert Workspace(tmp_path).stored_leases() == []
