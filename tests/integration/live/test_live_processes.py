"""A node of two processes in the market: a lost process, a repeated unit, a false segment.

One verifier of one process replays every segment.
"""

from pathlib import Path
from typing import Any

import psutil
import pytest
from kit.disputes.dispute_fixtures import DisputeWorld, world_of_disputes  # noqa: F401  (fixtures)
from kit.verification.live_fixtures import CHEAT_ACCOUNT, executors

from market.training.leases.schemas import LeaseKind
from tests.kit.nodes.lazy_child import FALSE_SEGMENT
from training_gym.runtime.profile import ExecutionProfile
from zoo_compute.node.execution.executor import Executor, Progress


class LossyPair(Executor):
    """Two lazy processes; the second one is killed in the first unit."""

    def __init__(self, profile: ExecutionProfile, memory_bytes: int, workdir: Path) -> None:
        super().__init__(profile, memory_bytes, workdir, processes=2)
        self._has_lost = False

    def child_command(self) -> list[str]:
        _, *arguments = super().child_command()
        return ["tests.kit.nodes.lazy_child", *arguments]

    def run(self, task: dict[str, Any], *rest: Any, on_progress: Progress | None = None, **more: Any) -> dict[str, Any]:
        def lose(progress: dict[str, Any]) -> None:
            if task["kind"] == "train" and progress["step"] == 3 and not self._has_lost:
                self._has_lost = True
                processes = [one for one in psutil.Process().children(True) if one.cwd() == str(self.workdir)]
                max(processes, key=psutil.Process.create_time).kill()
            if on_progress is not None:
                on_progress(progress)

        return super().run(task, *rest, on_progress=lose, **more)


@pytest.mark.long
def test_unit_of_two_processes_is_repeated_and_checked(live: DisputeWorld, tmp_path: Path) -> None:
    with executors(tmp_path, LossyPair) as (pair,):
        node, verifiers = live.provider_node(CHEAT_ACCOUNT, pair), [live.verifier_node() for _ in range(2)]
        outcomes = []
        for _ in range(2):
            job_id = live.live_job([node], gradient_shards=2)
            live.work_off(node, LeaseKind.TRAIN)
            live.dispatch(job_id)  # offers a lost unit again
            live.work_off(node, LeaseKind.TRAIN)
            live.decide(job_id, [node], verifiers)
            outcomes.append([(unit.status, unit.reason) for unit in live.units(job_id, provider=node.address)])
    assert node.failures == ["ExecutorError"]
    assert outcomes == [[("lost", "process_lost"), ("verified", None)], [("rejected", "incorrect_computation")]]
    refuted = {sample.segment for sample in live.samples() if sample.status == "failed"}
    assert refuted == {FALSE_SEGMENT}
    assert live.provider(node.address).status == "jailed"
