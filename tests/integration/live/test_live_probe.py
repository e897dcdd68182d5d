"""A node of the gang's environment class whose kernels compute the job's shapes otherwise."""

from pathlib import Path

from kit.chain.deployed_chain import wallet
from kit.verification.live_fixtures import CHEAT_ACCOUNT, HONEST_ACCOUNT, LiveWorld, executors
from sqlalchemy import func, select

from market.providers.models import ProviderEpoch
from market.training.leases.schemas import LeaseKind
from training_gym.runtime.profile import ExecutionProfile
from zoo_compute.node.execution.executor import Executor


class OtherKernels(Executor):
    def __init__(self, profile: ExecutionProfile, memory_bytes: int, workdir: Path) -> None:
        super().__init__(profile, memory_bytes, workdir)

    def child_command(self) -> list[str]:
        _, *arguments = super().child_command()
        return ["tests.kit.nodes.other_kernels_child", *arguments]


def test_node_with_other_kernels_leaves_gang_unpunished(live: LiveWorld, tmp_path: Path) -> None:
    with executors(tmp_path, OtherKernels) as (executor,):
        assert executor.environment_class == live.executor.environment_class
        usual, spare = (live.provider_node(account) for account in (HONEST_ACCOUNT, wallet(8)))
        other = live.provider_node(CHEAT_ACCOUNT, executor)
        job_id = live.train(usual, other)
    live.dispatch(job_id)
    live.work_off(spare, LeaseKind.TRAIN)
    units = [(unit.provider, unit.status, unit.reason) for unit in live.units(job_id)]
    assert units == [
        (usual.address, "uploaded", None),
        (other.address, "lost", "probe_mismatch"),
        (spare.address, "uploaded", None),
    ]
    assert other.failures == ["The lease is expired (probe_mismatch)."]
    lost = select(func.coalesce(func.sum(ProviderEpoch.lost), 0)).where(ProviderEpoch.provider == other.address)
    assert live.all(lost) == [0]
    assert live.provider(other.address).status == "active"
