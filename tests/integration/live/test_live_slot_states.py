"""Replica states end to end: training from kept states, replays from revealed ones."""

import shutil
from datetime import timedelta

import pytest
from kit.api.upload_fixtures import stored
from kit.chain.deployed_chain import wallet
from kit.verification.live_fixtures import CHEAT_ACCOUNT, HONEST_ACCOUNT, LiveWorld, Node
from kit.verification.verification_fixtures import let_time_pass
from sqlalchemy import select, update

from market.jobs.models import Job
from market.platform.db.base import utc_now
from market.training.deliveries import service as deliveries
from market.training.leases import service as leases
from market.training.leases.schemas import LeaseKind
from market.training.units.models import Unit
from market.verification.samples.models import Sample

THIRD_ACCOUNT = wallet(8)


def _unit(live: LiveWorld, job_id: str, round_: int, node: Node) -> Unit:
    [unit] = live.units(job_id, round=round_, provider=node.address)
    return unit


def test_units_from_own_and_fresh_replica_states_verify(live: LiveWorld) -> None:
    first, second = (live.provider_node(account) for account in (HONEST_ACCOUNT, CHEAT_ACCOUNT))
    verifiers = [live.verifier_node() for _ in range(2)]
    job_id = live.train(first, second)
    live.end_round(job_id)
    live.work_off(first, LeaseKind.TRAIN)
    own = _unit(live, job_id, 1, first)
    assert own.start_slot_state_cid == _unit(live, job_id, 0, first).slot_state_cid
    assert own.start_slot_state_cid is not None
    assert not stored(live, own.start_slot_state_cid)
    left = _unit(live, job_id, 0, second).slot_state_cid
    assert left is not None
    live.call(leases.remove_node_from_jobs, second.address, "a test")
    third = live.provider_node(THIRD_ACCOUNT)
    live.dispatch(job_id)
    live.work_off(third, LeaseKind.TRAIN)
    assert _unit(live, job_id, 1, third).start_slot_state_cid is None
    live.decide(job_id, [first, second, third], verifiers)
    assert {unit.status for unit in live.units(job_id) if unit.reason != "a test"} == {"verified"}
    assert live.slashes() == []
    assert stored(live, own.start_slot_state_cid)  # it was sampled
    assert not stored(live, left)  # no replay needed it
    assert [first.failures, second.failures, third.failures] == [[], [], []]


def test_deleted_sampled_replica_state_counts_as_data_withholding(live: LiveWorld) -> None:
    node = live.provider_node(HONEST_ACCOUNT)
    verifiers = [live.verifier_node() for _ in range(2)]
    job_id = live.train(node)
    live.end_round(job_id)
    live.work_off(node, LeaseKind.TRAIN)
    shutil.rmtree(live.directory / node.address / "slots")
    for _ in range(10):
        if node.failures:
            break
        live.step()
        live.work_off(node, LeaseKind.REVEAL)
    assert set(node.failures) == {"SlotStateMissing"}
    with live.database.transaction() as session:
        second = _unit(live, job_id, 1, node).id
        for sample in session.scalars(select(Sample).where(Sample.unit_id == second)):
            let_time_pass(sample)
    live.decide(job_id, [node], verifiers)
    unit = _unit(live, job_id, 1, node)
    assert (unit.status, unit.reason) == ("rejected", "refused_data")
    [slash] = live.slashes()
    assert (slash.offence, slash.provider) == ("refused_data", node.address)


def test_start_with_restored_late_payload_verifies_by_replay(live: LiveWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deliveries, "MAX_STALENESS", 0)  # one round late is too late
    accounts = (HONEST_ACCOUNT, CHEAT_ACCOUNT, THIRD_ACCOUNT)
    late, *others = (live.provider_node(account) for account in accounts)
    verifiers = [live.verifier_node() for _ in range(2)]
    job_id = live.live_job([late, *others])
    for node in others:
        live.work_off(node, LeaseKind.TRAIN)
    upload, closed = late.worker.market.upload, []

    def close_first(content: bytes) -> str:
        if not closed:
            closed.append(True)
            live.execute(update(Job).values(round_started_at=utc_now() - timedelta(days=1)))
            live.end_round(job_id)
        return upload(content)

    monkeypatch.setattr(late.worker.market, "upload", close_first)
    for node in (late, late, *others):  # its late unit, then its next one
        live.work_off(node, LeaseKind.TRAIN)
        live.dispatch(job_id)
    before, after = (_unit(live, job_id, round_, late) for round_ in (0, 1))
    assert (before.included, before.exclusion_reason) == (False, "too_late")
    start = (after.start_slot_state_cid, after.start_restored_payload_cid)
    assert start == (before.slot_state_cid, before.payload_cid)
    live.decide(job_id, [late, *others], verifiers)
    assert {unit.status for unit in live.units(job_id)} == {"verified"}
    assert live.slashes() == []
