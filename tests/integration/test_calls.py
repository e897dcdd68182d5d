"""Calls to the chain that are asked for until they are made."""

from datetime import timedelta

from sqlalchemy import event, update

from market.chain.bindings import WorkWindows
from market.chain.models import TxIntent
from market.chain.service import intents_about
from market.db.base import utc_now
from market.db.session import Database
from market.verification.calls import ask

ROOT = "0x" + "ab" * 32


def _ask(database: Database, key: str = f"window:{ROOT}") -> None:
    with database.transaction() as session:
        ask(session, key=key, kind="commit_window", subject="window:1", **WorkWindows.commitWindow(ROOT, 1))


def _refuse(database: Database) -> None:
    """All that were asked for, a while ago."""
    with database.transaction() as session:
        session.execute(update(TxIntent).values(status="reverted", updated_at=utc_now() - timedelta(minutes=1)))


def _keys(database: Database) -> list[str]:
    with database.transaction() as session:
        return [intent.key for intent in intents_about(session, "window:1")]


def test_a_call_is_asked_for_again_only_once_it_was_refused(database: Database) -> None:
    _ask(database)
    _ask(database)
    _ask(database, f"window:{ROOT}_")  # another call, whose key only begins alike
    assert _keys(database) == [f"window:{ROOT}:0", f"window:{ROOT}_:0"]
    _refuse(database)
    _ask(database)
    _ask(database)
    assert _keys(database)[2:] == [f"window:{ROOT}:1"]


def test_a_call_that_is_refused_for_days_costs_no_more_than_one_that_is_not(database: Database) -> None:
    """Every look at it had read all its attempts, one after the other: 2,880 a day, every two seconds."""
    for _ in range(12):
        _ask(database)
        _refuse(database)
    statements = 0

    def count(*_: object) -> None:
        nonlocal statements
        statements += 1

    event.listen(database.engine, "before_cursor_execute", count)
    _ask(database)
    assert statements < 8
    assert _keys(database)[-1] == f"window:{ROOT}:12"
