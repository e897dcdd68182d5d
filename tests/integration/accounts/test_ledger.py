"""The ledger on a real database: what it refuses, and that it equals the chain."""

import pytest
from kit.chain.deployed_chain import OPERATOR, OTHER, PAYER, PROVIDER, Chain
from kit.chain.settling import batch_root, claim_pay, pass_challenge_period, settle_job
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from market.domain.network import ZEN
from market.ledger.errors import JournalConflict, NotYetIndexed, UnbalancedJournal
from market.ledger.models import LedgerJournal, LedgerPosting
from market.ledger.reconciliation import Reconciliation, reconcile
from market.ledger.service import balance, balances, post
from market.platform.db.session import Database

MAX = 2**256 - 1


def entry(database: Database, key: str = "k", amount: int = MAX) -> bool:
    with database.transaction() as session:
        return post(session, kind="test", key=key, lines=[("a:1", -amount), ("a:2", amount)], block=1)


def insert_unchecked(database: Database, amounts: list[int]) -> None:
    with database.transaction() as session:
        journal = LedgerJournal(kind="test", key="k")
        session.add(journal)
        session.flush()
        session.add_all(
            LedgerPosting(journal_id=journal.id, line=line, account="a", amount=amount)
            for line, amount in enumerate(amounts)
        )


def proof(chain: Chain, database: Database) -> Reconciliation:
    chain.anvil.mine(3)
    chain.index(database)
    return reconcile(database, chain.client(), chain.deployment)


def test_ledger_key_is_posted_once(database: Database) -> None:
    assert entry(database)
    assert not entry(database)
    with pytest.raises(JournalConflict):
        entry(database, amount=1)
    with database.transaction() as session:
        assert balances(session, "a") == {"a:1": -MAX, "a:2": MAX}
        assert balance(session, "a:2", until_block=0) == 0


def test_unbalanced_journal_is_refused_by_code_and_database(database: Database) -> None:
    with pytest.raises(UnbalancedJournal), database.transaction() as session:
        post(session, kind="test", key="k", lines=[("a", 1), ("b", -2)], block=None)
    for amounts in ([1, -2], []):
        with pytest.raises(DBAPIError, match="sum to"):
            insert_unchecked(database, amounts)
    entry(database)
    with pytest.raises(DBAPIError, match="sum to"), database.transaction() as session:  # into an old journal
        session.execute(text("INSERT INTO ledger_postings SELECT id, 9, 'a', 1 FROM ledger_journals"))


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE ledger_postings SET account = 'mine'",
        "UPDATE ledger_journals SET kind = 'other'",
        "DELETE FROM ledger_postings",
        "DELETE FROM ledger_journals",
        "TRUNCATE ledger_journals, ledger_postings",
    ],
)
def test_posted_entries_are_immutable(database: Database, statement: str) -> None:
    entry(database)
    with pytest.raises(DBAPIError, match="append-only"), database.transaction() as session:
        session.execute(text(statement))


def test_ledger_equals_chain_through_whole_market(chain: Chain, database: Database) -> None:
    chain.stake(PROVIDER, 2_000 * ZEN)
    chain.stake(OTHER, 500 * ZEN)
    paid, opening = chain.order(10 * ZEN)
    chain.send(OTHER, "JobEscrow", "openJob", *opening)
    kept, other_opening = chain.order(3 * ZEN)
    chain.deposit(PAYER, 5 * ZEN)
    chain.send(PAYER, "JobEscrow", "withdraw", 2 * ZEN, OTHER.address)
    chain.send(OTHER, "JobEscrow", "openJob", *other_opening)
    half_way = proof(chain, database)
    assert half_way.agrees
    with database.transaction() as session:
        assert balances(session, "escrow") == {f"escrow:{paid}": 10 * ZEN, f"escrow:{kept}": 3 * ZEN}
        assert balances(session, "balance") == {f"balance:{PAYER.address}": 3 * ZEN}
        assert balance(session, f"stake:{PROVIDER.address}") == 2_000 * ZEN

    settle_job(chain, paid, units=4)
    chain.send(OPERATOR, "ProviderStaking", "slash", OTHER.address, 2, "0x" + "03" * 32)
    chain.send(PAYER, "ZenToken", "transfer", PROVIDER.address, 1)  # none of this market's
    settled = proof(chain, database)
    assert settled.agrees, settled.differences
    gross = 4 * 10**15  # four GPU-seconds at 3.6 ZEN per hour
    fee = gross // 20
    with database.transaction() as session:
        assert balances(session, "escrow") == {f"escrow:{kept}": 3 * ZEN}
        assert balances(session, "pay", "fee") == {"pay:1": gross - fee, "fee:1": fee}
        assert balance(session, "treasury") == 0

    pass_challenge_period(chain)
    claim_pay(chain, paid, units=4)
    chain.send(OTHER, "JobEscrow", "collectFees", [batch_root(paid, 4)])
    end = proof(chain, database)
    assert end.agrees, end.differences
    with database.transaction() as session:
        assert balances(session, "pay", "fee") == {}
        assert balance(session, "treasury") == fee
        assert balance(session, f"wallet:{PROVIDER.address}") == gross - fee - 2_000 * ZEN
        assert balance(session, f"stake:{OTHER.address}") == 250 * ZEN
        assert balance(session, "burned") == 250 * ZEN
        assert sum(balances(session).values()) == 0
    earlier = reconcile(database, chain.client(), chain.deployment, half_way.block_number)
    assert (earlier.agrees, earlier.checks) == (True, half_way.checks)
    with pytest.raises(NotYetIndexed):
        reconcile(database, chain.client(), chain.deployment, end.block_number + 1)


def test_planted_difference_is_found(chain: Chain, database: Database) -> None:
    chain.stake(PROVIDER, 100)
    block = proof(chain, database).block_number
    stolen, thief = f"stake:{PROVIDER.address}", f"stake:{OTHER.address}"
    with database.transaction() as session:
        post(session, kind="planted", key="planted", lines=[(stolen, -1), (thief, 1)], block=block)
    found = reconcile(database, chain.client(), chain.deployment)
    assert not found.agrees
    assert {(check.name, check.ledger_wei, check.chain_wei) for check in found.differences} == {
        (stolen, 99, 100),
        (thief, 1, 0),
    }
    assert found.as_json()["differences"][0]["ledger_wei"] in ("1", "99")


def test_stray_transfer_is_reported_without_difference(chain: Chain, database: Database) -> None:
    chain.send(PAYER, "ZenToken", "transfer", chain.deployment.address("JobEscrow"), 42)
    found = proof(chain, database)
    assert (found.agrees, found.unattributed_escrow_wei) == (True, 42)
