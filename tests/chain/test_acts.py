"""Each act of the table on a real chain: its role may, others are refused in words."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from kit.chain.anvil import AnvilProcess
from kit.chain.deployed_chain import ADMIN, OPERATOR, OTHER, PAYER, PROVIDER, Chain, Wallet, deploy_own, wallet
from kit.chain.settling import claim_proof, open_job, pay, settle_job, settlement

from market.console.reads.governance import MAX_PAUSE
from market.domain.network import DEVNET, ZEN
from zoo_protocol.abi import encode_call
from zoo_protocol.acts.calls import Contracts, execute, prepare
from zoo_protocol.acts.simulation import Simulation, simulate
from zoo_protocol.acts.table import ACTS
from zoo_protocol.hashing import to_hex
from zoo_protocol.payments.reward_tree import build_tree

NETWORK = replace(DEVNET, challenge_seconds=86_400)
STRANGER = wallet(9)
DAY = 86_400
ROLE_ACTS = [key for key in ACTS if key.endswith("-role")]


@dataclass
class World:
    """A network in which every act of the table is possible now, but for the ends of pauses."""

    chain: Chain
    contracts: Contracts
    arguments: dict[str, dict[str, object]]

    def simulate(self, key: str, sender: Wallet) -> Simulation:
        prepared = prepare(key, self.arguments[key], self.contracts, salt=bytes(31) + b"\x01")
        return simulate(prepared, sender.address, self.contracts, self.chain.client().refusal)


@pytest.fixture(scope="module")
def network(anvil: AnvilProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    mark = anvil.snapshot()
    yield _network(anvil, tmp_path_factory.mktemp("acts"))
    anvil.revert(mark)


def _network(anvil: AnvilProcess, directory: Path) -> World:
    chain = deploy_own(anvil, directory, NETWORK)
    at = chain.deployment.contracts
    for staker in (PROVIDER, OTHER):
        chain.stake(staker, 1_000 * ZEN)
    chain.send(OTHER, "ProviderStaking", "requestUnstake", 10 * ZEN)
    chain.send(OPERATOR, "ProviderStaking", "slash", PROVIDER.address, 2, to_hex(b"\x05" * 32))
    chain.send(PAYER, "ZenToken", "transfer", at["Treasury"], 1_000 * ZEN)
    chain.send(PAYER, "ZenToken", "transfer", at["Rewards"], 10_000 * ZEN)
    chain.deposit(PAYER, 5 * ZEN)
    paid, overdue = open_job(chain), open_job(chain)
    settle_job(chain, paid)
    rewards = build_tree({PROVIDER.address: 5})
    for days in (2, 90):
        anvil.rpc("evm_increaseTime", days * DAY)
        anvil.mine()
        chain.send(OPERATOR, "Rewards", "postEpoch", rewards.root, 0, 5, 0)
    chain.send(OTHER, "ZenToken", "approve", at["ProviderStaking"], 3 * ZEN)
    posted, running = open_job(chain), open_job(chain)
    _, _, (claims, units, lines) = settlement(posted)
    chain.send(OPERATOR, "JobEscrow", "settle", claims, units, lines)
    person: dict[str, object] = {"to": PROVIDER.address}
    item = {"amount": pay(2), "proof": claim_proof(paid, 2)}
    arguments: dict[str, dict[str, object]] = {
        "treasury.grant": {"recipient": OTHER.address, "amount": "2.5", "purpose": "Documentation"},
        "treasury.spend": {"destination": "security audits", "to": OTHER.address, "amount": "1 wei", "purpose": "x"},
        "escrow.set-fee": {"newFeeBps": "300"},
        "staking.set-penalty": {"offence": "downtime", "bps": "600", "disputeShareBps": "0"},
        "staking.set-minimum": {"tier": "bronze", "amount": "6000"},
        "rewards.set-rate": {"newApyBps": "1600"},
        "attestations.set-measurement": {"measurement": "0x" + "0a" * 32, "accepted": "yes"},
        "timelock.set-delay": {"newDelay": str(3 * DAY)},
        "staking.release": {"provider": PROVIDER.address},
        "escrow.veto": {"batchId": "2", "claims": claims, "units": units, "lines": lines},
        "token.approve": {"spender": at["ProviderStaking"], "value": "3"},
        "staking.stake": {"amount": "3"},
        "staking.unstake": {"amount": "5"},
        "escrow.claim": person | {"claims": [item]},
        "rewards.claim": person | {"cumulative": "5 wei", "proof": rewards.proofs[PROVIDER.address]},
        "escrow.cancel-job": {"jobId": running},
        "escrow.refund-job": {"jobId": overdue},
        "escrow.withdraw": person | {"amount": "5"},
    }
    contracts = Contracts(chain.client().chain_id, at, NETWORK.timelock_seconds)
    for key in ROLE_ACTS:
        role = _ROLES[ACTS[key].contract]
        arguments[key] = {"role": role, "account": OTHER.address}
    return World(chain, contracts, {key: arguments.get(key, {}) for key in ACTS})


_ROLES = {
    "Timelock": "CANCELLER_ROLE",
    "ZenToken": "MINTER_ROLE",
    "Treasury": "TREASURER_ROLE",
    "ProviderStaking": "SLASHER_ROLE",
    "WorkWindows": "OPERATOR_ROLE",
    "JobEscrow": "GUARDIAN_ROLE",
    "Omissions": "ACKNOWLEDGER_ROLE",
    "Rewards": "REWARDER_ROLE",
    "Attestations": "ATTESTER_ROLE",
}
_OWNERS = {
    "staking.stake": OTHER,
    "staking.unstake": OTHER,
    "staking.withdraw": OTHER,
    "escrow.claim": PROVIDER,
    "rewards.claim": PROVIDER,
    "escrow.cancel-job": PAYER,
    "escrow.withdraw": PAYER,
}
"""Senders of the acts without a role that not any account can send."""
_ENDS_OF_PAUSE = {"escrow.unpause", "staking.unpause"}


@pytest.mark.parametrize("key", [key for key in ACTS if key not in _ENDS_OF_PAUSE])
def test_act_passes_for_its_role(network: World, key: str) -> None:
    sender = ADMIN if ACTS[key].role else _OWNERS.get(key, STRANGER)
    assert network.simulate(key, sender) == Simulation(passes=True)


@pytest.mark.parametrize(("contract", "act"), [("JobEscrow", "escrow.pause"), ("ProviderStaking", "staking.pause")])
def test_pause_has_length_of_contract(network: World, contract: str, act: str) -> None:
    found = network.chain.client().call(network.contracts.addresses[contract], encode_call(contract, "MAX_PAUSE", []))
    assert MAX_PAUSE.total_seconds() == int.from_bytes(found, "big")
    assert f"at most {MAX_PAUSE.total_seconds() / 3600:g} hours" in ACTS[act].words


@pytest.mark.parametrize("key", [key for key, act in ACTS.items() if act.role])
def test_act_refuses_other_accounts_in_words(network: World, key: str) -> None:
    act = ACTS[key]
    refused = network.simulate(key, STRANGER)
    role = "PROPOSER_ROLE" if act.via_timelock else act.role
    assert (refused.passes, refused.error) == (False, "AccessControlUnauthorizedAccount")
    assert refused.refusal == f"{STRANGER.address} lacks the role {role}. Use an account that holds it."
    if act.via_timelock:  # the contract itself names the table's role
        direct = prepare(key, network.arguments[key], network.contracts, salt=bytes(32)).effects[0]
        own = replace(
            prepare("escrow.pause", {}, network.contracts, salt=bytes(32)), to=direct.target, data=direct.data
        )
        found = simulate(own, STRANGER.address, network.contracts, network.chain.client().refusal)
        assert f"{act.role}" in f"{found.refusal}"


@pytest.mark.parametrize(("key", "owner"), _OWNERS.items(), ids=_OWNERS)
def test_act_of_owner_refuses_strangers_in_words(network: World, key: str, owner: Wallet) -> None:
    refused = network.simulate(key, STRANGER)
    assert not refused.passes
    assert refused.refusal
    assert "refuses the call" not in refused.refusal


def test_pause_is_ended_by_its_role_only(network: World) -> None:
    chain, mark = network.chain, network.chain.anvil.snapshot()
    assert network.simulate("escrow.unpause", ADMIN).refusal == "Intake is not paused."
    for key in ("escrow", "staking"):
        chain.send(ADMIN, ACTS[f"{key}.pause"].contract, "pause")
        assert network.simulate(f"{key}.unpause", ADMIN).passes
        assert "PAUSER_ROLE" in str(network.simulate(f"{key}.unpause", STRANGER).refusal)
    assert network.simulate("staking.stake", OTHER).refusal == "Intake is paused. Wait for the end of the pause."
    chain.anvil.rpc("evm_revert", mark)


def test_proposal_warns_of_failing_effect(network: World) -> None:
    arguments = {"recipient": OTHER.address, "amount": "1000000", "purpose": "x"}
    prepared = prepare("treasury.grant", arguments, network.contracts, salt=bytes(32))
    found = simulate(prepared, ADMIN.address, network.contracts, network.chain.client().refusal)
    assert found.passes
    assert found.warnings[0].startswith("1,000,000 ZEN (1000000000000000000000000 wei) exceed the fund's 200 ZEN")


def test_operation_is_executed_when_due_and_once(network: World) -> None:
    chain, mark = network.chain, network.chain.anvil.snapshot()
    arguments: dict[str, Any] = network.arguments["staking.release"]
    prepared = prepare("staking.release", arguments, network.contracts, salt=b"\x03" * 32)
    assert prepared.operation is not None
    due = execute(prepared.operation, network.contracts)
    chain.anvil.send({"from": ADMIN.address, "to": prepared.to, "data": to_hex(prepared.data)})

    def refusal() -> str | None:
        return simulate(due, STRANGER.address, network.contracts, chain.client().refusal).refusal

    assert refusal() == "The operation is not due: it waits for its delay, or it was executed or cancelled."
    chain.anvil.rpc("evm_increaseTime", NETWORK.timelock_seconds)
    chain.anvil.mine()
    assert refusal() is None
    chain.anvil.send({"from": STRANGER.address, "to": due.to, "data": to_hex(due.data)})
    assert not chain.views.is_jailed(PROVIDER.address)
    assert refusal() == "The operation is not due: it waits for its delay, or it was executed or cancelled."
    chain.anvil.rpc("evm_revert", mark)
