"""Jobs with ``round_delay`` to their end: replayed, settled, claimed and disputed.

Their units start from a payload that no checkpoint has yet; one also restores an excluded payload.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from kit.chain.deployed_chain import Wallet, wallet
from kit.disputes.adjudication_fixtures import MARKET
from kit.disputes.dispute_fixtures import TERMS, ZEN, Delivered, settings_of_disputes  # noqa: F401  (fixtures)
from kit.disputes.job_end_fixtures import EndingsWorld, world_of_endings  # noqa: F401  (fixtures)
from kit.disputes.referee_fixtures import honest_node, provider  # noqa: F401  (fixtures)
from kit.payments.cancelled_jobs import cancel_now
from kit.verification.live_fixtures import CHEAT_ACCOUNT, Node

from market.training.aggregation import service as aggregation
from market.training.checkpoints import repository as checkpoints_repository
from market.training.checkpoints.service import load_parameters, validation_split
from market.training.leases.schemas import LeaseKind
from market.training.units.models import Unit
from training_gym.aggregate.aggregation import Aggregate, aggregate
from training_gym.aggregate.robust import Verdict
from training_gym.evaluate.loss import evaluate_samples
from training_gym.spec.config import TrainingSpec
from zoo_compute.audit.receipt import verify_job
from zoo_compute.audit.settlements import fetch_record
from zoo_compute.chain.disputes import DisputePhase
from zoo_compute.chain.settlements import ChainReader
from zoo_compute.content.gateway import GatewayClient
from zoo_compute.node.execution.executor import Executor
from zoo_protocol.payments.job_record import JobRecord

ACCUSER = wallet(8)


def without_replica_1(
    spec: Any, parameters: Any, payloads: Mapping[int, bytes], weights: Any, state: Any, *, in_place: bool
) -> Aggregate:
    others = {at: data for at, data in payloads.items() if at != 1}
    joined = aggregate(spec, parameters, others, {at: weights[at] for at in others}, state, in_place=in_place)
    verdicts = joined.verdicts | {1: Verdict(False, "krum_outlier", "a test")}
    return replace(joined, verdicts=dict(sorted(verdicts.items())))


def test_overlapped_job_is_settled_despite_excluded_payload(
    live: EndingsWorld, honest: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = provider(live, CHEAT_ACCOUNT)
    verifiers = [staked_verifier(live, account) for account in (ACCUSER, wallet(9))]
    job_id = live.job_of([honest, other], rounds=4, round_delay=1, validation_samples=4)
    live.train_all(job_id, honest, other)
    with monkeypatch.context() as patch:
        patch.setattr(aggregation, "aggregate_payloads", without_replica_1)
        live.end_round(job_id)
    while live.read(job_id).status == "running":
        live.train_all(job_id, honest, other)
        live.end_round(job_id)
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
    check_losses(live, job_id)

    job = live.settle_job(job_id)
    total = 4 * live.unit_pay(job)
    assert [live.claim(honest), live.claim(other), live.claim(honest)] == [total, total, 0]  # each once
    job = live.check_paid(job_id)
    check_receipt(live, job_id)
    assert job.reason == "completed"


def check_losses(live: EndingsWorld, job_id: str) -> None:
    """Check all losses by units. Two replicas state none of the first model."""
    spec = TrainingSpec.from_dict(live.read(job_id).spec)
    _, *evaluated, _, _ = live.call(checkpoints_repository.checkpoints, job_id)
    split = validation_split(live.storage, spec)
    for row in evaluated:
        found = evaluate_samples(spec, load_parameters(live.storage, spec, row.cid), split, 8)
        assert (row.validation_loss, row.validation_samples) == (f"{found.loss:.6f}", 8)


def staked_verifier(live: EndingsWorld, account: Wallet) -> Node:
    live.deployed.anvil.rpc("anvil_setBalance", account.address, hex(ZEN))
    return live.staked_verifier_node(account, live.executor)


def check_receipt(live: EndingsWorld, job_id: str) -> None:
    reader = ChainReader(live.deployed.anvil.url, live.deployed.deployment.contracts)
    with GatewayClient([live.gateway]) as gateway:
        record = JobRecord.from_bytes(fetch_record(gateway, reader.settlement(job_id).parts[-1].record))
        findings = verify_job(job_id, reader, gateway).findings
    assert [(finding.code, finding.where) for finding in findings] == [("foreign_signature", "record.order_signature")]
    assert record.order_signature == "0x", "jobs of this world are not signed; all else has to be right"
    eager = [unit.start_eager_payload_cid for unit in record.units]
    assert eager == [unit.start_eager_payload_cid for unit in live.units(job_id)]


def ahead(live: EndingsWorld, node: Node, second: Executor | None = None) -> Unit:
    job_id = live.job_of([node], rounds=2, round_delay=1, validation_samples=4)
    live.work_off(node, LeaseKind.TRAIN)
    live.dispatch(job_id)
    if second is not None:
        node.executor, node.worker = second, replace(node.worker, executor=second)
    live.work_off(node, LeaseKind.TRAIN)
    [unit] = live.units(job_id, round=1)
    assert unit.start_eager_payload_cid == live.units(job_id, round=0)[0].payload_cid
    return unit


@pytest.mark.parametrize("step", [0, 3])
def test_honest_unit_with_early_payload_start_wins(live: EndingsWorld, honest: Node, step: int) -> None:
    delivered: Delivered = live.included(ahead(live, honest))
    referees = live.referees()
    disputed = live.named(ACCUSER, delivered, honest, step)
    live.discloser(honest).watch()
    assert live.judged(disputed, referees) is DisputePhase.CHALLENGER_LOST
    assert live.deployed.views.stake_of(honest.address) == 1_000 * ZEN
    live.check_books()


def test_dishonest_unit_with_early_payload_start_loses(live: EndingsWorld, honest: Node, cheating: Executor) -> None:
    live.give_account()
    live.referees_here = live.referees()
    verifiers = [live.verifier_node() for _ in range(2)]
    false = ahead(live, honest, cheating)
    live.until_decided(false.job_id, [honest], verifiers)

    before, false = live.units(false.job_id)
    assert (before.status, false.status, false.reason) == ("verified", "rejected", "incorrect_computation")
    (slash,) = live.slashes()
    assert (slash.path, slash.evidence) == ("dispute", false.dispute_id)
    assert live.deployed.views.stake_of(honest.address) == 500 * ZEN
    assert live.deployed.views.balance_of(MARKET.address) == 3 * TERMS.bond_wei + TERMS.cost_wei
    cancel_now(live, false.job_id)
    job = live.settle_job(false.job_id)
    assert live.claim(honest) == live.unit_pay(job)
    live.check_paid(false.job_id)
