"""The indexer on a real chain: reorganisations, lagging nodes, chains that go back."""

import pytest
from kit.chain.deployed_chain import OPERATOR, OTHER, PAYER, PROVIDER, Chain
from kit.chain.faulty_rpc import Answer, FaultyRpc, Forward, Request, error_of, result_of
from kit.chain.indexing import booked, canonical_logs, cursor, forget, fresh
from kit.waiting import drain
from sqlalchemy.orm import Session

from market.chain.contracts.codec import ChainEvent
from market.chain.errors import FinalityViolated, IncompleteLogs, RateLimited, UnknownBlock
from market.chain.indexer import Indexer
from market.chain.rpc.client import ChainClient
from market.platform.db.session import Database

STAKED = ("ProviderStaking", "Staked")


def test_reorganised_index_equals_fresh_index(chain: Chain, database: Database) -> None:
    chain.stake(PROVIDER, 100)
    chain.anvil.mine(3)
    chain.index(database)
    chain.stake(PAYER, 7)  # two blocks, not final
    chain.index(database)
    seen = canonical_logs(database)
    chain.anvil.reorg(2)
    chain.stake(OTHER, 9)  # the other branch has another staker, higher up
    chain.index(database)
    assert canonical_logs(database) != seen
    chain.anvil.mine(3)
    chain.index(database)
    result = booked(database), canonical_logs(database)
    stakers = {account for _, _, account, _ in result[0] if account.startswith("stake:")}
    assert stakers == {f"stake:{PROVIDER.address}", f"stake:{OTHER.address}"}
    assert result == fresh(database, chain)


def test_events_are_handled_once_in_order_when_final(chain: Chain, database: Database) -> None:
    seen: list[int] = []

    def handler(session: Session, event: ChainEvent) -> None:
        seen.append(event.args["amount"])
        if seen == [1, 2]:
            raise RuntimeError("handler")

    for amount in (1, 2, 3):
        chain.stake(PROVIDER, amount)  # two blocks each, so that the last one is not final
    with pytest.raises(RuntimeError) as failure:
        chain.index(database, {STAKED: [handler]})
    assert "ProviderStaking.Staked" in failure.value.__notes__[0]
    chain.index(database, {STAKED: [handler]})
    assert seen == [1, 2, 2]  # the one that failed again, the one before it not
    chain.anvil.mine(2)
    chain.index(database, {STAKED: [handler]})
    chain.index(database, {STAKED: [handler]})
    assert seen == [1, 2, 2, 3]


def test_lagging_node_raises_error_instead_of_empty_block(chain: Chain, database: Database, proxy: FaultyRpc) -> None:
    chain.index(database)
    chain.stake(PROVIDER, 100)
    chain.anvil.mine(3)
    before = cursor(database).head_number
    indexer = chain.indexer(database, url=proxy.url)
    proxy.answer("eth_getLogs", [])
    for receipts in ([], [{"logs": []}]):
        proxy.answer("eth_getBlockReceipts", receipts)
        with pytest.raises(IncompleteLogs):
            indexer.step()
    proxy.answer("eth_getBlockReceipts", None)
    with pytest.raises(UnknownBlock):
        indexer.step()
    assert cursor(database).head_number == before
    proxy.heal()
    drain(indexer)
    asked = proxy.calls["eth_getLogs"]
    chain.anvil.mine(5)
    assert indexer.step() > 0
    assert proxy.calls["eth_getLogs"] == asked  # empty blocks cost no question
    assert (f"stake:{PROVIDER.address}", 100) in [line[2:] for line in booked(database)]


def test_indexer_reads_receipts_when_node_returns_no_logs(chain: Chain, database: Database, proxy: FaultyRpc) -> None:
    chain.stake(PROVIDER, 100)
    chain.anvil.mine(3)
    proxy.answer("eth_getLogs", [])
    drain(chain.indexer(database, url=proxy.url))
    result = booked(database), canonical_logs(database)
    assert (f"stake:{PROVIDER.address}", 100) in [line[2:] for line in result[0]]
    assert result == fresh(database, chain)


def test_ranges_and_single_blocks_give_equal_events(chain: Chain, database: Database) -> None:
    for amount in range(1, 6):
        chain.stake(PROVIDER, amount)
        chain.anvil.mine(amount)
    chain.anvil.mine(3)
    chain.index(database)
    in_ranges = booked(database), canonical_logs(database)
    forget(database)
    one_by_one = Indexer(database, chain.client(), chain.deployment, chain.mirror(), max_range=1)
    while one_by_one.step(max_blocks=7):
        pass
    assert (booked(database), canonical_logs(database)) == in_ranges


def test_block_range_shrinks_on_refusal_and_grows_again(chain: Chain, database: Database, proxy: FaultyRpc) -> None:
    chain.anvil.mine(300)
    chain.stake(PROVIDER, 100)
    chain.anvil.mine(3)
    proxy.largest_batch = 50
    indexer = chain.indexer(database, url=proxy.url)
    drain(indexer)
    assert proxy.posts < 60, "not one block at a time"
    proxy.heal()
    chain.anvil.mine(100)

    def limited(request: Request, forward: Forward) -> Answer:
        return error_of(request, "rate limit exceeded", -32005)

    proxy.rule("eth_getBlockByNumber", limited)
    with pytest.raises(RateLimited):
        indexer.step()
    proxy.heal()
    drain(indexer)
    assert cursor(database).head_number == chain.views.head_number()
    assert (f"stake:{PROVIDER.address}", 100) in [line[2:] for line in booked(database)]


def test_indexer_refuses_blocks_without_parent_links(chain: Chain, database: Database, proxy: FaultyRpc) -> None:
    """A load balancer may mix two branches in one answer."""
    chain.anvil.mine(20)

    def mixed(request: Request, forward: Forward) -> Answer:
        answer = forward(request)
        if isinstance(answer["result"], dict) and int(answer["result"]["number"], 16) % 7 == 0:
            answer["result"]["hash"] = "0x" + "ee" * 32
        return answer

    proxy.rule("eth_getBlockByNumber", mixed)
    with pytest.raises(UnknownBlock, match="not of one chain"):
        chain.indexer(database, url=proxy.url).step()
    assert cursor(database).head_number < chain.views.head_number() - 20


def test_shorter_chain_is_followed_only_above_finality(chain: Chain, database: Database) -> None:
    chain.anvil.mine(3)
    chain.index(database)
    early = chain.anvil.snapshot()
    chain.anvil.mine(5)
    late = chain.anvil.snapshot()
    chain.stake(PROVIDER, 5)
    chain.index(database)
    final = cursor(database)
    chain.anvil.revert(late)  # a node restarted from a dump that is two blocks old
    chain.index(database)
    assert cursor(database).head_number == chain.views.head_number() == final.head_number - 2
    chain.stake(PROVIDER, 8)
    chain.anvil.mine(3)
    chain.index(database)
    assert [amount for _, _, account, amount in booked(database) if account.startswith("stake:")] == [8]

    final = cursor(database)
    chain.anvil.revert(early)
    with pytest.raises(FinalityViolated, match="was final"):
        chain.indexer(database).step()
    chain.anvil.mine(30)
    with pytest.raises(FinalityViolated, match="has 0x"):
        chain.indexer(database).step()
    now = cursor(database)
    assert (now.head_hash, now.finalised_hash) == (final.head_hash, final.finalised_hash)


def test_indexer_skips_step_when_lock_is_held(chain: Chain, database: Database) -> None:
    chain.send(OPERATOR, "ZenToken", "transfer", PAYER.address, 1)
    with database.advisory_lock("chain.indexer") as held:
        assert held
        assert chain.indexer(database).step() == 0
    assert chain.indexer(database).step() > 0


@pytest.mark.parametrize("fault", ["error", "null"])
def test_indexer_keeps_finality_when_node_forgets_it(chain: Chain, fault: str, proxy: FaultyRpc) -> None:
    """A node does so after a restart, until its consensus client reports finality."""
    client = ChainClient(proxy.url, chain.deployment.chain_id, confirmations=1)
    final = client.finalised()

    def forgetful(request: Request, forward: Forward) -> Answer:
        if request["params"][0] != "finalized":
            return forward(request)
        return error_of(request, "finalized block not found") if fault == "error" else result_of(request, None)

    proxy.rule("eth_getBlockByNumber", forgetful)
    with pytest.raises(UnknownBlock, match="final"):
        client.finalised()
    proxy.heal()
    assert client.finalised() == final
