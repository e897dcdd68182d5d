"""Overlapped rounds and hot spares: real training, all segments replayed."""

from pathlib import Path

import pytest
from kit.chain.deployed_chain import wallet
from kit.verification.live_fixtures import CHEAT_ACCOUNT, HONEST_ACCOUNT, TRAINING, LiveWorld, Node

from market.jobs.models import Job
from market.payments.payables import service as payables
from market.training.checkpoints import repository as checkpoints_repository
from market.training.leases import service as leases
from market.training.leases.schemas import LeaseKind
from market.training.units.models import Unit

SPARE_ACCOUNT = wallet(8)


def _start(live: LiveWorld, nodes: list[Node]) -> str:
    training = TRAINING | {"rounds": 4, "round_delay": 1}
    job_id = live.job(nodes=len(nodes), document={**live.spec.to_dict(), "training_config": training})
    live.change(Job, job_id, sampling_bps=10_000)
    live.place_on(job_id, nodes)
    return job_id


def _train(live: LiveWorld, job_id: str, *nodes: Node) -> None:
    for node in nodes * 2:
        live.work_off(node, LeaseKind.FOLLOW)
        live.work_off(node, LeaseKind.TRAIN)
        live.dispatch(job_id)


def _place(unit: Unit) -> tuple[int, int]:
    return unit.round, unit.slot


def test_overlapped_rounds_are_verified_and_paid_despite_takeover(live: LiveWorld) -> None:
    first, second = (live.provider_node(account) for account in (HONEST_ACCOUNT, CHEAT_ACCOUNT))
    verifiers = [live.verifier_node() for _ in range(2)]
    job_id = _start(live, [first, second])
    spare = live.provider_node(SPARE_ACCOUNT)
    live.dispatch(job_id)
    live.work_off(spare, LeaseKind.FOLLOW)
    _train(live, job_id, first, second)
    assert sorted(_place(unit) for unit in live.units(job_id, status="uploaded")) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    live.end_round(job_id)
    live.work_off(spare, LeaseKind.FOLLOW)
    files = live.directory / spare.address / "files"
    assert len(list(files.iterdir())) >= 2  # model and data are there before it has a slot

    lease = live.pull(second.address, LeaseKind.TRAIN)  # of round 2, which it will not end
    assert lease is not None
    live.call(leases.remove_node_from_jobs, second.address, "node_silent")
    live.dispatch(job_id)
    [taken] = [unit for unit in live.units(job_id, round=2) if unit.status == "leased" and unit.slot == 1]
    assert taken.provider == spare.address
    downloads: list[str] = []
    download = spare.worker.gateway.download

    def counted(cid: str, path: Path, *, max_bytes: int) -> int:
        downloads.append(cid)
        return download(cid, path, max_bytes=max_bytes)

    spare.worker.gateway.download = counted  # type: ignore[method-assign]
    while live.read(job_id).status == "running":
        _train(live, job_id, first, spare)
        live.end_round(job_id)
    eager = {unit.start_eager_payload_cid for unit in live.units(job_id, provider=spare.address)}
    with live.database.transaction() as session:
        kept = [checkpoint.file_cids for checkpoint in checkpoints_repository.checkpoints(session, job_id)]
    small = {cid for files in kept for cid in files} - {files[1] for files in kept}  # all of a checkpoint but its model
    payloads = {unit.payload_cid for unit in live.units(job_id)}
    assert set(downloads) <= payloads | small  # model and data it had, and went on from them by updates
    assert None not in eager

    live.decide(job_id, [first, second, spare], verifiers)
    done = [unit for unit in live.units(job_id) if unit.status != "lost"]
    assert {unit.status for unit in done} == {"verified"}
    assert [_place(unit) for unit in done] == [(round_, slot) for round_ in range(4) for slot in range(2)]
    assert {unit.included for unit in done} == {True}
    assert sum(unit.start_eager_payload_cid is not None for unit in done) == 6  # all but those of round 0
    assert live.slashes() == []
    assert [first.failures, second.failures, spare.failures] == [[], [], []]
    paid = live.call(payables.payable_units, job_id)
    assert [(unit.round, unit.slot) for unit in paid] == [_place(unit) for unit in done]


def test_unit_ignoring_required_start_is_refuted(live: LiveWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    node = live.provider_node(HONEST_ACCOUNT)
    job_id = _start(live, [node])
    run = node.worker.executor.run

    def bare(task: dict[str, object], *others: object, **more: object) -> dict[str, object]:
        return run(task | {"eager_payload": None}, *others, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(node.worker.executor, "run", bare)
    live.work_off(node, LeaseKind.TRAIN)
    live.dispatch(job_id)
    with pytest.raises(Exception, match="leaf 0 does not match this round's checkpoint"):
        live.work_off(node, LeaseKind.TRAIN)
    assert [unit.status for unit in live.units(job_id)] == ["uploaded", "lost"]
