"""Results on leases: commitments, results that break them, and permitted callers."""

from typing import Any

import pytest
from kit.errors import raising
from kit.jobs.jobs_fixtures import World, at_once
from kit.jobs.unit_results import DOMAIN, Work
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from market.domain.lifecycle import UnitStatus
from market.jobs.models import Job
from market.platform.events.models import JobEventRow
from market.platform.http.errors import InvalidSignature, StorageDown
from market.platform.storage.errors import StorageUnavailable
from market.training.commitments.errors import CommitmentChanged
from market.training.leases import service as leases
from market.training.leases.errors import LeaseLost, ResultRefused, WrongStep
from market.training.leases.schemas import CommitTraining
from market.training.units import repository as units_repository
from market.training.units.models import Unit
from zoo_protocol.content.unixfs import cid_of_file
from zoo_protocol.hashing import from_hex, to_hex
from zoo_protocol.messages import UnitCommitment, sign, typed_data


@pytest.mark.parametrize(
    ("spoil", "field", "reason"),
    [
        ({"leaves": [to_hex(b"\1" * 32)] * 2}, "leaves", "wrong_leaves"),
        ({"leaves": [to_hex(b"\1" * 32)] * 3}, "leaves", "wrong_leaves"),
        ({"payload_cid": cid_of_file(b"never stored")}, "payload_cid", "payload_missing"),
        ({"payload_sha256": to_hex(b"\1" * 32)}, "payload_sha256", "payload_mismatch"),
        ({"salt": to_hex(b"\1" * 32)}, "salt", "payload_mismatch"),
        ({"slot_state_digest": to_hex(b"\1" * 32)}, "leaves", "wrong_end_leaf"),
        ({"end_parameters_digest": to_hex(b"\1" * 32)}, "leaves", "wrong_end_leaf"),
    ],
)
def test_result_contradicting_its_commitment_is_refused(
    world: World, nodes: list[str], spoil: dict[str, Any], field: str, reason: str
) -> None:
    job_id = world.running(nodes)
    work = world.work(nodes[0], **spoil)
    work.commit()
    with pytest.raises(ResultRefused) as refused:
        work.complete()
    assert (refused.value.field, refused.value.extra["reason"]) == (field, reason)
    unit = world.units(job_id, slot=0)[0]
    assert (unit.status, unit.reason, unit.payload_cid) == (UnitStatus.LOST, reason, None)
    with pytest.raises(LeaseLost):
        work.complete()


def test_undecodable_payload_is_refused(world: World, nodes: list[str]) -> None:
    job_id = world.running(nodes)
    work = world.work(nodes[0])
    work.payload = b"\0" * len(work.payload)
    work.commit()
    with pytest.raises(ResultRefused):
        work.complete()
    assert world.units(job_id, slot=0)[0].reason == "payload_malformed"


def test_repeated_result_is_accepted_as_same_during_processing(
    world: World, nodes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    world.running(nodes)
    work = world.work(nodes[0])
    work.commit()
    found, not_yet = units_repository.unit, [True]

    def unit_after_another_call(session: Session, unit_id: int) -> tuple[Job, Unit] | None:
        if not_yet and not_yet.pop():
            work.complete()
        return found(session, unit_id)

    monkeypatch.setattr(units_repository, "unit", unit_after_another_call)
    work.complete()


def test_commitments_are_signed_final_and_needed(world: World, nodes: list[str]) -> None:
    job_id = world.running(nodes)
    work, other = world.work(nodes[0]), world.work(nodes[1])
    with pytest.raises(WrongStep):
        work.complete()
    with pytest.raises(InvalidSignature):
        work.commit(_signed_by(other, work))
    assert world.units(job_id, slot=0)[0].status == UnitStatus.LEASED
    work.commit()
    work.commit()  # a repeated call changes nothing
    first = world.units(job_id, slot=0)[0].trace_root
    work.leaves = work.leaves[::-1]
    with pytest.raises(CommitmentChanged):
        work.commit()
    assert world.units(job_id, slot=0)[0].trace_root == first


@pytest.mark.parametrize("form", ["v of 0 or 1", "the higher s"])
def test_undisputable_commitment_is_refused(world: World, nodes: list[str], form: str) -> None:
    """The contract Disputes accepts one ECDSA form; a unit with the other could not be disputed."""
    job_id = world.running(nodes)
    work = world.work(nodes[0])
    given = work.commitment()
    raw = from_hex(given.commitment_signature, 65)
    order = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
    high_s = (order - int.from_bytes(raw[32:64])).to_bytes(32)
    other = raw[:64] + bytes([raw[64] - 27]) if form == "v of 0 or 1" else raw[:32] + high_s + bytes([55 - raw[64]])
    with pytest.raises(InvalidSignature):
        work.commit(given.model_copy(update={"commitment_signature": to_hex(other)}))
    assert world.units(job_id, slot=0)[0].status == UnitStatus.LEASED
    work.commit(given)


def test_completion_requires_holder_token_and_counts_once(world: World, nodes: list[str]) -> None:
    job_id = world.running(nodes)
    work = world.work(nodes[0])
    work.commit()
    stolen = work.lease.model_copy(update={"token": to_hex(b"\0" * 32)})
    for lease, node in ((work.lease, nodes[1]), (stolen, nodes[0])):
        with pytest.raises(LeaseLost), world.database.transaction() as session:
            leases.heartbeat(session, lease.id, node, lease.token, 1, 30)
    errors = at_once([work.complete] * 4)
    assert errors == [None] * 4
    work.complete()
    assert [unit.status for unit in world.units(job_id, slot=0)] == [UnitStatus.UPLOADED]
    moves = world.scalar(select(func.count()).where(JobEventRow.kind == "unit"))
    assert moves == 2  # committed, uploaded


def test_stored_payload_is_pinned_on_acceptance(world: World, nodes: list[str]) -> None:
    """A payload that its node serves without aggregation could disappear."""
    job_id = world.running(nodes)
    work = world.work(nodes[0])
    work.commit()
    completion = work.completion()
    cid = completion.payload_cid
    world.storage.unpin(cid)
    failing = pytest.MonkeyPatch()
    failing.setattr(type(world.storage), "pin", raising(StorageUnavailable("no answer")))
    with pytest.raises(StorageDown):
        world.complete(work.lease, work.node, completion)
    assert world.units(job_id, slot=0)[0].status == UnitStatus.COMMITTED  # and it may be sent again
    failing.undo()
    world.complete(work.lease, work.node, completion)
    assert world.storage.is_pinned(cid)


def _signed_by(signer: Work, work: Work) -> CommitTraining:
    honest = work.commitment()
    message = UnitCommitment(
        work.lease.task["job_id"],
        work.lease.task["round"],
        work.lease.task["slot"],
        work.node,
        honest.trace_root,
        honest.payload_hash,
    )
    key = to_hex(bytes(work.world.wallets[signer.node].key))
    return honest.model_copy(update={"commitment_signature": sign(key, typed_data(DOMAIN, message))})
