"""Several nodes of one chain: reads move on, only the sender repeats sends, none goes back."""

from collections.abc import Iterator

import pytest
from kit.chain.deployed_chain import CHAIN_ID, PAYEE, PROVIDER, Chain, intent, queue_payment
from kit.chain.faulty_rpc import FaultyRpc
from kit.chain.indexing import booked, cursor
from kit.waiting import drain

from market.chain.errors import IncompleteLogs, Lagging, RpcUnavailable, WrongChain
from market.chain.rpc.client import ChainClient
from market.domain.lifecycle import IntentStatus
from market.platform.db.session import Database


@pytest.fixture
def first(proxy: FaultyRpc) -> FaultyRpc:
    return proxy


@pytest.fixture
def second(chain: Chain) -> Iterator[FaultyRpc]:
    with FaultyRpc(chain.anvil.url) as proxy:
        yield proxy


@pytest.fixture
def both(first: FaultyRpc, second: FaultyRpc) -> str:
    return f"{first.url}, {second.url}"


def test_indexing_continues_at_next_node(
    chain: Chain, database: Database, first: FaultyRpc, second: FaultyRpc, both: str
) -> None:
    indexer = chain.indexer(database, url=both)
    drain(indexer)
    assert second.posts == 0, "one node is enough"
    chain.stake(PROVIDER, 100)
    chain.anvil.mine(3)
    first.go_down()
    drain(indexer)
    assert (f"stake:{PROVIDER.address}", 100) in [line[2:] for line in booked(database)]
    first.heal()
    second.refuse("eth_getBlockByNumber", "Too Many Requests", 429)
    chain.anvil.mine()
    assert indexer.step(), "and back"


def test_node_behind_newest_seen_block_is_never_read(
    chain: Chain, database: Database, first: FaultyRpc, second: FaultyRpc, both: str
) -> None:
    chain.anvil.mine(5)
    indexer, client = chain.indexer(database, url=both), chain.client(both)
    drain(indexer)
    before = cursor(database)
    assert client.head().number == before.head_number
    second.lag_at(before.head_number - 3)
    first.go_down()
    for _ in range(2):
        with pytest.raises(RpcUnavailable):
            indexer.step()
        with pytest.raises(RpcUnavailable):
            client.nonce(PAYEE)
    first.heal()
    first.lag_at(before.head_number - 4)  # both answer, but the second one has caught up
    second.heal()
    assert client.head().number == before.head_number
    assert indexer.step() == 0
    assert cursor(database).head_hash == before.head_hash
    second.lag_at(before.head_number - 1)
    first.go_down()
    with pytest.raises(Lagging, match="another node is silent"):
        client.head()


def test_chain_is_shorter_only_when_all_nodes_agree(
    chain: Chain, first: FaultyRpc, second: FaultyRpc, both: str
) -> None:
    chain.anvil.mine(5)
    client = chain.client(both)
    newest = client.head().number
    first.lag_at(newest - 4)
    second.lag_at(newest - 2)
    assert client.head().number == newest - 2


def test_unanswered_send_is_not_repeated_at_another_node(
    chain: Chain, database: Database, first: FaultyRpc, second: FaultyRpc, both: str
) -> None:
    queue_payment(database)
    sender = chain.sender(database, url=both)
    first.lose_request("eth_sendRawTransaction")
    with pytest.raises(RpcUnavailable):
        sender.step()
    assert second.calls["eth_sendRawTransaction"] == 0
    assert intent(database).status == IntentStatus.SIGNED
    first.go_down()
    for _ in range(4):  # the sender itself brings the same bytes to the next node
        sender.step()
        chain.anvil.mine()
    assert second.calls["eth_sendRawTransaction"] >= 1  # a block that comes late has it sent again
    assert (intent(database).status, len(intent(database).attempts)) == (IntentStatus.FINAL, 1)
    assert chain.views.balance_of(PAYEE) == 5


def test_node_hiding_logs_is_replaced(chain: Chain, database: Database, first: FaultyRpc, both: str) -> None:
    chain.stake(PROVIDER, 100)
    chain.anvil.mine(3)
    first.answer("eth_getLogs", [])
    first.answer("eth_getBlockReceipts", [])
    indexer = chain.indexer(database, url=both)
    with pytest.raises(IncompleteLogs):
        indexer.step()
    drain(indexer)
    assert (f"stake:{PROVIDER.address}", 100) in [line[2:] for line in booked(database)]


def test_node_of_other_chain_is_never_read(chain: Chain, first: FaultyRpc, second: FaultyRpc, both: str) -> None:
    first.answer("eth_chainId", "0x1")
    assert chain.client(both).head().number == chain.views.head_number()
    assert first.calls["eth_getBlockByNumber"] == 0
    second.answer("eth_chainId", "0x1")
    with pytest.raises(WrongChain, match="serves chain 1, expected chain 31337"):
        chain.client(both).head()


def test_errors_hide_secret_in_url() -> None:
    client = ChainClient("http://user:pass-secret@127.0.0.1:9/v3/path-secret?key=query-secret", CHAIN_ID)
    with pytest.raises(RpcUnavailable) as failure:
        client.head()
    assert str(failure.value) == "eth_chainId at 127.0.0.1:9: ConnectionError"
    assert failure.value.__cause__ is None
    assert failure.value.__suppress_context__
    for malformed in ("", " , ", "no-url"):
        with pytest.raises(ValueError, match="separated by commas"):
            ChainClient(malformed, CHAIN_ID)
