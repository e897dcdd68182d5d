"""Calls to the chain that are asked for until they are made."""

from datetime import timedelta

from kit.measures import statements
from kit.records import Records
from sqlalchemy import update

from market.chain.contracts.bindings import WorkWindows
from market.chain.models import TxAttempt, TxIntent
from market.chain.service import intents_about, queue_intent, request_call
from market.chain.transactions.limits import Limits
from market.platform.db.base import utc_now

ROOT = "0x" + "ab" * 32


def _ask(records: Records, key: str = f"window:{ROOT}") -> None:
    records.call(request_call, key=key, kind="commit_window", subject="window:1", **WorkWindows.commitWindow(ROOT, 1))


def _refuse(records: Records) -> None:
    records.execute(update(TxIntent).values(status="reverted", updated_at=utc_now() - timedelta(minutes=1)))


def _keys(records: Records) -> list[str]:
    return records.call(lambda session: [intent.key for intent in intents_about(session, "window:1")])


def test_call_is_retried_only_after_refusal(records: Records) -> None:
    _ask(records)
    _ask(records)
    _ask(records, f"window:{ROOT}_")  # another call, whose key only begins alike
    assert _keys(records) == [f"window:{ROOT}:0", f"window:{ROOT}_:0"]
    _refuse(records)
    _ask(records)
    _ask(records)
    assert _keys(records)[2:] == [f"window:{ROOT}:1"]


def test_long_refused_call_costs_no_more_queries(records: Records) -> None:
    """A look every two seconds must not read all attempts again."""
    for _ in range(12):
        _ask(records)
        _refuse(records)
    with statements(records.database) as seen:
        _ask(records)
    assert len(seen) < 8
    assert _keys(records)[-1] == f"window:{ROOT}:12"


def test_daily_limit_is_separate_per_account(records: Records) -> None:
    limits = Limits(per_transaction=100, per_day=100, gas_per_day=1)
    with records.database.transaction() as session:
        call = WorkWindows.commitWindow(ROOT, 1)
        bond, other, slash = (
            queue_intent(session, key=key, kind="k", subject="s", **call, amount=60, account=account)
            for key, account in (("bond", "challenger"), ("other", "challenger"), ("slash", "operator"))
        )
        sent = {"nonce": 0, "hash": ROOT, "raw": b"", "gas_limit": 1, "max_fee": 1, "priority_fee": 1}
        session.add(TxAttempt(intent_id=bond.id, signer="0x" + "11" * 20, **sent))
        session.flush()
        assert limits.on_amount(session, slash) is None
        waits = limits.on_amount(session, other)
        assert waits is not None
        assert waits[0] == "limit_per_day"
