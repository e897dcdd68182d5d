"""Units with verifiers of another environment class only: real training, replays, chain."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from kit.verification.live_fixtures import CHEAT_ACCOUNT, HONEST_ACCOUNT, LiveWorld, Node, executors
from sqlalchemy import func, select

from benchmarks.detection.replays import CLASSES
from market.domain.verification.tolerance import CAP, START_PER_STEP
from market.platform.db.base import utc_now
from market.providers.models import ProviderEpoch
from market.training.leases.models import Lease
from market.training.leases.schemas import LeaseKind
from market.verification.samples import repository as samples_repository
from market.verification.samples.models import ClassDrift, Comparison, Sample
from training_gym.runtime.profile import ExecutionProfile
from zoo_compute.devnet.adversaries.adversary import executor_of
from zoo_compute.node.execution.executor import Executor

OTHER = CLASSES["scalar-1"]


class OtherClassExecutor(Executor):
    def __init__(self, profile: ExecutionProfile, memory_bytes: int, workdir: Path) -> None:
        super().__init__(OTHER, memory_bytes, workdir)

    def child_command(self) -> list[str]:
        _, *arguments = super().child_command()
        return ["tests.kit.nodes.other_class_child", *arguments]


class _SkewedExecutor(OtherClassExecutor):
    def child_command(self) -> list[str]:
        return [*super().child_command(), "skewed"]


@pytest.fixture(scope="module")
def other_executor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Executor]:
    with executors(tmp_path_factory.mktemp("other"), OtherClassExecutor) as running:
        yield running[0]


def trained(live: LiveWorld, provider: Node) -> str:
    job_id = live.train(provider)
    for _ in range(10):
        live.step()
        live.work_off(provider, LeaseKind.REVEAL)
        if live.samples() and {sample.status for sample in live.samples()} == {"revealed"}:
            break
    assert comparisons(live) == []  # not before the time is over
    with live.database.transaction() as session:
        for sample in session.scalars(select(Sample)):
            sample.reveal_deadline_at = utc_now() - timedelta(seconds=1)
    return job_id


def comparisons(live: LiveWorld) -> list[Comparison]:
    return live.all(select(Comparison).order_by(Comparison.segment))


def go_on(live: LiveWorld, provider: Node, verifiers: list[Node], rounds: int = 8) -> None:
    for _ in range(rounds):
        live.step()
        live.work_off(provider, LeaseKind.REVEAL)
        for node in verifiers:
            live.work_off(node, LeaseKind.REPLAY)


def paid(live: LiveWorld) -> int:
    return live.scalar(select(func.sum(ProviderEpoch.replays))) or 0


def claims_asked_for(live: LiveWorld) -> int:
    leases = live.all(select(Lease).where(Lease.kind == LeaseKind.REVEAL))
    return sum("comparison_id" in lease.task for lease in leases)


def test_cross_class_verifier_passes_and_marks_honest_unit(live: LiveWorld, other_executor: Executor) -> None:
    assert live.executor.environment_class != other_executor.environment_class
    provider = live.provider_node(HONEST_ACCOUNT)
    verifiers = [live.verifier_node(other_executor) for _ in range(2)]
    job_id = trained(live, provider)
    live.step()
    assert {row.status for row in comparisons(live)} == {"asked"}
    live.step()
    assert claims_asked_for(live) == 0  # nothing is shown before a verifier has committed and opened its result
    live.decide(job_id, [provider], verifiers)
    (unit,) = live.units(job_id)
    assert (unit.status, unit.tolerated_segments) == ("verified", [0, 1, 2, 3])
    assert {(sample.status, sample.reason) for sample in live.samples()} == {("passed", "tolerance")}
    found = comparisons(live)
    assert {row.status for row in found} == {"passed"}
    assert all(row.whole is not None and row.whole <= 2 * START_PER_STEP for row in found)
    assert any(row.whole > 0 for row in found)  # type: ignore[operator]  # bits do differ
    assert claims_asked_for(live) == paid(live) == 4
    assert {(r.status, r.sample_id) for r in live.replays()} == {("agreed", None)}
    assert live.slashes() == []


def test_distant_result_is_decided_by_own_class_only(live: LiveWorld, other_executor: Executor, tmp_path: Path) -> None:
    with executors(tmp_path, executor_of("skip-step")) as (cheating,):
        cheat = live.provider_node(CHEAT_ACCOUNT, cheating)
        verifiers = [live.verifier_node(other_executor) for _ in range(3)]
        job_id = trained(live, cheat)
        go_on(live, cheat, verifiers)
        assert {(row.status, row.reason) for row in comparisons(live)} == {("failed", "beyond_tolerance")}
        assert all(row.whole > CAP for row in comparisons(live))  # type: ignore[operator]
        (unit,) = live.units(job_id)
        assert (unit.status, live.slashes(), paid(live)) == ("checking", [], 0)
        assert live.provider(cheat.address).status == "active"
        own = [live.verifier_node() for _ in range(2)]
        live.decide(job_id, [cheat], [*verifiers, *own])
    (unit,) = live.units(job_id)
    assert (unit.status, unit.reason) == ("rejected", "incorrect_computation")
    (slash,) = live.slashes()
    assert slash.provider == cheat.address
    right = [replay for replay in live.replays() if replay.comparison_id is not None]
    assert {replay.status for replay in right} == {"disagreed"}
    assert paid(live) > 2  # those of its own class, and the verifier that had found it first


def test_failed_cross_class_check_replays_without_slash(live: LiveWorld, tmp_path: Path) -> None:
    with executors(tmp_path, _SkewedExecutor) as (skewed,):
        provider = live.provider_node(HONEST_ACCOUNT)
        verifiers = [live.verifier_node(skewed)]
        pair = live.executor.environment_class, skewed.environment_class
        job_id = trained(live, provider)
        go_on(live, provider, verifiers)
        assert {row.status for row in comparisons(live)} == {"failed"}
        assert [unit.status for unit in live.units(job_id)] == ["checking"]
        own = live.verifier_node()
        live.decide(job_id, [provider], [*verifiers, own])
    (unit,) = live.units(job_id)
    assert (unit.status, unit.tolerated_segments) == ("verified", [])
    assert live.slashes() == []
    assert {live.provider(node.address).status for node in [provider, own, *verifiers]} == {"active"}
    assert paid(live) == 4  # of its own class alone

    # The difference was drift. It widens the tolerance of this job and pair of classes only.
    with live.database.transaction() as session:
        measured = samples_repository.drifts(session, job_id, *pair)
        assert len(measured) == 4
        assert samples_repository.drifts(session, job_id, *reversed(pair)) == []
        assert samples_repository.drifts(session, "0x" + "00" * 32, *pair) == []
        assert session.scalar(select(func.count()).select_from(ClassDrift)) == 4


def test_claim_without_reveal_costs_only_time(live: LiveWorld, other_executor: Executor) -> None:
    provider = live.provider_node(HONEST_ACCOUNT)
    verifiers = [live.verifier_node(other_executor)]
    job_id = trained(live, provider)
    live.step()
    for node in verifiers:
        live.work_off(node, LeaseKind.REPLAY)
    live.step()
    assert {row.status for row in comparisons(live)} == {"computed"}
    with live.database.transaction() as session:
        for comparison in session.scalars(select(Comparison)):
            comparison.reveal_deadline_at = utc_now() - timedelta(seconds=1)
    live.step()
    assert {(row.status, row.reason) for row in comparisons(live)} == {("failed", "claim_not_shown")}
    own = live.verifier_node()
    live.decide(job_id, [provider], [*verifiers, own])
    assert [(unit.status, unit.tolerated_segments) for unit in live.units(job_id)] == [("verified", [])]
    assert live.slashes() == []
