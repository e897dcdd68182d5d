"""Payments through crashes, races and wrong answers: each is made exactly once."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from kit.chain.deployed_chain import OPERATOR, PAYEE, Chain, queue_payment
from kit.chain.faulty_rpc import Answer, ConnectionLost, FaultyRpc, Forward, Request, error_of
from kit.chain.geth_pool import GethPool
from kit.waiting import drain
from sqlalchemy import select

from market.chain.errors import ChainError
from market.chain.models import TxAttempt, TxIntent
from market.chain.transactions.sender import Sender
from market.domain.lifecycle import IllegalTransition, IntentStatus
from market.platform.db.session import Database

ROOT = Path(__file__).parents[2]


def intents(database: Database) -> list[TxIntent]:
    with database.transaction() as session:
        return list(session.scalars(select(TxIntent).order_by(TxIntent.id)))


def all_final(database: Database) -> bool:
    return {found.status for found in intents(database)} == {IntentStatus.FINAL}


def settle_down(chain: Chain, database: Database, sender: Sender) -> None:
    for _ in range(40):
        drain(sender)
        if all_final(database):
            return
        chain.anvil.mine()
    raise AssertionError(f"not final: {[(found.key, found.status, found.reason) for found in intents(database)]}")


@pytest.mark.sized
def test_concurrent_intents_use_each_nonce_once(chain: Chain, database: Database) -> None:
    count = 200
    first = chain.client().nonce(OPERATOR.address)
    chain.anvil.automine(False)
    queued, done = threading.Event(), threading.Event()

    def send() -> None:
        sender = chain.sender(database)
        while not done.is_set():
            if not sender.step():
                done.wait(0.02)

    def mine() -> None:
        while not done.wait(0.1):
            chain.anvil.mine()
            if queued.is_set() and all_final(database):
                done.set()

    with ThreadPoolExecutor(19) as threads:
        runners = [threads.submit(send), threads.submit(send), threads.submit(mine)]
        keys = [f"pay-{number}" for number in range(count)] * 2
        list(threads.map(lambda key: queue_payment(database, key, 1), keys))
        queued.set()
        for runner in runners:
            runner.result(timeout=600)
    assert sorted(found.nonce or 0 for found in intents(database)) == list(range(first, first + count))
    assert chain.client().nonce(OPERATOR.address) == first + count
    assert chain.views.balance_of(PAYEE) == count


def test_two_senders_without_their_lock_still_pay_once(
    chain: Chain, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sender that loses its lock during a step leaves two; the rows still keep them apart."""

    @contextmanager
    def broken_lock(name: str) -> Iterator[bool]:
        yield True

    chain.anvil.automine(False)
    for number in range(40):
        queue_payment(database, f"pay-{number}", 1)
    monkeypatch.setattr(database, "advisory_lock", broken_lock)

    def send() -> None:
        sender = chain.sender(database)
        for _ in range(30):
            with suppress(IllegalTransition, ChainError):  # the other one was there first
                sender.step()
            chain.anvil.mine()

    with ThreadPoolExecutor(2) as threads:
        for runner in [threads.submit(send), threads.submit(send)]:
            runner.result(timeout=600)
    settle_down(chain, database, chain.sender(database))
    nonces = [found.nonce for found in intents(database)]
    assert len(set(nonces)) == len(nonces)
    assert chain.views.balance_of(PAYEE) == 40


@pytest.mark.parametrize("forwarded", [False, True], ids=["before the node has it", "after the node has it"])
def test_killed_sender_pays_once(
    chain: Chain, database: Database, database_url: str, forwarded: bool, proxy: FaultyRpc
) -> None:
    """A process is killed between the commit of its bytes and the node's answer."""
    queue_payment(database)
    killed = threading.Event()

    def kill(request: Request, forward: Forward) -> Answer:
        if forwarded:
            forward(request)
        process.kill()
        killed.set()
        raise ConnectionLost

    proxy.rule("eth_sendRawTransaction", kill)
    program = Path(__file__).with_name("send_once.py")
    arguments = [database_url, proxy.url, chain.settings.deployment_file, OPERATOR.key]
    process = subprocess.Popen([sys.executable, str(program), *arguments], cwd=ROOT)
    assert process.wait(60) != 0
    assert killed.is_set()
    [before] = intents(database)
    assert before.status == IntentStatus.SIGNED
    settle_down(chain, database, chain.sender(database))
    [after] = intents(database)
    assert (after.tx_hash, len(after.attempts)) == (before.attempts[0].hash, 1)
    assert chain.views.balance_of(PAYEE) == 5


def test_replies_lost_at_random_pay_once(chain: Chain, database: Database, proxy: FaultyRpc) -> None:
    """Every second request gets no answer, whether it took effect or not."""
    chain.anvil.automine(False)
    for number in range(10):
        queue_payment(database, f"pay-{number}", 1)
    count = 0

    def flaky(request: Request, forward: Forward) -> Answer:
        nonlocal count
        count += 1
        if count % 4 == 1:
            raise ConnectionLost
        answer = forward(request)
        if count % 4 == 3:
            raise ConnectionLost
        return answer

    for method in ("eth_sendRawTransaction", "eth_getTransactionReceipt", "eth_estimateGas"):
        proxy.rule(method, flaky)
    sender = chain.sender(database, url=proxy.url)
    for _ in range(200):
        try:
            sender.step()
        except ChainError:
            chain.anvil.mine()
        if all_final(database):
            break
    settle_down(chain, database, chain.sender(database))
    assert chain.views.balance_of(PAYEE) == 10
    assert len({found.nonce for found in intents(database)}) == 10


def test_payment_is_sent_once_when_receipt_is_missing(chain: Chain, database: Database, proxy: FaultyRpc) -> None:
    """Behind a balancer one node counts the nonce before another has indexed the transaction."""
    queue_payment(database)
    sender = chain.sender(database, url=proxy.url)
    sender.step()
    chain.anvil.mine(5)  # mined, and final
    proxy.answer("eth_getTransactionReceipt", None)
    for _ in range(3):
        sender.step()
        chain.anvil.mine()
    proxy.heal()
    settle_down(chain, database, sender)
    assert len(intents(database)[0].attempts) == 1
    assert chain.views.balance_of(PAYEE) == 5


def test_receipt_from_dead_branch_is_not_final(chain: Chain, database: Database, proxy: FaultyRpc) -> None:
    """A node on a dead branch serves a receipt below the height that others call final."""
    chain.anvil.automine(False)
    queue_payment(database)
    sender = chain.sender(database)
    sender.step()
    chain.anvil.mine()
    sender.step()
    stale = chain.anvil.rpc("eth_getTransactionReceipt", intents(database)[0].attempts[0].hash)
    chain.anvil.reorg(1)
    chain.anvil.rpc("anvil_dropAllTransactions")
    chain.anvil.mine(4)
    proxy.answer("eth_getTransactionReceipt", stale)
    stuck = chain.sender(database, url=proxy.url)
    for _ in range(3):
        stuck.step()
    assert intents(database)[0].status != IntentStatus.FINAL
    assert chain.views.balance_of(PAYEE) == 0
    settle_down(chain, database, sender)
    assert chain.views.balance_of(PAYEE) == 5


def test_replacement_meets_geth_fee_rule(chain: Chain, database: Database, proxy: FaultyRpc) -> None:
    """In geth's pool one try replaces a stuck payment; a pooled transaction counts as sent."""
    chain.anvil.automine(False)
    queue_payment(database)
    pool = GethPool(proxy)
    sender = chain.sender(database, url=proxy.url)
    for _ in range(chain.settings.stuck_after_blocks + 1):
        sender.step()
        chain.anvil.rpc("anvil_setNextBlockBaseFeePerGas", hex(intents(database)[0].attempts[0].max_fee * 2))
        chain.anvil.mine()
    assert "already known" in pool.refused  # the reminder of each block
    assert "replacement transaction underpriced" not in pool.refused
    old, new = intents(database)[0].attempts
    assert new.max_fee * 10 >= old.max_fee * 11
    assert new.priority_fee * 10 >= old.priority_fee * 11
    settle_down(chain, database, sender)
    assert intents(database)[0].tx_hash == new.hash
    assert chain.views.balance_of(PAYEE) == 5


def test_expensive_foreign_transaction_is_outbid_in_steps(chain: Chain, database: Database, proxy: FaultyRpc) -> None:
    """After a restore from a backup the pool may hold our own unknown bytes."""
    chain.anvil.automine(False)
    queue_payment(database, amount=1)
    pool = GethPool(proxy)
    sender = chain.sender(database, url=proxy.url)
    sender.step()
    [lost] = intents(database)
    with database.transaction() as session:
        session.query(TxAttempt).delete()
        session.query(TxIntent).delete()
    chain.anvil.rpc("anvil_dropAllTransactions")  # the pool that counts is geth's
    queue_payment(database, amount=5)
    for _ in range(3 * chain.settings.stuck_after_blocks):
        sender.step()
        chain.anvil.mine()
    settle_down(chain, database, sender)
    assert "replacement transaction underpriced" in pool.refused
    [found] = intents(database)
    assert found.nonce == lost.nonce
    assert chain.views.balance_of(PAYEE) == 5


def test_inestimable_call_does_not_block_others(chain: Chain, database: Database, proxy: FaultyRpc) -> None:
    queue_payment(database, "heavy", 1)
    queue_payment(database, "light", 2)

    def limited(request: Request, forward: Forward) -> Answer:
        if str(request["params"][0]["data"]).endswith("1"):
            return error_of(request, "gas required exceeds allowance (30000000)")
        return forward(request)

    proxy.rule("eth_estimateGas", limited)
    sender = chain.sender(database, url=proxy.url)
    assert sum(sender.step() for _ in range(5)) < 5, "waiting is not moving"
    heavy, light = intents(database)
    assert (heavy.status, heavy.reason) == (IntentStatus.QUEUED, "not_estimated")
    assert "exceeds allowance" in (heavy.detail or "")
    assert light.status != IntentStatus.QUEUED
    proxy.heal()
    settle_down(chain, database, sender)
    assert chain.views.balance_of(PAYEE) == 3


def test_missing_tip_suggestion_does_not_stop_sending(chain: Chain, database: Database, proxy: FaultyRpc) -> None:
    """Some nodes do not offer ``eth_maxPriorityFeePerGas``."""
    queue_payment(database)
    proxy.refuse("eth_maxPriorityFeePerGas", "the method eth_maxPriorityFeePerGas does not exist", -32601)
    settle_down(chain, database, chain.sender(database, url=proxy.url))
    assert chain.views.balance_of(PAYEE) == 5
