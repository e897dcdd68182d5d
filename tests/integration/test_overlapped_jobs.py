"""Jobs with ``round_delay`` to their end: replayed, settled and claimed on chain, and disputed before real referees.

Their units start from a payload that no checkpoint has yet; one here also gets back what was left out.
"""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from court_world import MARKET
from dispute_world import TERMS, ZEN, Delivered
from endings_world import EndingsWorld
from fastapi import FastAPI
from live_world import CHEAT_ACCOUNT, HONEST_ACCOUNT, Node, executors
from support.anvil import AnvilProcess
from support.chain import Chain, Wallet, chain_settings, deploy_contracts, wallet

from market.jobs import aggregation
from market.jobs.lease_schemas import LeaseKind
from market.jobs.models import Unit
from market.settings import Settings
from market.storage.service import Storage
from training_gym.aggregation import Aggregate, Verdict, aggregate
from zoo_compute.devnet.cheat import executor_of
from zoo_compute.dispute_chain import Turn
from zoo_compute.gateway import GatewayClient
from zoo_compute.node.executor import Executor
from zoo_compute.settlement_check import Verification, check_batches, fetch_record
from zoo_compute.settlement_events import ChainReader
from zoo_protocol.messages import Domain
from zoo_protocol.record import JobRecord

ACCUSER = wallet(8)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Executor]]:
    with executors(tmp_path_factory.mktemp("executors"), Executor, executor_of("skip-step")) as found:  # type: ignore[arg-type]
        yield found


@pytest.fixture
def chain(own_anvil: AnvilProcess, tmp_path: Path) -> Chain:
    """New contracts: the days that pass here are not those of other tests."""
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
) -> Iterator[EndingsWorld]:
    monkeypatch.setattr("live_world.DOMAIN", Domain(31337, chain.deployment.address("JobEscrow")))
    caplog.set_level(logging.INFO, "zoo_compute")
    world = EndingsWorld(
        database_url, Storage(ipfs["rpc"], lookup_timeout=0.2), settings, chain, ipfs["gateway"], tmp_path
    )
    world.api_url = server[1]
    world.be_patient()
    yield world
    world.database.dispose()


def provider(live: EndingsWorld, account: Wallet, executor: Executor) -> Node:
    live.deployed.anvil.rpc("anvil_setBalance", account.address, hex(ZEN))
    return live.provider_node(account, executor)


@pytest.fixture
def honest(live: EndingsWorld, running: list[Executor]) -> Node:
    return provider(live, HONEST_ACCOUNT, running[0])


def close(live: EndingsWorld, job_id: str) -> None:
    before = live.read(job_id).current_round
    aggregation.aggregate(live.database, live.settings, live.storage, job_id)
    assert live.read(job_id).current_round == before + 1
    live.dispatch(job_id)


def leave_out(place: int) -> Any:
    """Joining as ever, but what stands at this place does not count: too few take part for one to be an outlier."""

    def without(spec: Any, parameters: Any, payloads: Mapping[int, bytes], weights: Any, state: Any) -> Aggregate:
        others = {at: data for at, data in payloads.items() if at != place}
        joined = aggregate(spec, parameters, others, {at: weights[at] for at in others}, state)
        verdicts = joined.verdicts | {place: Verdict(False, "krum_outlier", "a test")}
        return replace(joined, verdicts=dict(sorted(verdicts.items())))

    return without


def test_a_job_with_overlapped_rounds_is_settled_and_claimed_also_where_a_payload_was_left_out(
    live: EndingsWorld, honest: Node, running: list[Executor], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = provider(live, CHEAT_ACCOUNT, running[0])
    verifiers = [live.verifier_node(running[0]) for _ in range(2)]
    job_id = live.job_of([honest, other], rounds=4, round_delay=1)
    live.train_all(job_id, honest, other)
    with monkeypatch.context() as patch:
        patch.setattr(aggregation, "join", leave_out(1))
        close(live, job_id)
    while live.read(job_id).status == "running":
        live.train_all(job_id, honest, other)
        close(live, job_id)
    live.decide(job_id, [honest, other], verifiers)

    units = live.units(job_id)
    assert [(unit.round, unit.slot, unit.status) for unit in units] == [
        (round_, slot, "verified") for round_ in range(4) for slot in range(2)
    ]
    assert [unit.start_eager_payload_cid is not None for unit in units] == [False] * 2 + [True] * 6
    restored = {(unit.round, unit.slot): unit.start_restored_payload_cid for unit in units}
    [left_out] = live.units(job_id, round=0, slot=1)
    assert {place: cid for place, cid in restored.items() if cid} == {(2, 1): left_out.payload_cid}
    assert left_out.included is False
    assert (live.slashes(), honest.failures, other.failures) == ([], [], [])

    job = live.settle_job(job_id)
    total = 4 * live.unit_pay(job)
    assert [live.claim(honest), live.claim(other), live.claim(honest)] == [total, total, 0]  # each once
    job = live.check_paid(job_id)
    check_receipt(live, job_id)
    assert job.reason == "completed"


def check_receipt(live: EndingsWorld, job_id: str) -> None:
    """What outsiders find on chain and in storage is the same."""
    reader, result = ChainReader(live.deployed.anvil.url, live.deployed.deployment.contracts), Verification()
    total = reader.settlement(job_id)
    with GatewayClient([live.gateway]) as gateway:
        record = JobRecord.from_bytes(fetch_record(gateway, total.parts[-1].record))
        check_batches(result, reader, gateway, record, total)
    assert result.findings == []
    eager = [unit.start_eager_payload_cid for unit in record.units]
    assert eager == [unit.start_eager_payload_cid for unit in live.units(job_id)]


def ahead(live: EndingsWorld, node: Node, second: Executor | None = None) -> Unit:
    """The node's unit of round 1, trained before round 0 was joined, by the ``second`` executor if one is given."""
    job_id = live.job_of([node], rounds=2, round_delay=1)
    live.work_off(node, LeaseKind.TRAIN)
    live.dispatch(job_id)
    if second is not None:
        node.executor, node.worker = second, replace(node.worker, executor=second)
    live.work_off(node, LeaseKind.TRAIN)
    [unit] = live.units(job_id, round=1)
    assert unit.start_eager_payload_cid == live.units(job_id, round=0)[0].payload_cid
    return unit


@pytest.mark.parametrize("step", [0, 3])
def test_referees_find_an_honest_unit_right_that_starts_from_a_payload_taken_ahead(
    live: EndingsWorld, honest: Node, running: list[Executor], step: int
) -> None:
    delivered: Delivered = live.included(ahead(live, honest))
    referees = live.referees(running[0])
    disputed = live.named(ACCUSER, delivered, honest, step)
    live.discloser(honest).watch()
    assert live.judged(disputed, referees) is Turn.CHALLENGER_LOST
    assert live.deployed.views.stake_of(honest.address) == 1_000 * ZEN
    live.check_books()


def test_a_cheat_in_a_unit_that_starts_from_a_payload_taken_ahead_is_convicted_and_the_one_before_is_paid(
    live: EndingsWorld, honest: Node, running: list[Executor]
) -> None:
    live.give_account()
    live.referees_here = live.referees(running[0])
    verifiers = [live.verifier_node(running[0]) for _ in range(2)]
    false = ahead(live, honest, running[1])
    live.until_decided(false.job_id, [honest], verifiers)

    before, false = live.units(false.job_id)
    assert (before.status, false.status, false.reason) == ("verified", "rejected", "incorrect_computation")
    (slash,) = live.slashes()
    assert (slash.path, slash.evidence) == ("dispute", false.dispute_id)
    assert live.deployed.views.stake_of(honest.address) == 500 * ZEN
    assert live.deployed.views.balance_of(MARKET.address) == 3 * TERMS.bond_wei + TERMS.cost_wei
    live.cancel(false.job_id)
    job = live.settle_job(false.job_id)
    assert live.claim(honest) == live.unit_pay(job)
    live.check_paid(false.job_id)
