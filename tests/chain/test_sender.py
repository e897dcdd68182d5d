"""The sender on a real chain and database, behind a proxy that loses requests and replies."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import rlp
from kit.chain.deployed_chain import OPERATOR, PAYEE, Chain, intent, queue_payment
from kit.chain.faulty_rpc import Answer, FaultyRpc, Forward, Request, error_of, result_of
from kit.errors import raising
from kit.records import Records
from kit.waiting import drain
from sqlalchemy import select
from sqlalchemy.orm import Session

from market.chain.errors import BadArguments, RpcUnavailable
from market.chain.models import TxIntent
from market.chain.service import queue_intent
from market.chain.transactions.fees import Fees, quote, replacement
from market.chain.transactions.sender import GAP_KIND, Sender
from market.domain.lifecycle import IntentStatus
from market.platform.db.session import Database
from market.platform.events.models import AuditEvent


def queue_window(database: Database, key: str, root: str) -> None:
    with database.transaction() as session:
        queue_intent(
            session,
            key=key,
            kind="window",
            subject=root,
            contract="WorkWindows",
            function="commitWindow",
            arguments=[root, 1],
        )


def settle_down(chain: Chain, sender: Sender, until: Callable[[], bool] = lambda: False) -> None:
    for _ in range(12):
        drain(sender)
        if until():
            return
        chain.anvil.mine()


def nonces_used(chain: Chain) -> int:
    return chain.client().nonce(OPERATOR.address)


def test_thirty_concurrent_intents_use_each_nonce_once(chain: Chain, database: Database) -> None:
    first = nonces_used(chain)
    chain.anvil.automine(False)
    roots = [f"0x{number:064x}" for number in range(1, 31)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda root: queue_window(database, root, root), roots * 2))  # each twice: one intent
    sender, rival = chain.sender(database), chain.sender(database)
    with database.advisory_lock(f"chain.sender.{sender.address}") as held:
        assert held
        assert not rival.step()  # one sender per signer
    settle_down(chain, sender)
    intents = Records(database).all(select(TxIntent))
    assert {found.status for found in intents} == {IntentStatus.FINAL}
    assert sorted(found.nonce or 0 for found in intents) == list(range(first, first + 30))
    assert nonces_used(chain) == first + 30


def test_lost_reply_pays_once(chain: Chain, database: Database, proxy: FaultyRpc) -> None:
    queue_payment(database)
    proxy.lose_reply("eth_sendRawTransaction")
    with pytest.raises(RpcUnavailable):
        chain.sender(database, url=proxy.url).step()
    # Between the reply and its loss the node has mined it; the market does not know.
    assert intent(database).status == IntentStatus.SIGNED
    settle_down(chain, chain.sender(database, url=proxy.url))
    assert intent(database).status == IntentStatus.FINAL
    assert len(intent(database).attempts) == 1
    assert chain.views.balance_of(PAYEE) == 5


def test_crash_between_signing_and_sending_loses_nothing(chain: Chain, database: Database, proxy: FaultyRpc) -> None:
    queue_payment(database)
    proxy.lose_request("eth_sendRawTransaction")
    with pytest.raises(RpcUnavailable):
        chain.sender(database, url=proxy.url).step()
    signed = intent(database).attempts[0].hash
    assert chain.client().receipt(signed) is None
    settle_down(chain, chain.sender(database))
    found = intent(database)
    assert (found.status, found.tx_hash, len(found.attempts)) == (IntentStatus.FINAL, signed, 1)
    assert chain.views.balance_of(PAYEE) == 5


def test_stuck_transaction_is_replaced_at_its_nonce(chain: Chain, database: Database) -> None:
    chain.anvil.automine(False)
    queue_payment(database)
    sender = chain.sender(database)
    sender.step()
    first = intent(database).attempts[0]
    for _ in range(chain.settings.stuck_after_blocks):
        chain.anvil.rpc("anvil_setNextBlockBaseFeePerGas", hex(first.max_fee * 2))
        chain.anvil.mine()
        assert len(intent(database).attempts) == 1
    sender.step()
    found = intent(database)
    second = found.attempts[1]
    assert (second.nonce, found.nonce) == (first.nonce, first.nonce)
    assert second.max_fee * 8 >= first.max_fee * 9
    assert second.priority_fee * 8 >= first.priority_fee * 9
    settle_down(chain, sender)
    found = intent(database)
    assert (found.status, found.tx_hash) == (IntentStatus.FINAL, second.hash)
    assert chain.views.balance_of(PAYEE) == 5


def test_fees_are_bumped_by_eighth_and_capped() -> None:
    assert quote(100, 7, 10_000) == Fees(207, 7)
    assert quote(100, 0, 150) == Fees(150, 1)
    assert replacement(Fees(1_001, 1), Fees(1, 1), 10_000) == Fees(1_127, 2)
    assert replacement(Fees(1_000, 1), Fees(5_000, 9), 10_000) == Fees(5_000, 9)
    assert replacement(Fees(1_000, 1), Fees(1, 1), 1_124) is None


def test_expensive_call_stays_within_transaction_gas_limit(chain: Chain, database: Database, proxy: FaultyRpc) -> None:
    """Nodes refuse more than 2^24 gas permanently (EIP-7825), which blocks all later nonces."""

    def estimate(request: Request, forward: Forward) -> Answer:
        return result_of(request, hex(13_000_000))

    def osaka(request: Request, forward: Forward) -> Answer:
        gas_limit = int.from_bytes(rlp.decode(bytes.fromhex(request["params"][0][4:]))[4], "big")
        return error_of(request, "transaction gas limit too high") if gas_limit > 1 << 24 else forward(request)

    proxy.rule("eth_estimateGas", estimate)
    proxy.rule("eth_sendRawTransaction", osaka)
    sender = chain.sender(database, url=proxy.url)
    queue_payment(database, "dear")
    settle_down(chain, sender, lambda: intent(database, "dear").status == IntentStatus.FINAL)
    assert intent(database, "dear").status == IntentStatus.FINAL


def test_payment_is_final_when_node_lacks_final_state(chain: Chain, database: Database, proxy: FaultyRpc) -> None:
    """A full node keeps about 128 states; on chains with fast blocks finality lies further back."""

    def pruned(request: Request, forward: Forward) -> Answer:
        is_old = isinstance(request["params"][1], dict)
        return error_of(request, "missing trie node") if is_old else forward(request)

    proxy.rule("eth_getTransactionCount", pruned)
    queue_payment(database)
    settle_down(chain, chain.sender(database, url=proxy.url), lambda: intent(database).status == IntentStatus.FINAL)
    assert intent(database).status == IntentStatus.FINAL


def test_certain_revert_takes_no_nonce(chain: Chain, database: Database) -> None:
    handled: list[tuple[str, str | None, str | None]] = []

    def handler(session: Session, found: TxIntent) -> None:
        handled.append((found.key, found.status, found.reason))

    root = "0x" + "07" * 32
    chain.send(OPERATOR, "WorkWindows", "commitWindow", root, 1)
    before = nonces_used(chain)
    queue_window(database, "again", root)
    queue_payment(database)
    settle_down(chain, chain.sender(database, {"window": handler, "payment": handler}))
    refused = intent(database, "again")
    assert (refused.status, refused.reason, refused.nonce) == (IntentStatus.REVERTED, "simulation_reverted", None)
    assert refused.detail is not None
    assert refused.detail.startswith("RootUsed(root=0x0707")
    assert intent(database).nonce == before
    assert nonces_used(chain) == before + 1
    assert handled == [("again", "reverted", "simulation_reverted"), ("pay", "final", None)]


def test_reverted_transaction_reports_its_reason(chain: Chain, database: Database) -> None:
    chain.anvil.automine(False)
    root = "0x" + "08" * 32
    queue_window(database, "first", root)
    queue_window(database, "second", root)
    settle_down(chain, chain.sender(database))
    assert intent(database, "first").status == IntentStatus.FINAL
    second = intent(database, "second")
    assert (second.status, second.reason) == (IntentStatus.REVERTED, "reverted_on_chain")
    assert "RootUsed" in (second.detail or "")


def test_failing_handler_leaves_intent_unchanged(chain: Chain, database: Database) -> None:
    queue_payment(database)
    with pytest.raises(RuntimeError, match="handler"):
        settle_down(chain, chain.sender(database, {"payment": raising(RuntimeError("handler"))}))
    assert intent(database).status == IntentStatus.MINED
    settle_down(chain, chain.sender(database))
    assert intent(database).status == IntentStatus.FINAL
    assert chain.views.balance_of(PAYEE) == 5


def test_reorganised_payment_is_resent_from_same_bytes(chain: Chain, database: Database) -> None:
    chain.anvil.automine(False)
    queue_payment(database)
    sender = chain.sender(database)
    sender.step()
    chain.anvil.mine()
    sender.step()
    assert intent(database).status == IntentStatus.MINED
    chain.anvil.reorg(1)
    assert chain.views.balance_of(PAYEE) == 0
    sender.step()
    assert intent(database).status == IntentStatus.BROADCAST
    settle_down(chain, sender)
    assert (intent(database).status, len(intent(database).attempts)) == (IntentStatus.FINAL, 1)
    assert chain.views.balance_of(PAYEE) == 5
    moves = Records(database).all(select(AuditEvent.event).order_by(AuditEvent.id))
    assert moves == ["sign", "send", "mine", "reorg", "mine", "finalise"]


def test_foreign_transaction_takes_nonce_only_when_final(chain: Chain, database: Database, proxy: FaultyRpc) -> None:
    queue_payment(database)
    proxy.lose_request("eth_sendRawTransaction")
    with pytest.raises(RpcUnavailable):
        chain.sender(database, url=proxy.url).step()
    lost = intent(database).attempts[0]
    chain.send(OPERATOR, "ZenToken", "transfer", OPERATOR.address, 1)  # the key is used outside of the market
    sender = chain.sender(database)
    sender.step()
    assert intent(database).nonce == lost.nonce
    settle_down(chain, sender)
    found = intent(database)
    assert (found.status, found.nonce) == (IntentStatus.FINAL, lost.nonce + 1)
    assert chain.views.balance_of(PAYEE) == 5


def test_gap_below_nonces_is_filled(chain: Chain, database: Database) -> None:
    chain.anvil.automine(False)
    gap = nonces_used(chain)
    chain.send(OPERATOR, "ZenToken", "transfer", OPERATOR.address, 1)
    chain.anvil.mine()
    queue_payment(database)
    sender = chain.sender(database)
    sender.step()
    assert intent(database).nonce == gap + 1
    chain.anvil.reorg(1)  # the foreign transaction is gone; ours waits for a nonce that no transaction uses
    chain.anvil.rpc("anvil_dropAllTransactions")
    settle_down(chain, sender)
    assert intent(database).status == IntentStatus.FINAL
    assert chain.views.balance_of(PAYEE) == 5
    filler = Records(database).one(select(TxIntent).where(TxIntent.kind == GAP_KIND))
    assert (filler.status, filler.nonce) == (IntentStatus.FINAL, gap)


def test_bad_arguments_are_refused_when_queued(database: Database) -> None:
    with pytest.raises(BadArguments, match=r"ZenToken\.transfer"):
        queue_payment(database, amount=2**256)
    queue_payment(database)
    with pytest.raises(BadArguments, match="another call"):
        queue_payment(database, amount=6)
