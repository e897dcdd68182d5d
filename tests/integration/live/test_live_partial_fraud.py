"""A provider that is lazy in a part of its work: real training, replays, pay on chain.

One segment in eight is false: it leaves a step out. Here all segments are sampled.
``benchmarks/incentives/strategies.py`` has the probabilities with fewer samples.
"""

from pathlib import Path
from typing import Any

from kit.disputes.dispute_fixtures import ZEN, DisputeWorld, world_of_disputes  # noqa: F401  (fixtures)
from kit.payments.settlement_helpers import deposit, settle_and_claim
from kit.verification.live_fixtures import CHEAT_ACCOUNT, HONEST_ACCOUNT, Node, executors

from market.training.leases.schemas import LeaseKind
from tests.kit.nodes.lazy_child import FALSE_SEGMENT
from zoo_compute.chain.settlements import ChainReader
from zoo_compute.node.execution.executor import Executor


class LazyExecutor(Executor):
    def child_command(self) -> list[str]:
        _, *arguments = super().child_command()
        return ["tests.kit.nodes.lazy_child", *arguments]


def train(live: DisputeWorld, providers: list[Node]) -> str:
    job_id = live.live_job(providers)
    deposit(live, job_id)
    for node in providers:
        live.work_off(node, LeaseKind.TRAIN)
    return job_id


def replay_until_refuted(live: DisputeWorld, providers: list[Node], verifiers: list[Node]) -> None:
    for _ in range(40):
        live.step()
        for node in providers:
            live.work_off(node, LeaseKind.REVEAL, LeaseKind.PIN)
        for node in verifiers:
            live.work_off(node, LeaseKind.REPLAY)
        if any(sample.status == "failed" for sample in live.samples()):
            return
    raise AssertionError([(sample.segment, sample.status) for sample in live.samples()])


def outcome(live: DisputeWorld, job_id: str, node: Node) -> tuple[Any, Any]:
    (unit,) = live.units(job_id, provider=node.address)
    return unit.status, unit.reason


def test_partly_lazy_provider_keeps_verified_pay_only(live: DisputeWorld, tmp_path: Path) -> None:
    with executors(tmp_path, LazyExecutor) as (idle,):
        honest = live.provider_node(HONEST_ACCOUNT)
        lazy = live.provider_node(CHEAT_ACCOUNT, idle)
        providers, verifiers = [honest, lazy], [live.verifier_node() for _ in range(2)]
        first = train(live, providers)
        live.decide(first, providers, verifiers)
        assert outcome(live, first, lazy) == ("verified", None)
        second = train(live, providers)
        replay_until_refuted(live, providers, verifiers)
        third = train(live, providers)  # the lazy provider's unit is honest again, and delivered before the slash
        assert outcome(live, third, lazy) == ("uploaded", None)
        for job_id in (second, third):
            live.decide(job_id, providers, verifiers)

    assert outcome(live, first, lazy) == ("verified", None)
    assert outcome(live, second, lazy) == ("rejected", "incorrect_computation")
    assert outcome(live, third, lazy) == ("rejected", "provider_jailed")
    assert [outcome(live, job_id, honest) for job_id in (first, second, third)] == [("verified", None)] * 3
    [false] = [unit.id for unit in live.units(second, provider=lazy.address)]
    refuted = [(sample.unit_id, sample.segment) for sample in live.samples() if sample.status == "failed"]
    assert refuted == [(false, FALSE_SEGMENT)]  # its other segments match in every replay

    (slash,) = live.slashes()
    reader = ChainReader(live.deployed.anvil.url, live.deployed.deployment.contracts)
    on_chain = reader.slash(slash.evidence, "incorrect_computation")
    assert (slash.unit_id, on_chain.provider, on_chain.amount) == (false, lazy.address, 500 * ZEN)
    views = live.deployed.views
    assert (views.stake_of(honest.address), views.stake_of(lazy.address)) == (1_000 * ZEN, 500 * ZEN)
    assert (live.provider(honest.address).status, live.provider(lazy.address).status) == ("active", "jailed")

    paid = settle_and_claim(live, [first, second, third], providers)
    assert paid.claimed == {honest.address: 3 * paid.unit_pay, lazy.address: paid.unit_pay}
    assert paid.refunded + paid.fees + 4 * paid.unit_pay == paid.deposited
