"""Disputes of the market that end without a verdict: unit, bond and money.

Training, replays, contract and ledger are live. An unverified unit is never paid.
"""

from typing import Any

import pytest
from kit.chain.deployed_chain import wallet
from kit.disputes.adjudication_fixtures import MARKET
from kit.disputes.dispute_fixtures import TERMS, ZEN
from kit.disputes.job_end_fixtures import EndingsWorld, world_of_endings  # noqa: F401  (fixtures)
from kit.killed import Killed
from kit.payments.cancelled_jobs import cancel_now
from kit.verification.live_fixtures import Node
from kit.verification.replay_records import replay_records
from sqlalchemy import update
from structlog.testing import capture_logs

from market.chain.models import TxIntent
from market.chain.service import RETRY_AFTER
from market.platform.db.base import utc_now
from market.training.leases.schemas import LeaseKind
from market.verification.decisions import unit_outcomes
from market.verification.disputes import challenger

pytestmark = pytest.mark.long

STAKE, BOND, COST = 1_000 * ZEN, TERMS.bond_wei, TERMS.cost_wei
NEW_ACCOUNT = wallet(31)


@pytest.fixture
def job_id(live: EndingsWorld, cheat: Node, verifiers: list[Node]) -> str:
    live.listed = live.referees()
    live.step()
    job_id = live.job_of([cheat])
    live.train_all(job_id, cheat)
    return job_id


def die_once(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
    original, died = getattr(owner, name), []

    def dies(*arguments: Any, **named: Any) -> Any:
        if not died:
            died.append(True)
            raise Killed
        return original(*arguments, **named)

    monkeypatch.setattr(owner, name, dies)


def until_final(live: EndingsWorld, job_id: str, cheat: Node, verifiers: list[Node]) -> None:
    for _ in range(3):
        try:
            live.until_decided(job_id, [cheat], verifiers)
            return
        except Killed:
            live.restart()
    raise AssertionError("killed again and again")


def opened(live: EndingsWorld, cheat: Node, verifiers: list[Node]) -> str:
    for _ in range(40):
        live.turn([], verifiers)
        live.work_off(cheat, LeaseKind.REVEAL)
        if any(intent.function == "open" and intent.status == "final" for intent in live.sent()):
            return live.challenges()[0].dispute_id
    raise AssertionError([(intent.function, intent.status, intent.detail) for intent in live.sent()])


def until_rejected(live: EndingsWorld, job_id: str, nodes: list[Node], verifiers: list[Node], seconds: int) -> None:
    for _ in range(30):
        try:
            live.turn(nodes, verifiers)
            live.pass_time(seconds)
        except Killed:
            continue
        if {unit.status for unit in live.units(job_id, round=0)} == {"rejected"}:
            return
    raise AssertionError([(unit.status, unit.reason) for unit in live.units(job_id)])


def check_undecided(live: EndingsWorld, job_id: str, cheat: Node, verifiers: list[Node], reason: str) -> None:
    (unit,) = live.units(job_id, round=0)
    assert (unit.status, unit.reason, unit.settlement_id) == ("rejected", reason, None)
    found = live.provider(cheat.address)
    assert (found.status, found.disputed_at) == ("active", None)
    assert live.deployed.views.stake_of(cheat.address) == STAKE
    assert live.slashes() == []
    assert {replay.status for replay in live.replays()} <= {"agreed", "disagreed"}
    paid = {address for address, (replays, _, _) in replay_records(live).items() if replays}
    assert paid == {verifier.address for verifier in verifiers}
    check_refunded(live, job_id)


def check_slashed_by_operator(live: EndingsWorld, job_id: str, cheat: Node, why: str) -> None:
    live.step()
    (slash,) = live.slashes()
    assert (slash.path, slash.path_reason, slash.amount_wei) == ("operator", why, STAKE // 2)
    assert live.deployed.views.stake_of(cheat.address) == STAKE // 2
    found = live.provider(cheat.address)
    assert (found.status, found.disputed_at) == ("jailed", None)
    check_refunded(live, job_id)


def check_refunded(live: EndingsWorld, job_id: str) -> None:
    live.check_books()
    cancel_now(live, job_id)
    live.settle_job(job_id)
    job = live.check_paid(job_id)
    assert (job.paid_wei, job.fee_wei, job.refund_wei) == (0, 0, job.budget_wei)


def test_dispute_lapses_with_warning_when_account_changed(
    live: EndingsWorld, job_id: str, cheat: Node, verifiers: list[Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    live.give_account()
    dispute = opened(live, cheat, verifiers)
    live.give_account(1, NEW_ACCOUNT)
    with capture_logs() as logs:
        live.turn([cheat], verifiers)  # the trace is revealed, and no segment can be selected
        live.turn([cheat], verifiers)
    [error] = [entry for entry in logs if entry.get("dispute") == dispute and entry["log_level"] == "error"]
    assert (error["account"], error["status"]) == (MARKET.address, "step")
    assert "ZOO_PREVIOUS_CHALLENGER_KEY" in error["remedy"]
    die_once(monkeypatch, challenger, "_end")
    die_once(monkeypatch, unit_outcomes, "_reject")
    until_rejected(live, job_id, [cheat], verifiers, TERMS.turn_seconds + 1)
    live.turn([cheat], verifiers)

    (ended,) = live.challenges()
    assert (ended.status, ended.reason) == ("lapsed", "dispute_lapsed")
    assert live.deployed.views.balance_of(MARKET.address) == 2 * BOND  # of three
    assert live.chain_of(cheat).credits() + live.deployed.views.balance_of(cheat.address) == 1_000 * ZEN + COST
    assert [intent.function for intent in live.sent(NEW_ACCOUNT.address) if intent.function != "approve"] == []
    check_undecided(live, job_id, cheat, verifiers, "dispute_lapsed")


def test_former_account_completes_its_dispute(
    live: EndingsWorld, job_id: str, cheat: Node, verifiers: list[Node]
) -> None:
    live.give_account()
    opened(live, cheat, verifiers)
    live.give_account(1, NEW_ACCOUNT)
    live.restart(NEW_ACCOUNT, MARKET)
    live.referees_here = live.listed
    live.until_decided(job_id, [cheat], verifiers)
    (ended,) = live.challenges()
    assert (ended.status, ended.reason, ended.challenger) == ("won", "incorrect_computation", MARKET.address)
    assert live.deployed.views.stake_of(cheat.address) == STAKE // 2
    assert live.deployed.views.balance_of(MARKET.address) == 3 * BOND + COST
    assert live.deployed.views.balance_of(NEW_ACCOUNT.address) == BOND
    check_refunded(live, job_id)


def test_inconclusive_dispute_returns_bond_and_pays_no_one(
    live: EndingsWorld, job_id: str, cheat: Node, verifiers: list[Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    live.give_account()
    opened(live, cheat, verifiers)
    die_once(monkeypatch, challenger, "_end")
    die_once(monkeypatch, unit_outcomes, "_reject")
    for _ in range(6):  # the trace is revealed, the segment selected, the first committee drawn
        live.turn([cheat], verifiers)
    until_rejected(live, job_id, [cheat], verifiers, TERMS.verdict_seconds + 1)
    for _ in range(3):
        live.turn([cheat], verifiers)

    (ended,) = live.challenges()
    assert (ended.status, ended.reason) == ("undecided", "dispute_undecided")
    assert live.deployed.views.balance_of(MARKET.address) == 3 * BOND
    assert live.calls("drawCommittee").count("final") == 3
    check_undecided(live, job_id, cheat, verifiers, "dispute_undecided")


def test_dispute_refused_by_contract_goes_to_operator(
    live: EndingsWorld, job_id: str, cheat: Node, verifiers: list[Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    live.give_account(1)
    live.until("disputed", job_id, cheat, [cheat], verifiers)  # it is allowed to take the bond first
    live.deployed.anvil.rpc("anvil_impersonateAccount", MARKET.address)
    live.transact(MARKET, "ZenToken", "transfer", wallet(8).address, BOND)  # the tokens are spent elsewhere first
    die_once(monkeypatch, challenger, "_end")
    die_once(monkeypatch, unit_outcomes, "_slash_by_operator")
    waited = update(TxIntent).where(TxIntent.function == "open").values(updated_at=utc_now() - RETRY_AFTER)
    for _ in range(3 * challenger.MAX_REFUSALS):
        try:
            live.step()
        except Killed:
            continue
        live.execute(waited)
        if {unit.status for unit in live.units(job_id, round=0)} == {"rejected"}:
            break
    refused = [intent.status for intent in live.sent() if intent.function == "open"]
    assert refused == ["reverted"] * challenger.MAX_REFUSALS
    (ended,) = live.challenges()
    assert (ended.status, ended.reason) == ("missed", "open_refused")
    check_slashed_by_operator(live, job_id, cheat, "open_refused")


def test_operator_slashes_at_once_when_bond_missing(
    live: EndingsWorld, job_id: str, cheat: Node, verifiers: list[Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    live.give_account(0)
    die_once(monkeypatch, unit_outcomes, "_jail_and_reject")
    until_final(live, job_id, cheat, verifiers)
    assert live.challenges() == []
    assert live.sent() == []
    check_slashed_by_operator(live, job_id, cheat, "bond_missing")
