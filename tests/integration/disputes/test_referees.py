"""Disputes before staked referees: live training and chain, the market's API and keeper."""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from kit.api.clients import Cli
from kit.chain.deployed_chain import OTHER, wallet
from kit.disputes.dispute_fixtures import TERMS, ZEN, Delivered
from kit.disputes.referee_fixtures import REFEREES, RefereeWorld
from kit.verification.live_fixtures import Node
from kit.waiting import wait_until

from market.domain.lifecycle import DisputeStatus
from zoo_compute.base.errors import ApiError, ExitCode
from zoo_compute.chain.disputes import DisputePhase
from zoo_compute.chain.wallet import Wallet as NodeWallet
from zoo_compute.node.agent import NodeAgent
from zoo_compute.node.config import NodeConfig
from zoo_compute.node.disk.workspace import Workspace
from zoo_compute.node.disputes.referee import Verdicts
from zoo_compute.node.execution.executor import Executor
from zoo_protocol.messages import Verdict, sign, typed_data

FIRST, SECOND = wallet(8), wallet(9)
NOWHERE = "http://127.0.0.1:1"
OWNER = "Zoo Labs"


@pytest.mark.parametrize("step", [0, *(pytest.param(step, marks=pytest.mark.long) for step in (2, 3))])
def test_honest_unit_wins_and_challenger_pays(live: RefereeWorld, honest: Node, unit: Delivered, step: int) -> None:
    referees = live.referees()
    opened = live.named(FIRST, unit, honest, step)
    live.discloser(honest).watch()
    assert (live.row(opened).state_cid is not None) == (step > 0)
    assert live.judged(opened, referees) is DisputePhase.CHALLENGER_LOST
    views = live.deployed.views
    assert views.stake_of(honest.address) == 1_000 * ZEN
    assert views.balance_of(FIRST.address) == live.chain_of(FIRST).credits() == 0
    assert live.chain_of(honest).credits() == TERMS.cost_wei
    paid = [account for account in REFEREES if live.chain_of(account).credits() == TERMS.referee_fee_wei]
    assert len(paid) == TERMS.seats
    assert live.row(opened).status == DisputeStatus.CHALLENGER_LOST


@pytest.mark.long
def test_held_payout_is_restored_after_dispute_period(live: RefereeWorld, honest: Node, unit: Delivered) -> None:
    referees = live.referees()
    opened = live.named(FIRST, unit, honest, 1)
    withheld = live.withhold(unit)
    assert withheld > 0
    live.discloser(honest).watch()
    assert live.judged(opened, referees) is DisputePhase.CHALLENGER_LOST
    live.keep()
    assert (live.withheld_of(unit), live.calls("restore")) == (withheld, [])  # others can still dispute it
    live.pass_time(TERMS.period_seconds)
    live.keep()
    assert (live.withheld_of(unit), live.calls("restore")) == (0, ["final"])
    live.keep()
    assert live.calls("restore") == ["final"]


@pytest.mark.long
def test_any_challenger_wins_against_dishonest_provider(live: RefereeWorld, cheat: Node) -> None:
    unit, referees = live.delivered(cheat), live.referees()
    opened = live.named(FIRST, unit, cheat, 1)
    live.discloser(cheat).watch()  # it serves the state that it went on from: the step from there is false all the same
    assert live.judged(opened, referees) is DisputePhase.PROVIDER_LOST
    verdicts = {live.market(FIRST)._connection.get(f"/v1/disputes/{opened.dispute_id}/verdicts")[0]["reason"]}
    assert verdicts == {"step_false"}
    assert live.deployed.views.stake_of(cheat.address) == 500 * ZEN
    assert live.chain_of(FIRST).credits() == TERMS.bond_wei + TERMS.cost_wei


@pytest.mark.long
def test_referee_signs_nothing_for_provider_of_same_owner(
    live: RefereeWorld, honest: Node, unit: Delivered, caplog: pytest.LogCaptureFixture
) -> None:
    others = live.referees()
    live.declare_owner(honest.address, OWNER)
    own = [live.referee(account, owner=OWNER) for account in REFEREES]
    opened = live.named(FIRST, unit, honest, 2)
    live.discloser(honest).watch()
    assert live.judged(opened, own) is DisputePhase.JUDGING
    assert "own_provider" in caplog.text
    assert live.market(FIRST)._connection.get(f"/v1/disputes/{opened.dispute_id}/verdicts") == []
    assert live.judged(opened, others) is DisputePhase.CHALLENGER_LOST


@pytest.mark.long
def test_provider_naming_referee_owner_still_loses(live: RefereeWorld, cheat: Node) -> None:
    unit, _ = live.delivered(cheat), live.referees()
    live.declare_owner(cheat.address, OWNER)
    opened = live.named(FIRST, unit, cheat, 1)
    live.discloser(cheat).watch()
    assert live.judged(opened, [live.referee(one, owner=OWNER) for one in REFEREES]) is DisputePhase.PROVIDER_LOST


@pytest.mark.long
def test_crashed_referee_signs_same_verdict_again(live: RefereeWorld, honest: Node, unit: Delivered) -> None:
    live.referees()
    opened = live.named(FIRST, unit, honest, 2)
    live.discloser(honest).watch()
    live.keep()
    committee = live.chain_of(OTHER).committee(opened.dispute_id)
    member = next(account for account in REFEREES if account.address in committee)
    before = live.referee(member, url=NOWHERE)
    with pytest.MonkeyPatch.context() as patch:  # the market answers during the verdict, and then no more
        patch.setattr(before.market, "dispute", live.market(member).dispute)
        before.watch()
    journal = Verdicts(Workspace(live.directory / member.address).verdicts)
    (signed,) = journal.all()
    assert (signed.provider_correct, signed.delivered) == (True, False)

    class Other(Executor):
        environment_class = live.executor.environment_class  # type: ignore[assignment]

        def __init__(self) -> None:
            pass

        def run(self, *_: Any) -> dict[str, Any]:  # type: ignore[override]
            return {"end_leaf": "0x" + "00" * 32, "payload_sha256": None}

    verdicts = f"/v1/disputes/{opened.dispute_id}/verdicts"
    (written,) = Workspace(live.directory / member.address).verdicts.iterdir()
    content = written.read_bytes()
    written.write_bytes(content[:-1])
    live.referee(member, Other()).watch()  # it has signed, and does not know what: nothing else is signed
    assert live.market(member)._connection.get(verdicts) == []
    written.write_bytes(content)
    live.referee(member, Other()).watch()
    (delivered,) = live.market(member)._connection.get(verdicts)
    assert (delivered["provider_correct"], delivered["signature"]) == (True, signed.signature)
    assert journal.all()[0].delivered


@pytest.mark.long
def test_expired_draw_is_repeated(live: RefereeWorld, honest: Node, unit: Delivered) -> None:
    referees = live.referees()
    opened = live.dispute(FIRST, unit)
    live.watch_of(honest).watch()
    live.chain_of(FIRST).name_step(opened.dispute_id, 1)
    seeded = live.state(opened).seed_block
    live.deployed.anvil.mine(300)  # beyond the opcode BLOCKHASH
    live.deployed.anvil.forget_block_hash(seeded)
    live.keep()
    assert (live.state(opened).phase, live.state(opened).seed_block > seeded) == (DisputePhase.DRAWING, True)
    live.discloser(honest).watch()
    assert live.judged(opened, referees) is DisputePhase.CHALLENGER_LOST
    assert live.calls("drawCommittee") == ["final", "final"]


@pytest.mark.long
def test_concurrent_disputes_end_independently(live: RefereeWorld, honest: Node, cheat: Node, unit: Delivered) -> None:
    referees = live.referees()
    false = live.delivered(cheat)
    opened = [live.named(FIRST, unit, honest, 2), live.named(FIRST, false, cheat, 0), live.dispute(SECOND, false)]
    live.discloser(honest).watch()
    live.discloser(cheat).watch()
    live.watch_of(cheat).watch()
    live.judged(opened[0], referees)
    live.keep()
    outcomes = [live.state(one).phase for one in opened]
    assert outcomes == [DisputePhase.CHALLENGER_LOST, DisputePhase.PROVIDER_LOST, DisputePhase.MOOT]
    assert live.chain_of(SECOND).credits() == TERMS.bond_wei


@pytest.mark.long
def test_referees_of_other_class_abstain_without_penalty(
    live: RefereeWorld, honest: Node, unit: Delivered, caplog: pytest.LogCaptureFixture
) -> None:
    live.referees()
    others = [live.referee(account, environment="0x" + "99" * 32) for account in REFEREES]
    opened = live.named(FIRST, unit, honest, 2)
    for _ in range(TERMS.draws):
        assert live.judged(opened, others) is DisputePhase.JUDGING
        live.pass_time(TERMS.verdict_seconds + 1)
        live.keep()
    assert "environment_mismatch" in caplog.text
    assert live.state(opened).phase is DisputePhase.UNDECIDED
    assert live.deployed.views.stake_of(honest.address) == 1_000 * ZEN
    assert live.chain_of(FIRST).credits() == TERMS.bond_wei


@pytest.mark.parametrize(
    ("shows", "outcome"), [(False, DisputePhase.PROVIDER_LOST), (True, DisputePhase.CHALLENGER_LOST)]
)
def test_missed_response_deadline_is_enforced(
    live: RefereeWorld, honest: Node, unit: Delivered, shows: bool, outcome: DisputePhase
) -> None:
    opened = live.dispute(FIRST, unit)
    if shows:
        live.watch_of(honest).watch()
    live.keep()
    assert live.calls("expire") == []
    live.pass_turn()
    live.keep()
    assert (live.state(opened).phase, live.calls("expire")) == (outcome, ["final"])


@pytest.mark.long
def test_cli_draws_submits_verdicts_and_restores_payout(
    live: RefereeWorld, honest: Node, unit: Delivered, cli: Cli, tmp_path: Path
) -> None:
    referees = live.referees()
    opened = live.dispute(FIRST, unit)
    live.withhold(unit)
    live.watch_of(honest).watch()
    live.chain_of(FIRST).name_step(opened.dispute_id, 2)
    live.follow()
    live.discloser(honest).watch()
    cli.be(SECOND.key)
    drawn = cli.json("dispute", "draw", opened.dispute_id)
    assert (drawn["turn"], len(drawn["committee"])) == ("judging", TERMS.seats)
    assert "quorum-missed" in cli("dispute", "submit", opened.dispute_id, code=ExitCode.FAILED)
    live.follow()
    for referee in referees:
        referee.watch()
    gathered = cli.json("dispute", "verdicts", opened.dispute_id)
    assert {one["referee"] for one in gathered} == set(drawn["committee"])
    assert "step_correct" in cli("dispute", "verdicts", opened.dispute_id)

    files = []
    for account in REFEREES:
        directory = live.directory / account.address
        signed = cli.json("node", "verdicts", "--state-dir", directory)
        assert all(verdict["delivered"] for verdict in signed)
        files.append(tmp_path / f"{account.address}.json")
        files[-1].write_text(json.dumps(signed))
    too_few = cli("dispute", "submit", opened.dispute_id, "--file", files[0], "--file", files[0], code=ExitCode.FAILED)
    assert "quorum-missed" in too_few
    assert "verdicts-malformed" in cli("dispute", "submit", opened.dispute_id, "--file", tmp_path, code=ExitCode.USAGE)
    options = [option for file in files for option in ("--file", file)]
    ended = cli.json("dispute", "submit", opened.dispute_id, *options)
    assert (ended["turn"], ended["signatures"]) == ("challenger_lost", TERMS.seats)

    assert "transaction-refused" in cli("dispute", "restore", unit.unit_id, code=ExitCode.FAILED)
    live.pass_time(TERMS.period_seconds)
    assert cli.json("dispute", "restore", unit.unit_id)["tx"]
    assert live.withheld_of(unit) == 0


@pytest.mark.long
def test_verdict_is_accepted_by_signature_only(live: RefereeWorld, honest: Node, unit: Delivered) -> None:
    live.referees()
    opened = live.named(FIRST, unit, honest, 2)
    member = next(a for a in REFEREES if a.address in live.chain_of(OTHER).committee(opened.dispute_id))
    market = live.market(SECOND)

    def give(signer: Any, provider_correct: bool, draw: int = 0, dispute_id: str = opened.dispute_id) -> str:
        message = Verdict(dispute_id, draw, provider_correct)
        signature = sign(signer.key, typed_data(live.chain_of(OTHER).domain, message))
        given = {"dispute_id": dispute_id, "draw": draw, "provider_correct": provider_correct, "reason": "step_correct"}
        try:
            market.give_verdict({**given, "signature": signature})
        except ApiError as error:
            return error.code
        return "taken"

    assert give(member, True, dispute_id="0x" + "12" * 32) == "dispute-not-found"
    assert give(member, True, draw=1) == "committee-not-judging"
    assert give(SECOND, True) == "not-in-committee"
    assert [give(member, True), give(member, True), give(member, False)] == ["taken", "taken", "verdict-differs"]
    live.keep()
    assert live.state(opened).phase is DisputePhase.JUDGING  # one signature does not make a quorum
    with pytest.raises(ApiError) as refused:
        market.report_state(opened.dispute_id, "bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy")
    assert refused.value.code == "not-disputed-provider"
    disputes = f"{live.api_url}/v1/disputes"  # public
    (listed,) = httpx.get(disputes).json()
    assert (listed["dispute_id"], listed["status"], listed["step"]) == (opened.dispute_id, "judging", 2)
    assert len(httpx.get(f"{disputes}/{opened.dispute_id}").json()["case"]["order"]) == 11
    assert len(httpx.get(f"{disputes}/{opened.dispute_id}/verdicts").json()) == 1


@pytest.mark.long
def test_running_nodes_reveal_and_judge_automatically(live: RefereeWorld, honest: Node, unit: Delivered) -> None:
    live.enlist()
    kept = SimpleNamespace(
        environment_class=live.executor.environment_class,
        last_class="",
        start=lambda: None,
        close=lambda: None,
        run=live.executor.run,
        usable_processes=1,
        network_removed=True,
    )
    configs = [NodeConfig(live.api_url, "provider", live.directory / honest.address, "node", profile="cpu-fp32")]
    configs += [
        NodeConfig(live.api_url, "verifier", live.directory / one.address, one.address[:8], gateways=(live.gateway,))
        for one in REFEREES
    ]
    wallets = [honest.worker.wallet, *(NodeWallet(account.key) for account in REFEREES)]
    agents = [NodeAgent(*pair, lambda *_: kept) for pair in zip(configs, wallets, strict=True)]  # type: ignore[arg-type,return-value]
    threads = [threading.Thread(target=agent.run) for agent in agents]
    for thread in threads:
        thread.start()
    try:
        listed = live.referee(REFEREES[0]).chain
        wait_for(lambda: listed._disputes.functions.refereeCount().call() == len(REFEREES))
        opened = live.dispute(FIRST, unit)
        wait_for(lambda: live.state(opened).phase is DisputePhase.STEP)
        live.chain_of(FIRST).name_step(opened.dispute_id, 2)
        wait_for(lambda: live.keep() or live.state(opened).phase is DisputePhase.CHALLENGER_LOST)  # type: ignore[func-returns-value]
    finally:
        for agent in agents:
            agent.stop()
        for thread in threads:
            thread.join()


def wait_for(condition: Callable[[], bool]) -> None:
    wait_until(condition, seconds=240)
