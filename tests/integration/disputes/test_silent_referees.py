"""Silent referees do not protect a dishonest provider: live training, chain and nodes."""

from typing import Any

import pytest
from kit.api.clients import Cli
from kit.chain.deployed_chain import OTHER, wallet
from kit.disputes.dispute_fixtures import TERMS, ZEN
from kit.disputes.referee_fixtures import REFEREES, RefereeWorld
from kit.killed import Killed, kill_at_transactions
from kit.verification.live_fixtures import Node

from market.domain.network import DEVNET
from market.verification.disputes import referee_list
from worker.chain_handlers import INTENT_HANDLERS
from zoo_compute.base.errors import ApiError, ExitCode
from zoo_compute.chain.disputes import DisputePhase, Opened
from zoo_compute.node.disputes.referee import Referee

pytestmark = pytest.mark.long

STAKE = 1_000 * ZEN
FIRST = wallet(8)
NOWHERE = "http://127.0.0.1:1"
LATE = TERMS.verdict_seconds - 60  # after the draw: in the last minute of a committee's time


def listed(live: RefereeWorld) -> set[str]:
    contract, now = live.chain_of(OTHER)._disputes.functions, live.chain_of(OTHER).latest_block().timestamp
    return {account.address for account in REFEREES if contract.listedUntil(account.address).call() >= now}


def disputed(live: RefereeWorld, cheat: Node) -> tuple[list[Referee], Opened]:
    """Enlist referees and bring a dispute before them."""
    referees = live.referees()
    opened = live.named(FIRST, live.delivered(cheat), cheat, 0)
    live.discloser(cheat).watch()
    live.keep()
    assert live.state(opened).phase is DisputePhase.JUDGING
    return referees, opened


def committee(live: RefereeWorld, opened: Opened) -> list[str]:
    return live.chain_of(OTHER).committee(opened.dispute_id)


def of(live: RefereeWorld, address: str, url: str | None = None) -> Referee:
    (account,) = [account for account in REFEREES if account.address == address]
    return live.referee(account, url=url)


def all_referees() -> set[str]:
    return {account.address for account in REFEREES}


def test_unresponsive_committee_is_replaced_and_dispute_upheld(live: RefereeWorld, cheat: Node) -> None:
    referees, opened = disputed(live, cheat)
    silent = set(committee(live, opened))
    live.pass_time(TERMS.verdict_seconds + 1)
    live.keep()
    assert live.calls("replaceCommittee") == ["final"]
    assert listed(live) == all_referees() - silent
    live.keep()
    second = set(committee(live, opened))
    assert live.state(opened).draw == 1
    assert len(second & silent) <= 1  # 30 tries miss one of three others in 1 of 80 draws; the reserve fills its seat

    assert live.judged(opened, referees) is DisputePhase.PROVIDER_LOST
    assert live.deployed.views.stake_of(cheat.address) == STAKE // 2
    assert live.chain_of(FIRST).credits() == TERMS.bond_wei + TERMS.cost_wei
    assert listed(live) == all_referees()  # their nodes run, so they are on the list again
    assert {live.deployed.views.stake_of(account) for account in silent} == {500 * ZEN}


def test_delisted_referee_loses_place_when_not_running(live: RefereeWorld, cheat: Node) -> None:
    _, opened = disputed(live, cheat)
    silent = set(committee(live, opened))
    live.pass_time(TERMS.verdict_seconds + 1)
    live.keep()
    referee_list.evict_idle(live.database, live.deployed.views)  # not while a committee is to be drawn
    live.keep()
    assert live.state(opened).phase is DisputePhase.JUDGING
    assert set(referee_list.eligible(live.database, live.deployed.views, [])) == all_referees() - silent
    for _ in range(2):
        referee_list.evict_idle(live.database, live.deployed.views)
        live.keep()
    contract = live.chain_of(OTHER)._disputes.functions
    assert {one for one in all_referees() if contract.isReferee(one).call()} == all_referees() - silent


def test_watcher_submits_incomplete_quorum_to_keep_signer_listed(live: RefereeWorld, cheat: Node) -> None:
    _, opened = disputed(live, cheat)
    signer, *silent = committee(live, opened)
    of(live, signer).watch()
    live.keep()
    assert live.calls("submitVerdict") == []  # there is time for the others
    live.pass_time(LATE)
    live.keep()
    live.keep()
    assert live.calls("submitVerdict") == ["final"]
    assert live.state(opened).signed == {0}
    live.pass_time(120)
    live.keep()
    assert listed(live) == all_referees() - set(silent)
    live.keep()
    assert not set(committee(live, opened)) & set(silent)


def test_nodes_submit_deciding_signatures_during_outage(
    live: RefereeWorld, cheat: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, opened = disputed(live, cheat)
    quorum = [of(live, address, NOWHERE) for address in committee(live, opened)[: TERMS.quorum]]

    def known_dispute(dispute_id: str) -> dict[str, Any]:  # answer as the market did before its outage
        found: dict[str, Any] = live.market(FIRST).dispute(dispute_id)
        return found

    for referee in quorum:
        monkeypatch.setattr(referee.market, "dispute", known_dispute)
        referee.watch()
    assert live.state(opened).signed == set()
    live.pass_time(LATE)
    first = committee(live, opened)[0]
    quorum[0].watch()
    sent = live.deployed.anvil.rpc("eth_getTransactionCount", first, "latest")
    quorum[0].watch()
    assert live.deployed.anvil.rpc("eth_getTransactionCount", first, "latest") == sent  # once is enough
    assert (live.state(opened).phase, live.state(opened).signed) == (DisputePhase.JUDGING, {0})
    quorum[1].watch()
    assert live.state(opened).phase is DisputePhase.PROVIDER_LOST
    assert live.deployed.views.stake_of(cheat.address) == STAKE // 2


def test_all_unresponsive_committees_return_bond_without_penalty(live: RefereeWorld, cheat: Node, cli: Cli) -> None:
    _, opened = disputed(live, cheat)
    for _ in range(TERMS.draws):
        live.pass_time(TERMS.verdict_seconds + 1)
        live.keep()
        live.keep()
    assert live.state(opened).phase is DisputePhase.UNDECIDED
    assert live.calls("replaceCommittee") == ["final"] * TERMS.draws
    assert live.deployed.views.stake_of(cheat.address) == STAKE
    assert live.chain_of(FIRST).credits() == TERMS.bond_wei
    cli.be(OTHER.key)
    shown = cli.json("dispute", "status", opened.dispute_id)
    assert (shown["turn"], shown["reason"], shown["draw"]) == ("undecided", "no_quorum", TERMS.draws - 1)


def test_dispute_without_referees_ends_at_once_with_reason(live: RefereeWorld, cheat: Node, cli: Cli) -> None:
    _, opened = disputed(live, cheat)
    for account in REFEREES:
        live.transact(account, "Disputes", "resign")
    live.pass_time(TERMS.verdict_seconds + 1)
    for _ in range(TERMS.draws):
        live.keep()
    assert live.state(opened).phase is DisputePhase.UNDECIDED
    cli.be(OTHER.key)
    assert cli.json("dispute", "status", opened.dispute_id)["reason"] == "too_few_referees"
    assert "too_few_referees" in cli("dispute", "status", opened.dispute_id)


@pytest.mark.parametrize("is_sent", [False, True])
def test_market_killed_before_redraw_resumes(
    live: RefereeWorld, cheat: Node, monkeypatch: pytest.MonkeyPatch, is_sent: bool
) -> None:
    """The process ends just before or after a call leaves, without a record of it."""
    referees, opened = disputed(live, cheat)
    live.pass_time(TERMS.verdict_seconds + 1)
    killed = kill_at_transactions(monkeypatch, is_sent)
    for _ in range(12):
        try:
            live.keep()
        except Killed:
            live._sender = live.deployed.sender(live.database, INTENT_HANDLERS)
        if (live.state(opened).phase, live.state(opened).draw) == (DisputePhase.JUDGING, 1):
            break
    monkeypatch.undo()
    assert len(killed) == 2  # replaced, and drawn
    live.keep()
    assert live.calls("replaceCommittee") == ["final"]
    assert live.judged(opened, referees) is DisputePhase.PROVIDER_LOST
    live.keep()
    assert live.calls("replaceCommittee") == ["final"]  # nothing more once it is decided


def test_cli_submits_votes_and_redraws_committee(live: RefereeWorld, cheat: Node, cli: Cli) -> None:
    _, opened = disputed(live, cheat)
    signer, *silent = committee(live, opened)
    of(live, signer).watch()
    cli.be(OTHER.key)
    assert "--partial" in cli("dispute", "submit", opened.dispute_id, code=ExitCode.FAILED)
    kept = cli.json("dispute", "submit", opened.dispute_id, "--partial")
    assert (kept["turn"], kept["signatures"]) == ("judging", 1)
    assert cli.json("dispute", "status", opened.dispute_id)["signed"] == [signer]
    assert signer in cli("dispute", "status", opened.dispute_id)
    assert "transaction-refused" in cli("dispute", "end", opened.dispute_id, code=ExitCode.FAILED)
    live.pass_time(TERMS.verdict_seconds + 1)
    assert cli.json("dispute", "end", opened.dispute_id)["turn"] == "drawing"
    assert listed(live) == all_referees() - set(silent)
    live.deployed.anvil.mine(DEVNET.disputes.seed_delay_blocks + 1)
    assert cli.json("dispute", "draw", opened.dispute_id)["draw"] == 1


def test_signature_for_first_committee_is_invalid_for_second(live: RefereeWorld, cheat: Node) -> None:
    _, opened = disputed(live, cheat)
    signer = committee(live, opened)[0]
    of(live, signer).watch()
    (given,) = live.market(FIRST)._connection.get(f"/v1/disputes/{opened.dispute_id}/verdicts")
    live.pass_time(LATE)
    live.keep()
    live.keep()
    live.pass_time(120)
    for _ in range(3):
        live.keep()
    assert (live.state(opened).phase, live.state(opened).draw, live.state(opened).signed) == (
        DisputePhase.JUDGING,
        1,
        set(),
    )
    assert live.market(FIRST)._connection.get(f"/v1/disputes/{opened.dispute_id}/verdicts") == []
    with pytest.raises(ApiError) as refused:
        live.market(FIRST).give_verdict({**given, "dispute_id": opened.dispute_id})
    assert refused.value.code == "committee-not-judging"
