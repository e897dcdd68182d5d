"""Disputes that the market opens, with live training, replays, referees and ledger.

A committee decides: the contract slashes the provider, or the market loses its bond and the unit is paid.
If no committee can decide, the operator slashes and records the reason.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from kit.chain.deployed_chain import OTHER, wallet
from kit.disputes.adjudication_fixtures import MARKET, QuorumWorld, WrongExecutor, listed_referees, world_with_quorum  # noqa: F401  (fixtures)
from kit.disputes.dispute_fixtures import TERMS, ZEN
from kit.disputes.referee_fixtures import REFEREES, provider
from kit.killed import Killed, kill_at_transactions
from kit.payments.settlement_helpers import deposit, settle_and_claim
from kit.verification.live_fixtures import Node, executors

from market.chain.service import final_events
from market.domain.network import DEVNET
from market.domain.verification.dispute_routes import DecidedBy as Decider
from market.domain.verification.dispute_routes import Reason, Route
from market.platform.db.base import utc_now
from market.providers import service as providers
from market.training.leases.schemas import LeaseKind
from market.training.units import service as units
from market.verification.decisions.dispute_routing import Adjudicator
from market.verification.disputes.challenger import Challenger
from market.verification.windows.models import Window
from zoo_compute.chain.disputes import DisputePhase
from zoo_compute.chain.settlements import ChainReader
from zoo_compute.node.execution.executor import Executor
from zoo_protocol.hashing import to_hex
from zoo_protocol.payments.job_record import leaf_of
from zoo_protocol.payments.receipt import JobSettlement

pytestmark = pytest.mark.long

STAKE, BOND, COST = 1_000 * ZEN, TERMS.bond_wei, TERMS.cost_wei
OTHER_CHEAT = wallet(9)


@pytest.fixture(scope="module")
def wrong_executor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Executor]:
    with executors(tmp_path_factory.mktemp("wrong"), WrongExecutor) as running:
        yield running[0]


@pytest.fixture
def dissenters(live: QuorumWorld, wrong_executor: Executor) -> list[Node]:
    return [live.verifier_node(wrong_executor) for _ in range(2)]


def unit_of(live: QuorumWorld, job_id: str, node: Node) -> Any:
    (unit,) = live.units(job_id, provider=node.address)
    return unit


def check_upheld(live: QuorumWorld, job_id: str, cheat: Node, reason: str = "incorrect_computation") -> None:
    unit = unit_of(live, job_id, cheat)
    assert (unit.status, unit.reason) == ("rejected", reason)
    [slash] = [slash for slash in live.slashes() if slash.provider == cheat.address]
    assert (slash.path, slash.path_reason, slash.offence) == ("dispute", None, "incorrect_computation")
    assert slash.evidence == unit.dispute_id
    reader = ChainReader(live.deployed.anvil.url, live.deployed.deployment.contracts)
    on_chain = reader.slash(slash.evidence, slash.offence)
    assert (on_chain.provider, on_chain.amount, on_chain.tx) == (cheat.address, STAKE // 2, slash.tx)
    assert slash.amount_wei == STAKE // 2
    assert reader.upheld_dispute(slash.evidence)[1] == slash.tx
    assert live.deployed.views.stake_of(cheat.address) == STAKE // 2
    assert live.provider(cheat.address).status == "jailed"
    assert live.provider(cheat.address).disputed_at is None
    assert live.intents("slash") == []  # the operator's key had no part in it
    (recorded,) = live.record(job_id).slashes
    assert (recorded.path, recorded.evidence) == ("dispute", unit.dispute_id)


@pytest.mark.usefixtures("with_referees")
def test_committee_slashes_dishonest_provider_and_pays_honest_one(
    live: QuorumWorld, honest: Node, cheat: Node, verifiers: list[Node]
) -> None:
    job_id = live.train(honest, cheat)
    deposit(live, job_id)
    before = live.count_sent_by(cheat.address)
    unit = live.until("disputed", job_id, cheat, [honest, cheat], verifiers)
    assert live.provider(cheat.address).disputed_at is not None
    assert live.call(providers.working_among, live.settings, [cheat.address, honest.address]) == {honest.address}
    live.until_decided(job_id, [honest, cheat], verifiers)

    check_upheld(live, job_id, cheat)
    assert unit_of(live, job_id, honest).status == "verified"
    by_market = [intent.function for intent in live.sent() if intent.status == "final"]
    assert by_market == ["approve", "open", "nameStep", "withdraw"]
    kept = [intent.function for intent in live.intents("keep_dispute") if intent.status == "final"]
    assert kept == ["drawCommittee", "submitVerdict"]
    assert live.count_sent_by(cheat.address) - before == 1  # it showed its trace: five in all
    assert live.deployed.views.balance_of(MARKET.address) == 3 * BOND + COST
    (ended,) = live.challenges()
    assert (ended.status, ended.reason, ended.dispute_id) == ("won", "incorrect_computation", unit.dispute_id)
    assert {replay.status for replay in live.replays()} <= {"agreed", "disagreed"}
    live.check_books()
    check_paid(live, job_id, honest, cheat)


def check_paid(live: QuorumWorld, job_id: str, honest: Node, cheat: Node) -> None:
    """Check that only the honest unit is paid and the payer has the rest."""
    paid = settle_and_claim(live, [job_id], [honest, cheat])
    assert paid.claimed == {honest.address: paid.unit_pay, cheat.address: 0}
    gross = 25 * ZEN // 1_000  # 36 seconds at 2.5 ZEN an hour
    assert (paid.unit_pay, paid.fees) == (gross * 95 // 100, gross * 5 // 100)
    assert paid.refunded == paid.deposited - gross
    statuses = {unit.provider: unit.status for unit in live.record(job_id).units}
    assert statuses == {honest.address: "verified", cheat.address: "rejected"}


@pytest.mark.usefixtures("with_referees")
def test_rejected_dispute_costs_market_bond_and_pays_unit(
    live: QuorumWorld, honest: Node, dissenters: list[Node]
) -> None:
    job_id = live.train(honest)
    live.until("disputed", job_id, honest, [honest], dissenters)
    live.until("checking", job_id, honest, [honest], dissenters)  # rejected: the other mismatches are replayed again
    assert live.provider(honest.address).disputed_at is None
    fair = [live.verifier_node() for _ in range(2)]
    live.until_decided(job_id, [honest], [*dissenters, *fair])

    unit = unit_of(live, job_id, honest)
    assert (unit.status, unit.reason) == ("verified", None)
    assert live.deployed.views.stake_of(honest.address) == STAKE
    assert live.deployed.views.balance_of(MARKET.address) == 2 * BOND
    (ended,) = live.challenges()
    assert (ended.status, ended.reason) == ("lost", "step_found_correct")
    assert live.deployed.views.balance_of(honest.address) + live.chain_of(honest).credits() == 1_000 * ZEN + COST
    assert live.slashes() == []
    suspended = {live.provider(verifier.address).status for verifier in dissenters}
    assert suspended == {"demoted"}  # a first case costs no more
    statuses = {replay.verifier: set() for replay in live.replays()}  # type: ignore[var-annotated]
    for replay in live.replays():
        statuses[replay.verifier].add(replay.status)
    assert all(statuses[verifier.address] == {"overruled"} for verifier in dissenters)
    assert all(statuses[node.address] == {"agreed"} for node in fair if node.address in statuses)
    live.check_books()


@pytest.mark.usefixtures("with_referees")
def test_unresponsive_provider_loses_after_response_deadline(
    live: QuorumWorld, cheat: Node, verifiers: list[Node]
) -> None:
    job_id = live.train(cheat)
    for _ in range(20):
        live.turn([], verifiers)
        live.work_off(cheat, LeaseKind.REVEAL)
        if any(intent.function == "open" and intent.status == "final" for intent in live.sent()):
            break
    live.pass_turn()
    live.until_decided(job_id, [], verifiers)
    check_upheld(live, job_id, cheat, "trace_not_shown")
    assert [intent.function for intent in live.sent() if intent.status == "final"] == ["approve", "open", "withdraw"]
    assert live.deployed.views.balance_of(MARKET.address) == 3 * BOND + COST
    live.check_books()


def check_slashed_by_operator(live: QuorumWorld, cheat: Node, reason: str) -> None:
    (slash,) = live.slashes()
    assert (slash.path, slash.path_reason) == ("operator", reason)
    assert live.deployed.views.stake_of(cheat.address) == STAKE // 2
    live.check_books()


def test_operator_slashes_with_reason_when_referees_are_few(
    live: QuorumWorld, cheat: Node, verifiers: list[Node]
) -> None:
    live.until_decided(live.train(cheat), [cheat], verifiers)
    check_slashed_by_operator(live, cheat, "too_few_referees")
    assert live.challenges() == live.sent() == []


def test_operator_slashes_in_class_with_few_referees(live: QuorumWorld, cheat: Node, verifiers: list[Node]) -> None:
    """A committee would stay inconclusive, as most of its members sign nothing."""
    live.referees_here = live.referees(of_class=2)
    live.step()
    live.until_decided(live.train(cheat), [cheat], verifiers)
    check_slashed_by_operator(live, cheat, "too_few_of_class")
    assert live.challenges() == live.sent() == []
    assert live.provider(cheat.address).status == "jailed"


def test_committee_decides_when_class_has_enough_referees(
    live: QuorumWorld, cheat: Node, verifiers: list[Node]
) -> None:
    live.referees_here = live.referees(of_class=len(REFEREES) - 1)
    live.step()
    job_id = live.train(cheat)
    live.until_decided(job_id, [cheat], verifiers)
    check_upheld(live, job_id, cheat)


@pytest.mark.usefixtures("with_referees")
def test_referees_of_provider_owner_form_no_committee(live: QuorumWorld, honest: Node) -> None:
    job_id = live.train(honest)
    unit = live.call(units.unit_facts, unit_of(live, job_id, honest).id)
    adjudicator = Adjudicator(Challenger(MARKET.address, live.deployed.views, TERMS), enabled=True)

    def route() -> Route:
        return adjudicator.route(live.database, unit, Window(committed_at=utc_now()), "incorrect_computation")

    assert route() == Route(Decider.DISPUTE)
    for account in REFEREES[TERMS.seats - 1 :]:
        live.declare_owner(account.address, "Zoo Labs")
    assert route() == Route(Decider.DISPUTE)  # the provider has no owner
    live.declare_owner(honest.address, "Zoo Labs")
    assert route() == Route(Decider.OPERATOR, Reason.TOO_FEW_REFEREES)


@pytest.mark.usefixtures("with_referees")
def test_two_disputes_are_upheld(live: QuorumWorld, cheat: Node, cheating: Executor, verifiers: list[Node]) -> None:
    second = provider(live, OTHER_CHEAT, cheating)
    job_id = live.train(cheat, second)
    live.until_decided(job_id, [cheat, second], verifiers)
    for node in (cheat, second):
        unit = unit_of(live, job_id, node)
        assert (unit.status, unit.reason) == ("rejected", "incorrect_computation")
        assert live.deployed.views.stake_of(node.address) == STAKE // 2
    assert [challenge.status for challenge in live.challenges()] == ["won", "won"]
    assert live.deployed.views.balance_of(MARKET.address) == 3 * BOND + 2 * COST
    live.check_books()


@pytest.mark.usefixtures("with_referees")
def test_operator_decides_when_market_missed_period(live: QuorumWorld, cheat: Node, verifiers: list[Node]) -> None:
    live.deployed.anvil.rpc("anvil_setBalance", MARKET.address, "0x0")  # nothing can be sent
    job_id = live.train(cheat)
    live.until("disputed", job_id, cheat, [cheat], verifiers)
    live.pass_time(TERMS.period_seconds)
    live.until("rejected", job_id, cheat, [cheat], verifiers)
    live.step()
    check_slashed_by_operator(live, cheat, "period_over")
    assert [challenge.status for challenge in live.challenges()] == ["missed"]


@pytest.mark.usefixtures("with_referees")
def test_settled_unit_is_forfeited_when_other_challenger_wins(live: QuorumWorld, cheat: Node) -> None:
    unit = live.delivered(cheat)
    opened = live.named(wallet(8), unit, cheat, 1)
    withheld, payer = live.withhold(unit), unit.order.payer
    assert withheld > 0
    before = live.deployed.views.balance_of(payer)
    live.discloser(cheat).watch()
    assert live.judged(opened, list(live.referees_here)) is DisputePhase.PROVIDER_LOST
    live.pass_time(DEVNET.challenge_seconds + 1)
    live.keep()
    if live.deployed.views.balance_of(payer) == before:  # otherwise the verdict returned it, after its claims opened
        # Of no batch that this market knows: it is left to others.
        live.transact(OTHER, "JobEscrow", "returnStruck", to_hex(leaf_of(unit.unit)))
        live.keep()
    assert live.deployed.views.balance_of(payer) > before + withheld  # with the fee
    reader = ChainReader(live.deployed.anvil.url, live.deployed.deployment.contracts)
    assert reader.settled(unit.unit.jobId).struck == {to_hex(leaf_of(unit.unit))}
    with live.database.transaction() as session:
        of_job = [(event.name, event.args, event.tx_hash) for event in final_events(session, unit.unit.jobId)]
    assert JobSettlement.from_events(of_job).struck == reader.settled(unit.unit.jobId).struck
    found = live.provider(cheat.address)
    assert (found.status, found.reason) == ("jailed", "slashed")
    undecided = [row for row in live.units(unit.unit.jobId, provider=cheat.address) if row.status == "checking"]
    assert undecided == []
    assert live.slashes() == []  # another account opened it
    live.check_books()


@pytest.mark.parametrize("is_sent", [False, True])
@pytest.mark.usefixtures("with_referees")
def test_market_killed_at_any_transaction_resumes_without_repetition(
    live: QuorumWorld, cheat: Node, verifiers: list[Node], monkeypatch: pytest.MonkeyPatch, is_sent: bool
) -> None:
    """The process ends just before or after a transaction leaves, without a record of it."""
    job_id, before = live.train(cheat), live.count_sent_by(MARKET.address)
    killed = kill_at_transactions(monkeypatch, is_sent)
    for _ in range(60):
        try:
            live.until_decided(job_id, [cheat], verifiers)
            break
        except Killed:
            live.restart()
    monkeypatch.undo()
    check_upheld(live, job_id, cheat)
    sent = [intent.function for intent in live.sent() if intent.status == "final"]
    assert sent == ["approve", "open", "nameStep", "withdraw"]
    assert live.count_sent_by(MARKET.address) - before == 4
    assert len(killed) >= 8  # windows, seeds, draw and verdict too
    assert live.deployed.views.balance_of(MARKET.address) == 3 * BOND + COST
    live.check_books()
