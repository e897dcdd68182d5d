"""A dishonest provider and a verifier that confirms its claims: real training, replays.

The verifier computes nothing: it answers with the leaves that the provider has signed.
A segment passes, and is paid, if the accomplice is its first and only verifier.
A unit passes if all its sampled segments pass. Elsewhere an honest verifier disagrees and the unit is refuted.
Canaries and duplicate replays expose the accomplice, as verifiers cannot recognise them.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kit.chain.deployed_chain import Wallet, wallet
from kit.disputes.adjudication_fixtures import QuorumWorld, listed_referees, world_with_quorum  # noqa: F401  (fixtures)
from kit.disputes.dispute_fixtures import ZEN, settings_of_disputes  # noqa: F401  (fixtures)
from kit.disputes.referee_fixtures import honest_node, provider  # noqa: F401  (fixtures)
from kit.payments.settlement_helpers import deposit, settle_and_claim
from kit.verification.live_fixtures import Node, executors
from sqlalchemy import func, select

from market.providers.models import Provider, ProviderEpoch
from zoo_compute.chain.settlements import ChainReader
from zoo_compute.node.execution.executor import Executor
from zoo_protocol.hashing import keccak, to_hex

CHEATS = [wallet(index) for index in range(10, 18)]
ACCOMPLICES = [wallet(index) for index in range(40, 48)]
"""They try one after the other until the sample covers the case."""
MakeNode = Callable[[Wallet], Node]
MADE_UP = to_hex(keccak(b"a state that it has not computed"))


class AccompliceExecutor(Executor):
    leaves_of: dict[tuple[str, int, int], list[str]] = {}  # noqa: RUF012  leaves by job, round and slot; the test fills it

    def run(self, task: dict[str, Any], *options: Any, **more: Any) -> dict[str, Any]:
        leaves = self.leaves_of.get((task["job_id"], task["round"], task["slot"]))
        if leaves is None:
            return super().run(task, *options, **more)
        return {"end_leaf": leaves[task["segment"] + 1], "inner_digest": MADE_UP, "steps": 0}


@pytest.fixture(scope="module")
def confirming(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Executor]:
    with executors(tmp_path_factory.mktemp("confirming"), AccompliceExecutor) as running:
        yield running[0]


@pytest.fixture
def accomplice_of(live: QuorumWorld, confirming: Executor) -> MakeNode:
    def make(account: Wallet) -> Node:
        be_impersonated(live, account)
        node = live.staked_verifier_node(account, confirming)
        live.declare_owner(node.address, "Fair Replays")
        return node

    return make


@pytest.fixture
def accomplice(accomplice_of: MakeNode) -> Node:
    return accomplice_of(ACCOMPLICES[0])


def be_impersonated(live: QuorumWorld, account: Wallet) -> None:
    live.deployed.anvil.rpc("anvil_impersonateAccount", account.address)
    live.deployed.anvil.rpc("anvil_setBalance", account.address, hex(ZEN))


@pytest.fixture
def cheat_of(live: QuorumWorld, cheating: Executor) -> MakeNode:
    def make(account: Wallet) -> Node:
        be_impersonated(live, account)
        node = provider(live, account, cheating)
        live.declare_owner(node.address, "Fast Compute")
        return node

    return make


def train_and_share(live: QuorumWorld, cheat: Node, *others: Node) -> str:
    job_id = live.train(cheat, *others)
    deposit(live, job_id)
    (unit,) = live.units(job_id, provider=cheat.address)
    AccompliceExecutor.leaves_of[job_id, unit.round, unit.slot] = list(unit.leaves or [])
    return job_id


def check_by_sample(live: QuorumWorld, job_id: str, cheat: Node, accomplice: Node) -> bool:
    (unit,) = live.units(job_id, provider=cheat.address)
    samples = [sample for sample in live.samples() if sample.unit_id == unit.id]
    assert len(samples) == 4
    for sample in samples:
        outcomes = live.outcomes(sample.id)
        if sample.status == "passed":
            assert outcomes == {accomplice.address: ("agreed", None)}
            continue
        assert (sample.status, sample.reason) == ("failed", "incorrect_computation")
        assert outcomes.pop(accomplice.address, ("overruled", ""))[0] == "overruled"
        assert len(outcomes) >= 2
        assert set(outcomes.values()) == {("disagreed", None)}, outcomes
    is_refuted = any(sample.status == "failed" for sample in samples)
    assert (unit.status, unit.reason) == (("rejected", "incorrect_computation") if is_refuted else ("verified", None))
    slashes = [slash for slash in live.slashes() if slash.provider == cheat.address]
    assert [(slash.path, slash.amount_wei) for slash in slashes] == [("dispute", 500 * ZEN)] * is_refuted
    views = live.deployed.views
    assert views.stake_of(cheat.address) == (500 * ZEN if is_refuted else 1_000 * ZEN)
    assert live.provider(cheat.address).status == ("jailed" if is_refuted else "active")
    return is_refuted


def statuses(live: QuorumWorld, verifier: Node) -> list[str]:
    return [replay.status for replay in live.replays() if replay.verifier == verifier.address]


@pytest.mark.usefixtures("with_referees")
def test_accomplice_protects_provider_only_as_sole_verifier(
    live: QuorumWorld, honest: Node, accomplice: Node, cheat_of: MakeNode
) -> None:
    verifiers = [accomplice, *(live.verifier_node() for _ in range(2))]
    job_ids, refuted = [], {}
    for account in CHEATS:
        cheat = cheat_of(account)
        job_ids.append(train_and_share(live, cheat, honest))
        live.until_decided(job_ids[-1], [honest, cheat], verifiers)
        refuted[cheat.address] = check_by_sample(live, job_ids[-1], cheat, accomplice)
        if "overruled" in statuses(live, accomplice):
            break
    assert refuted[cheat.address]
    assert "overruled" in statuses(live, accomplice)

    # Its first case costs it the pay, and that it is not selected for a while; the dissenting verifiers are paid.
    assert live.provider(accomplice.address).status == "demoted"
    assert live.deployed.views.stake_of(accomplice.address) == 500 * ZEN
    paid = live.call(
        lambda session: dict(
            session.execute(
                select(ProviderEpoch.provider, func.sum(ProviderEpoch.replays)).group_by(ProviderEpoch.provider)
            ).all()
        )
    )
    assert paid.get(accomplice.address, 0) == statuses(live, accomplice).count("agreed")
    for node in verifiers[1:]:
        assert live.provider(node.address).status == "active"
        assert set(statuses(live, node)) <= {"agreed", "disagreed"}
        assert paid.get(node.address, 0) == len(statuses(live, node))
    assert {unit.status for unit in live.units(job_ids[-1], provider=honest.address)} == {"verified"}
    assert live.deployed.views.stake_of(honest.address) == 1_000 * ZEN

    day = settle_and_claim(live, job_ids, [honest, cheat])
    assert day.claimed == {honest.address: len(job_ids) * day.unit_pay, cheat.address: 0}


@pytest.mark.usefixtures("with_referees")
def test_canaries_slash_accomplice_with_its_provider(
    live: QuorumWorld, honest: Node, accomplice_of: MakeNode, cheat_of: MakeNode
) -> None:
    """Each later segment has a canary, and each first one a duplicate replay."""
    live.settings = live.settings.model_copy(update={"canary_bps": 10_000})
    verifiers = [live.verifier_node() for _ in range(3)]
    for accounts in zip(ACCOMPLICES, CHEATS, strict=True):
        accomplice, cheat = accomplice_of(accounts[0]), cheat_of(accounts[1])
        job_id = train_and_share(live, cheat, honest)
        live.until_decided(job_id, [honest, cheat], [accomplice, *verifiers])
        (unit,) = live.units(job_id, provider=cheat.address)
        assert (unit.status, unit.reason) == ("rejected", "incorrect_computation")
        found = [slash for slash in live.slashes() if slash.provider == accomplice.address]
        if found:
            break
        live.change(Provider, accomplice.address, last_seen_at=None)
    (slash,) = found
    reader = ChainReader(live.deployed.anvil.url, live.deployed.deployment.contracts)
    on_chain = reader.slash(slash.evidence, "wrong_replay")
    assert (on_chain.provider, on_chain.amount) == (accomplice.address, 100 * ZEN)  # at once: there is no warning
    views = live.deployed.views
    assert (views.stake_of(accomplice.address), views.stake_of(cheat.address)) == (400 * ZEN, 500 * ZEN)
    assert {live.provider(node.address).status for node in (accomplice, cheat)} == {"jailed"}
    of_canaries = {
        (replay.status, replay.reason)
        for replay in live.replays()
        if replay.verifier == accomplice.address and replay.canary_id is not None
    }
    assert ("overruled", "wrong_replay") in of_canaries
    assert {live.provider(node.address).status for node in (honest, *verifiers)} == {"active"}
    assert views.stake_of(honest.address) == 1_000 * ZEN
    assert {unit.status for unit in live.units(job_id, provider=honest.address)} == {"verified"}


def test_verifier_declaring_provider_owner_is_never_asked(
    live: QuorumWorld, honest: Node, accomplice: Node, cheat_of: MakeNode
) -> None:
    verifiers = [accomplice, *(live.verifier_node() for _ in range(2))]
    cheat = cheat_of(CHEATS[0])
    live.declare_owner(accomplice.address, "Fast Compute")
    job_id = train_and_share(live, cheat, honest)
    live.until_decided(job_id, [honest, cheat], verifiers)
    (unit,) = live.units(job_id, provider=cheat.address)
    assert (unit.status, unit.reason) == ("rejected", "incorrect_computation")
    asked = {
        (sample.unit_id == unit.id, verifier) for sample in live.samples() for verifier in live.outcomes(sample.id)
    }
    assert (True, accomplice.address) not in asked
    assert {sample.status for sample in live.samples() if sample.unit_id == unit.id} <= {"failed", "dropped"}
    assert live.deployed.views.stake_of(cheat.address) == 500 * ZEN
