"""Disputes judged by staked referees: live training, a live chain, the market's API and keeper in between."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dispute_world import TERMS, Delivered
from fastapi import FastAPI
from live_world import CHEAT_ACCOUNT, HONEST_ACCOUNT, Node, executors
from referee_world import REFEREES, RefereeWorld
from support.anvil import AnvilProcess
from support.chain import OTHER, Chain, chain_settings, deploy_contracts, wallet

from market.domain.lifecycle import DisputeStatus
from market.jobs.models import Unit
from market.settings import Settings
from market.storage.service import Storage
from zoo_compute.devnet.cheat import executor_of
from zoo_compute.dispute_chain import Turn
from zoo_compute.node.executor import Executor
from zoo_compute.node.referee import Verdicts
from zoo_compute.node.workspace import Workspace
from zoo_protocol.messages import Domain

ZEN = 10**18
FIRST, SECOND = wallet(8), wallet(9)
NOWHERE = "http://127.0.0.1:1"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Executor]]:
    with executors(tmp_path_factory.mktemp("executors"), Executor, executor_of("skip-step")) as found:  # type: ignore[arg-type]
        yield found


@pytest.fixture
def executor(running: list[Executor]) -> Executor:
    return running[0]


@pytest.fixture
def chain(own_anvil: AnvilProcess, tmp_path: Path) -> Chain:
    """New contracts: the days that pass in a dispute are not those of other tests."""
    deployment = deploy_contracts(own_anvil)
    own_anvil.mine(3)
    return Chain(own_anvil, deployment, chain_settings(own_anvil, deployment, tmp_path))


@pytest.fixture
def settings(settings: Settings, chain: Chain) -> Settings:
    """The API's chain is this one."""
    names = ("rpc_url", "deployment_file", "acknowledger_key")
    return settings.model_copy(update={name: getattr(chain.settings, name) for name in names})


@pytest.fixture
def live(
    database_url: str,
    settings: Settings,
    ipfs: dict[str, str],
    chain: Chain,
    server: tuple[FastAPI, str],
    app: FastAPI,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> Iterator[RefereeWorld]:
    monkeypatch.setattr("live_world.DOMAIN", Domain(31337, chain.deployment.address("JobEscrow")))
    caplog.set_level(logging.INFO, "zoo_compute")
    storage = Storage(ipfs["rpc"], lookup_timeout=0.2)
    world = RefereeWorld(database_url, storage, settings, chain, ipfs["gateway"], tmp_path)
    world.api_url = server[1]
    yield world
    world.database.dispose()


def provider(live: RefereeWorld, account: Any, executor: Executor) -> Node:
    live.deployed.anvil.rpc("anvil_setBalance", account.address, hex(ZEN))
    return live.provider_node(account, executor)


@pytest.fixture
def honest(live: RefereeWorld, executor: Executor) -> Node:
    return provider(live, HONEST_ACCOUNT, executor)


@pytest.fixture
def cheat(live: RefereeWorld, running: list[Executor]) -> Node:
    """It leaves the last step of every segment away."""
    return provider(live, CHEAT_ACCOUNT, running[1])


@pytest.fixture
def unit(live: RefereeWorld, honest: Node) -> Delivered:
    return live.delivered(honest)


@pytest.mark.parametrize("step", [0, 2, 3])
def test_an_honest_unit_is_judged_right_and_its_accuser_pays(
    live: RefereeWorld, honest: Node, unit: Delivered, executor: Executor, step: int
) -> None:
    referees = live.referees(executor)
    opened = live.named(FIRST, unit, honest, step)
    live.discloser(honest).watch()
    assert (live.row(opened).state_cid is not None) == (step > 0)
    assert live.judged(opened, referees) is Turn.CHALLENGER_LOST
    views = live.deployed.views
    assert views.stake_of(honest.address) == 1_000 * ZEN
    assert views.balance_of(FIRST.address) == live.chain_of(FIRST).credits() == 0
    assert live.chain_of(honest).credits() == TERMS.cost_wei
    paid = [account for account in REFEREES if live.chain_of(account).credits() == TERMS.referee_fee_wei]
    assert len(paid) == TERMS.seats
    assert live.row(opened).status == DisputeStatus.CHALLENGER_LOST


def test_withheld_pay_is_restored_once_the_unit_can_be_disputed_no_more(
    live: RefereeWorld, honest: Node, unit: Delivered, executor: Executor
) -> None:
    referees = live.referees(executor)
    opened = live.named(FIRST, unit, honest, 1)
    withheld = live.withhold(unit)
    assert withheld > 0
    live.discloser(honest).watch()
    assert live.judged(opened, referees) is Turn.CHALLENGER_LOST
    live.keep()
    assert (live.withheld_of(unit), live.calls("restore")) == (withheld, [])  # others can still dispute it
    live.pass_time(TERMS.period_seconds)
    live.keep()
    assert (live.withheld_of(unit), live.calls("restore")) == (0, ["final"])
    live.keep()
    assert live.calls("restore") == ["final"]


def test_a_cheat_is_convicted_by_whoever_disputes_it(live: RefereeWorld, cheat: Node, executor: Executor) -> None:
    unit, referees = live.delivered(cheat), live.referees(executor)
    opened = live.named(FIRST, unit, cheat, 1)
    live.discloser(cheat).watch()  # it serves the state that it went on from: the step from there is false all the same
    assert live.judged(opened, referees) is Turn.PROVIDER_LOST
    verdicts = {live.market(FIRST)._connection.get(f"/v1/disputes/{opened.dispute_id}/verdicts")[0]["reason"]}
    assert verdicts == {"step_false"}
    assert live.deployed.views.stake_of(cheat.address) == 500 * ZEN
    assert live.chain_of(FIRST).credits() == TERMS.bond_wei + TERMS.cost_wei


def test_a_referee_that_crashes_before_it_delivers_signs_the_same_again(
    live: RefereeWorld, honest: Node, unit: Delivered, executor: Executor
) -> None:
    live.referees(executor)
    opened = live.named(FIRST, unit, honest, 2)
    live.discloser(honest).watch()
    live.keep()
    committee = live.chain_of(OTHER).committee(opened.dispute_id)
    member = next(account for account in REFEREES if account.address in committee)
    before = live.referee(member, executor, url=NOWHERE)
    with pytest.MonkeyPatch.context() as patch:  # the market answers while it judges, and then no more
        patch.setattr(before._sources.market, "dispute", live.market(member).dispute)
        before.watch()
    journal = Verdicts(Workspace(live.directory / member.address).verdicts)
    (signed,) = journal.all()
    assert (signed.provider_correct, signed.delivered) == (True, False)

    class Other(Executor):
        """It would find something else now."""

        environment_class = executor.environment_class  # type: ignore[assignment]

        def __init__(self) -> None:
            pass

        def run(self, *_: Any) -> dict[str, Any]:  # type: ignore[override]
            return {"end_leaf": "0x" + "00" * 32, "payload_sha256": None}

    live.referee(member, Other()).watch()
    (delivered,) = live.market(member)._connection.get(f"/v1/disputes/{opened.dispute_id}/verdicts")
    assert (delivered["provider_correct"], delivered["signature"]) == (True, signed.signature)
    assert journal.all()[0].delivered


def test_an_honest_unit_is_judged_right_though_nobody_serves_its_state(
    live: RefereeWorld, honest: Node, unit: Delivered, executor: Executor, caplog: pytest.LogCaptureFixture
) -> None:
    referees = live.referees(executor)
    opened = live.named(FIRST, unit, honest, 2)
    assert live.judged(opened, referees) is Turn.JUDGING
    assert "waiting_for_data" in caplog.text
    live.pass_patience()
    assert live.judged(opened, referees) is Turn.CHALLENGER_LOST


def test_a_cheat_that_withholds_its_state_loses(live: RefereeWorld, cheat: Node, executor: Executor) -> None:
    unit, referees = live.delivered(cheat), live.referees(executor)
    opened = live.named(FIRST, unit, cheat, 2)
    assert live.judged(opened, referees) is Turn.JUDGING
    live.pass_patience()
    assert live.judged(opened, referees) is Turn.PROVIDER_LOST
    (reason,) = {
        verdict["reason"]
        for verdict in live.market(FIRST)._connection.get(f"/v1/disputes/{opened.dispute_id}/verdicts")
    }
    assert reason == "data_withheld"
    assert live.deployed.views.stake_of(cheat.address) == 500 * ZEN


def test_who_withholds_what_its_unit_starts_from_loses(
    live: RefereeWorld, honest: Node, unit: Delivered, executor: Executor
) -> None:
    nowhere = "bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy"
    with live.database.transaction() as session:
        session.query(Unit).filter(Unit.provider == honest.address).update({"start_slot_state_cid": nowhere})
    referees = live.referees(executor)
    opened = live.named(FIRST, unit, honest, 2)
    assert live.judged(opened, referees) is Turn.JUDGING
    live.pass_patience()
    assert live.judged(opened, referees) is Turn.PROVIDER_LOST


def test_states_that_are_gone_are_made_again(
    live: RefereeWorld, honest: Node, unit: Delivered, executor: Executor, caplog: pytest.LogCaptureFixture
) -> None:
    Workspace(live.directory / honest.address).tidy(keep_hours=0)
    referees = live.referees(executor)
    opened = live.named(FIRST, unit, honest, 3)
    live.discloser(honest).watch()
    assert "again: it is disputed" in caplog.text
    assert live.judged(opened, referees) is Turn.CHALLENGER_LOST


def test_a_draw_whose_block_is_too_long_ago_is_made_anew(
    live: RefereeWorld, honest: Node, unit: Delivered, executor: Executor
) -> None:
    referees = live.referees(executor)
    opened = live.dispute(FIRST, unit)
    live.watch_of(honest).watch()
    live.chain_of(FIRST).name_step(opened.dispute_id, 1)
    seeded = live.state(opened).seed_block
    live.deployed.anvil.mine(300)
    live.keep()
    assert (live.state(opened).turn, live.state(opened).seed_block > seeded) == (Turn.DRAWING, True)
    live.discloser(honest).watch()
    assert live.judged(opened, referees) is Turn.CHALLENGER_LOST
    assert live.calls("drawCommittee") == ["final", "final"]


def test_two_disputes_at_once_end_each_as_it_must(
    live: RefereeWorld, honest: Node, cheat: Node, unit: Delivered, executor: Executor
) -> None:
    referees = live.referees(executor)
    false = live.delivered(cheat)
    opened = [live.named(FIRST, unit, honest, 2), live.named(FIRST, false, cheat, 0), live.dispute(SECOND, false)]
    live.discloser(honest).watch()
    live.discloser(cheat).watch()
    live.watch_of(cheat).watch()
    live.judged(opened[0], referees)
    live.keep()
    outcomes = [live.state(one).turn for one in opened]
    assert outcomes == [Turn.CHALLENGER_LOST, Turn.PROVIDER_LOST, Turn.MOOT]
    assert live.chain_of(SECOND).credits() == TERMS.bond_wei


def test_referees_of_another_class_sign_nothing_and_then_nobody_is_punished(
    live: RefereeWorld, honest: Node, unit: Delivered, executor: Executor, caplog: pytest.LogCaptureFixture
) -> None:
    live.referees(executor)
    others = [live.referee(account, executor, environment="0x" + "99" * 32) for account in REFEREES]
    opened = live.named(FIRST, unit, honest, 2)
    for _ in range(TERMS.draws):
        assert live.judged(opened, others) is Turn.JUDGING
        live.pass_time(TERMS.verdict_seconds + 1)
        live.keep()
    assert "environment_mismatch" in caplog.text
    assert live.state(opened).turn is Turn.UNDECIDED
    assert live.deployed.views.stake_of(honest.address) == 1_000 * ZEN
    assert live.chain_of(FIRST).credits() == TERMS.bond_wei


@pytest.mark.parametrize(("shows", "outcome"), [(False, Turn.PROVIDER_LOST), (True, Turn.CHALLENGER_LOST)])
def test_a_turn_that_was_let_pass_is_ended(
    live: RefereeWorld, honest: Node, unit: Delivered, shows: bool, outcome: Turn
) -> None:
    opened = live.dispute(FIRST, unit)
    if shows:
        live.watch_of(honest).watch()
    live.keep()
    assert live.calls("expire") == []
    live.pass_turn()
    live.keep()
    assert (live.state(opened).turn, live.calls("expire")) == (outcome, ["final"])
