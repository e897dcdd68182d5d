"""Canaries next to sampled segments: real training, real replays, penalties on a real chain."""

import json
from pathlib import Path
from typing import Any

import pytest
from kit.training import one_file
from kit.verification.live_fixtures import CHEAT_ACCOUNT, HONEST_ACCOUNT, LiveWorld, Node, executors
from sqlalchemy import func, select

from market.providers.models import ProviderEpoch
from market.settings import Settings
from market.training.leases.models import Lease
from market.training.leases.schemas import CompleteReplay, LeaseKind
from market.verification.penalties import service as penalties
from market.verification.penalties.models import Slash
from market.verification.samples import service as samples
from market.verification.samples.models import Canary, Replay
from training_gym.data.dataset import DatasetManifest
from zoo_compute.chain.settlements import ChainReader
from zoo_compute.node.execution.executor import Executor

ZEN = 10**18
OTHER_LEAF, SALT = "0x" + "ee" * 32, "0x" + "55" * 32


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"canary_bps": 10_000})


class _EchoExecutor(Executor):
    copies_first = False
    leaves_of: dict[tuple[str, int, int], list[str]] = {}  # noqa: RUF012  by job, round and slot; the test fills it

    def run(self, task: dict[str, Any], *options: Any, **more: Any) -> dict[str, Any]:
        if (task["segment"] == 0) is not self.copies_first:
            return super().run(task, *options, **more)
        leaves = self.leaves_of[task["job_id"], task["round"], task["slot"]]
        return {"end_leaf": leaves[task["segment"] + 1], "inner_digest": OTHER_LEAF, "steps": 0}


class _FirstEchoExecutor(_EchoExecutor):
    copies_first = True


def canaries(live: LiveWorld) -> list[Canary]:
    return live.all(select(Canary).order_by(Canary.id))


def by_kind(live: LiveWorld, verifier: str) -> tuple[set[str], set[str]]:
    mine = [replay for replay in live.replays() if replay.verifier == verifier]
    return {r.status for r in mine if r.canary_id is None}, {r.status for r in mine if r.canary_id is not None}


def train_and_tell(live: LiveWorld, provider: Node) -> str:
    job_id = live.train(provider)
    for unit in live.units(job_id, provider=provider.address):
        _EchoExecutor.leaves_of[job_id, unit.round, unit.slot] = list(unit.leaves or [])
    return job_id


def work_until_slashed(live: LiveWorld, provider: Node, verifiers: list[Node]) -> str:
    for _ in range(20):  # the draw decides when it is asked for a first segment
        job_id = train_and_tell(live, provider)
        live.decide(job_id, [provider], verifiers)
        if live.slashes():
            break
    return job_id


def check_slash(live: LiveWorld, echo: Node, provider: Node, honest: list[Node]) -> Slash:
    (slash,) = live.slashes()
    views = live.deployed.views
    on_chain = ChainReader(live.deployed.anvil.url, live.deployed.deployment.contracts).slash(
        slash.evidence, "wrong_replay"
    )
    assert (on_chain.provider, on_chain.amount) == (echo.address, 100 * ZEN)
    assert (views.stake_of(echo.address), views.stake_of(provider.address)) == (400 * ZEN, 1_000 * ZEN)
    assert {live.provider(node.address).status for node in [provider, *honest]} == {"active"}
    assert {unit.status for unit in live.units(slash.job_id)} <= {"verified"}
    assert live.call(penalties.job_slashes, slash.job_id) == []
    return slash


def test_canaries_alone_detect_verifier_echoing_provider(live: LiveWorld, tmp_path: Path) -> None:
    with executors(tmp_path, _EchoExecutor) as (lazy,):
        provider = live.provider_node(HONEST_ACCOUNT)
        echo = live.staked_verifier_node(CHEAT_ACCOUNT, lazy)
        honest = [live.verifier_node() for _ in range(4)]
        work_until_slashed(live, provider, [echo, *honest])
    of_samples, of_canaries = by_kind(live, echo.address)
    assert of_samples <= {"agreed"}  # the sampled segments alone would never have found it
    assert of_canaries == {"overruled"}
    assert {canary.status for canary in canaries(live)} == {"answered"}
    for node in honest:
        assert by_kind(live, node.address)[1] <= {"disagreed"}  # with a claim that is false

    slash = check_slash(live, echo, provider, honest)
    document, found = replayed_from_evidence(live, slash.evidence_cid, tmp_path)
    assert document["kind"] == "zoo-canary/3"
    ends = {replay["verifier"]: replay["end_leaf"] for replay in document["replays"]}
    assert ends.pop(document["verifier"]) == document["claimed_leaf"] != found["end_leaf"]
    assert set(ends.values()) == {found["end_leaf"]}

    # A right answer is paid like any replay.
    right = sum(r.canary_id is not None and r.status == "disagreed" for r in live.replays())
    agreed = sum(r.status == "agreed" for r in live.replays())
    paid = live.scalar(select(func.sum(ProviderEpoch.replays)))
    assert paid == right + agreed


def test_duplicate_replays_detect_verifier_copying_first_segments(live: LiveWorld, tmp_path: Path) -> None:
    """First segments start from public files, so they have no canary."""
    with executors(tmp_path, _FirstEchoExecutor) as (lazy,):
        provider = live.provider_node(HONEST_ACCOUNT)
        echo = live.staked_verifier_node(CHEAT_ACCOUNT, lazy)
        honest = [live.verifier_node() for _ in range(4)]
        job_id = work_until_slashed(live, provider, [echo, *honest])
    of_samples, of_canaries = by_kind(live, echo.address)
    assert "overruled" in of_samples
    assert of_canaries <= {"disagreed"}  # those it has replayed
    for node in honest:
        assert by_kind(live, node.address)[0] <= {"agreed"}

    slash = check_slash(live, echo, provider, honest)
    assert slash.job_id == job_id
    document, found = replayed_from_evidence(live, slash.evidence_cid, tmp_path)
    assert (document["kind"], document["segment"]) == ("zoo-evidence/5", 0)
    assert {replay["end_leaf"] for replay in document["replays"]} == {found["end_leaf"]}
    digests = {replay["verifier"]: replay["inner_digest"] for replay in document["replays"]}
    assert digests.pop(document["verifier"]) == OTHER_LEAF
    assert set(digests.values()) == {found["inner_digest"]}
    assert len(digests) == 3


def test_honest_verifiers_pass_all_duplicate_replays(live: LiveWorld) -> None:
    provider = live.provider_node(HONEST_ACCOUNT)
    verifiers = [live.verifier_node() for _ in range(4)]
    job_id = live.train(provider)
    live.decide(job_id, [provider], verifiers)
    assert [unit.status for unit in live.units(job_id)] == ["verified"]
    first = [replay for replay in live.replays() if replay.sample_id == live.samples()[0].id]
    assert [replay.status for replay in first] == ["agreed"] * 2
    assert len({replay.inner_digest for replay in first} - {None}) == 1
    assert {replay.status for replay in live.replays()} == {"agreed", "disagreed"}  # these of canaries
    assert (live.slashes(), {live.provider(node.address).status for node in verifiers}) == ([], {"active"})
    paid = live.scalar(select(func.sum(ProviderEpoch.replays)))
    assert paid == len(live.replays())


def replayed_from_evidence(live: LiveWorld, cid: str, directory: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    document = json.loads(live.storage.get(cid, max_bytes=2**20))
    spec, unit = document["spec"], document["unit"]
    manifest = DatasetManifest.from_bytes(live.storage.get(spec["data_config"]["dataset"], max_bytes=2**20))
    checkpoint = json.loads(live.storage.get(unit["start_checkpoint_cid"], max_bytes=2**20))

    def file(cid: str) -> str:
        (directory / cid).write_bytes(live.storage.get(cid, max_bytes=2**24))
        return str(directory / cid)

    task = {
        "kind": "replay",
        "spec": spec,
        "job_id": document["job_id"],
        "round": unit["round"],
        "slot": unit["slot"],
        "segment": document["segment"],
        "start_leaf": document.get("start_leaf") or unit["leaves"][document["segment"]],
        "state": None if document["state_cid"] is None else file(document["state_cid"]),
        "inner": document.get("inner"),
        "checkpoint": file(checkpoint["model"]),
        "train_data": one_file(directory / "text", live.storage.get(manifest.train[0].cid, max_bytes=2**24)),
        "slot_state": None,
        "restored_payload": None,
        "environment": unit["environment_class"],
    }
    return document, live.executor.run(task, 60.0)


def test_canary_resembles_sample_and_delays_its_unit(live: LiveWorld) -> None:
    provider = live.provider_node(HONEST_ACCOUNT)
    verifiers = [live.verifier_node() for _ in range(3)]
    job_id = live.train(provider)
    for _ in range(10):
        live.step()
        live.work_off(provider, LeaseKind.REVEAL)
        if live.replays():
            break
    live.step()

    def leases(session: Any) -> list[tuple[Lease, Replay]]:
        return list(session.execute(select(Lease, Replay).join(Replay, Lease.replay_id == Replay.id)).tuples())

    found = live.call(leases)
    shapes = {
        (lease.kind, lease.holder != provider.address, tuple(lease.task), lease.unit_id is not None)
        for lease, replay in found
        if lease.task["segment"] > 0
    }
    assert len(shapes) == 1
    assert {replay.canary_id is None for _, replay in found} == {True, False}
    # No verifier holds both a segment and the canary on it.
    held = [(lease.holder, lease.task["segment"]) for lease, _ in found]
    assert len(held) == len(set(held))
    # All samples are answered, no canary is: the unit waits, and its trace stays private.
    with live.database.transaction() as session:
        of_canaries = {lease.id for lease, replay in leases(session) if replay.canary_id is not None}
        for lease in session.scalars(select(Lease).where(Lease.id.in_(of_canaries))):
            lease.kind = LeaseKind.PIN  # out of the verifiers' sight for now
    for _ in range(4):
        for node in verifiers:
            live.work_off(node, LeaseKind.REPLAY)
        live.step()
    (unit,) = live.units(job_id)
    assert {sample.status for sample in live.samples()} == {"passed"}
    assert unit.status == "checking"
    with live.database.transaction() as session:
        for lease in session.scalars(select(Lease).where(Lease.id.in_(of_canaries))):
            lease.kind = LeaseKind.REPLAY
    live.decide(job_id, [provider], verifiers)
    assert {canary.status for canary in canaries(live)} == {"answered"}
    assert live.call(samples.drawn_segments, live.units(job_id)[0].id) == [0, 1, 2, 3]


def test_provider_is_not_blamed_for_canary_result(live: LiveWorld) -> None:
    provider = live.provider_node(HONEST_ACCOUNT)
    verifiers = [live.verifier(environment=live.executor.environment_class) for _ in range(3)]
    job_id = live.train(provider)
    leaves = live.units(job_id)[0].leaves or []
    for _ in range(40):
        live.step()
        live.work_off(provider, LeaseKind.REVEAL)
        for verifier in verifiers:
            while (lease := live.pull(verifier, LeaseKind.REPLAY)) is not None:
                of_sample = live.call(lambda session, id_=lease.id: _canary_of(session, id_)) is None
                leaf = leaves[lease.task["segment"] + 1] if of_sample else OTHER_LEAF
                given = {"inner_digest": OTHER_LEAF} if lease.task["inner"] else {}
                live.commit_replay(verifier, lease, leaf, SALT, **given)
                result = CompleteReplay(token=lease.token, end_leaf=leaf, salt=SALT, **given)
                live.complete(lease, verifier, result)
        if all(unit.status == "verified" for unit in live.units(job_id)):
            break
    assert [unit.status for unit in live.units(job_id)] == ["verified"]
    assert {canary.status for canary in canaries(live)} == {"answered"}  # wrongly, by all alike
    assert live.slashes() == []
    assert {live.provider(address).status for address in [provider.address, *verifiers]} == {"active"}


def _canary_of(session: Any, lease_id: str) -> int | None:
    return session.get_one(Replay, session.get_one(Lease, lease_id).replay_id).canary_id


def test_no_canary_is_planted_when_verifiers_are_few(live: LiveWorld) -> None:
    provider = live.provider_node(HONEST_ACCOUNT)
    verifiers = [live.verifier_node() for _ in range(2)]
    job_id = live.train(provider)
    live.decide(job_id, [provider], verifiers)
    assert canaries(live) == []
    assert [unit.status for unit in live.units(job_id)] == ["verified"]
