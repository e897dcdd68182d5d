"""Each kind of dishonest provider next to an honest one: real training, replays, chain.

The dishonest unit is neither verified nor paid, and its stake is slashed by the penalty table.
The honest unit is verified, and its provider keeps its stake.
"""

import json
from datetime import timedelta
from pathlib import Path

import pytest
from kit.verification.live_fixtures import CHEAT_ACCOUNT, HONEST_ACCOUNT, LiveWorld, Node, executors
from kit.verification.verification_fixtures import VerificationWorld
from sqlalchemy import func, select

from market.chain.service import final_events
from market.domain.verification.sampling import OFFENCE_IDS
from market.platform.db.base import utc_now
from market.providers.models import Provider, ProviderEpoch
from market.training.leases.schemas import LeaseKind
from market.verification.samples import service as samples
from zoo_compute.chain.settlements import ChainReader
from zoo_compute.devnet.adversaries.adversary import KINDS, REFUSE, WITHHOLD, executor_of
from zoo_compute.devnet.adversaries.child import FABRICATE_ADAPTERS, LAZY
from zoo_compute.node.execution.executor import Executor
from zoo_protocol.hashing import to_hex
from zoo_protocol.payments.job_record import unit_leaf

ZEN = 10**18
OFFENCES = {WITHHOLD: "withheld_data", REFUSE: "refused_data"}


def be_asked(live: LiveWorld, cheat: Node, honest: Node, kind: str) -> None:
    for _ in range(10):
        live.step()
        if any(sample.status == "drawn" for sample in live.samples()):
            break
    if kind == REFUSE:
        live.work_off(cheat, LeaseKind.REVEAL)
        assert cheat.failures  # it cannot reveal the state: a folder blocks the replay as well
        assert set(cheat.failures) <= {"IsADirectoryError", "ExecutorError"}
    live.work_off(honest, LeaseKind.REVEAL)
    for sample in live.samples():
        live.pass_deadline(sample.id)


# One kind is honest with whole models, one in even rounds: demonstrations (`e2e/test_demo.py`) slash them.
@pytest.mark.parametrize("kind", sorted({*KINDS} - {FABRICATE_ADAPTERS, LAZY}))
def test_dishonest_provider_alone_loses_stake_and_pay(live: LiveWorld, tmp_path: Path, kind: str) -> None:
    with executors(tmp_path, executor_of(kind)) as (cheating,):
        honest = live.provider_node(HONEST_ACCOUNT)
        cheat = live.provider_node(CHEAT_ACCOUNT, cheating)
        verifiers = [live.verifier_node() for _ in range(2)]
        providers = [honest, cheat]
        if kind == "stale":  # it repeats an earlier unit
            live.live_job(providers)
            live.work_off(cheat, LeaseKind.TRAIN)
        job_id = live.train(*providers)
        if kind in OFFENCES:
            be_asked(live, cheat, honest, kind)
            unshown = [sample for sample in live.samples() if sample.status == "drawn"]
            assert {sample.unit_id for sample in unshown} == {unit_of(live, job_id, cheat).id}
        live.decide(job_id, providers, verifiers)

    offence, share = OFFENCES.get(kind, "incorrect_computation"), 50
    assert (unit_of(live, job_id, honest).status, unit_of(live, job_id, honest).reason) == ("verified", None)
    assert (unit_of(live, job_id, cheat).status, unit_of(live, job_id, cheat).reason) == ("rejected", offence)
    (slash,) = live.slashes()
    reader = ChainReader(live.deployed.anvil.url, live.deployed.deployment.contracts)
    on_chain = reader.slash(slash.evidence, offence)
    assert (on_chain.provider, on_chain.amount) == (cheat.address, share * 10 * ZEN)
    with live.database.transaction() as session:
        [slashed] = [event for event in final_events(session, slash.evidence) if event.name == "Slashed"]
    assert slashed.args["offence"] == OFFENCE_IDS[offence]
    document = json.loads(live.storage.get(slash.evidence_cid, max_bytes=2**20))
    assert (document["offence"], document["refusal"]) == (offence, "input_missing" if kind == REFUSE else None)
    views = live.deployed.views
    assert (views.stake_of(honest.address), views.stake_of(cheat.address)) == (1_000 * ZEN, (100 - share) * 10 * ZEN)
    assert live.provider(cheat.address).status == "jailed"
    assert live.provider(honest.address).status == "active"
    _check_what_is_shown(live, job_id, cheat)


def unit_of(live: VerificationWorld, job_id: str, node: Node):  # type: ignore[no-untyped-def]
    (unit,) = live.units(job_id, provider=node.address)
    return unit


def _check_what_is_shown(live: LiveWorld, job_id: str, node: Node) -> None:
    unit = unit_of(live, job_id, node)
    leaf = to_hex(unit_leaf(job_id, unit.round, unit.slot, node.address, unit.trace_root, unit.payload_hash))
    shown = live.call(samples.inclusion, leaf)
    assert shown is not None
    assert shown.trace == unit.leaves
    served = {sample.segment: sample.state_cid for sample in live.samples() if sample.unit_id == unit.id}
    assert shown.states == {segment: cid for segment, cid in served.items() if cid is not None}


def test_undecided_trace_is_not_public(live: LiveWorld) -> None:
    node = live.provider_node(HONEST_ACCOUNT)
    job_id = live.train(node)
    unit = unit_of(live, job_id, node)
    leaf = to_hex(unit_leaf(job_id, unit.round, unit.slot, node.address, unit.trace_root, unit.payload_hash))
    shown = live.call(samples.inclusion, leaf)
    assert shown is not None
    assert (shown.trace, shown.states) == (None, {})


class _GuessingExecutor(Executor):
    def run(self, task, *options, **more):  # type: ignore[no-untyped-def]
        return {"end_leaf": task["start_leaf"], "steps": 0}


def test_echoing_verifier_is_overruled_and_unpaid(live: LiveWorld, tmp_path: Path) -> None:
    with executors(tmp_path, _GuessingExecutor) as (lazy,):
        provider = live.provider_node(HONEST_ACCOUNT)
        echo = live.verifier_node(lazy)
        verifiers = [echo, *(live.verifier_node() for _ in range(2))]
        for _ in range(6):  # until it was sampled at least once
            job_id = live.train(provider)
            live.decide(job_id, [provider], verifiers)
            if any(replay.verifier == echo.address for replay in live.replays()):
                break
    assert unit_of(live, job_id, provider).status == "verified"
    assert live.slashes() == []
    by_verifier = {node.address: set() for node in verifiers}  # type: ignore[var-annotated]
    for replay in live.replays():
        by_verifier[replay.verifier].add(replay.status)
    assert by_verifier[echo.address] == {"overruled"}
    with live.database.transaction() as session:
        paid = dict(
            session.execute(
                select(ProviderEpoch.provider, func.sum(ProviderEpoch.replays)).group_by(ProviderEpoch.provider)
            ).all()
        )
    assert paid.get(echo.address, 0) == 0
    assert sum(paid.get(node.address, 0) for node in verifiers[1:]) > 0


def test_echoing_verifier_is_slashed_on_chain_after_warning(live: LiveWorld, tmp_path: Path) -> None:
    with executors(tmp_path, _GuessingExecutor) as (lazy,):
        provider = live.provider_node(HONEST_ACCOUNT)
        echo = live.staked_verifier_node(CHEAT_ACCOUNT, lazy)
        live.change(Provider, echo.address, warned_at=utc_now() - timedelta(days=31))
        verifiers = [echo, *(live.verifier_node() for _ in range(2))]
        for _ in range(6):  # until it was sampled at least once
            job_id = live.train(provider)
            live.decide(job_id, [provider], verifiers)
            if live.slashes():
                break
    (slash,) = live.slashes()
    reader = ChainReader(live.deployed.anvil.url, live.deployed.deployment.contracts)
    on_chain = reader.slash(slash.evidence, "wrong_replay")
    assert (on_chain.provider, on_chain.amount) == (echo.address, 100 * ZEN)
    views = live.deployed.views
    assert (views.stake_of(echo.address), views.stake_of(provider.address)) == (400 * ZEN, 1_000 * ZEN)
    assert views.is_jailed(echo.address)
    assert live.provider(echo.address).status == "jailed"
    assert unit_of(live, job_id, provider).status == "verified"
    assert {live.provider(node.address).status for node in [provider, *verifiers[1:]]} == {"active"}
    reasons = {replay.reason for replay in live.replays() if replay.verifier == echo.address}
    assert reasons <= {"wrong_replay", "verifier_jailed"}
