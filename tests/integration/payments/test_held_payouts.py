"""The pay of a disputed unit is found in its batch, such that the contract keeps it back."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from kit.chain.anvil import AnvilProcess
from kit.chain.deployed_chain import OPERATOR, OTHER, PAYER, Wallet, deploy_own, wallet
from kit.payments.settlement_fixtures import PRICE, PROVIDERS, UNIT_PAY, SettlementWorld
from sqlalchemy import select

from market.chain.contracts.codec import decode_result, encode_call
from market.chain.service import RETRY_AFTER, intents_about
from market.domain.lifecycle import DisputeStatus, IntentStatus
from market.domain.network import DEVNET
from market.domain.verification.lifecycle import WindowStatus
from market.ledger.reconciliation import reconcile
from market.payments.settlement import claims, contested_units, dispute_keeper
from market.payments.settlement.dispute_keeper import due_hold
from market.platform.db.base import from_unix, utc_now
from market.platform.db.session import Database
from market.platform.storage.client import Storage
from market.settings import Settings
from market.training.commitments.models import Acknowledgement
from market.training.units.models import Unit
from market.verification.disputes.models import Dispute
from market.verification.windows.models import Window
from zoo_compute.base.models import Claim, Network
from zoo_compute.chain.wallet import Wallet as OwnWallet
from zoo_compute.client import earnings
from zoo_protocol import merkle
from zoo_protocol.hashing import from_hex, sha256, to_hex
from zoo_protocol.messages import Domain, UnitCommitment, sign, typed_data
from zoo_protocol.payments import settlement_batch
from zoo_protocol.payments.job_record import dispute_id, unit_leaf
from zoo_protocol.verification import trace

ENVIRONMENT = to_hex(sha256(b"class"))


@pytest.fixture
def world(
    own_anvil: AnvilProcess,
    database: Database,
    settings: Settings,
    storage: Storage,
    ipfs: dict[str, str],
    tmp_path: Path,
) -> SettlementWorld:
    chain = deploy_own(own_anvil, tmp_path, replace(DEVNET, challenge_seconds=86_400))
    return SettlementWorld(chain, database, storage, ipfs["gateway"], settings)


def acknowledged(world: SettlementWorld, unit_id: int) -> str:
    with world.database.transaction() as session:
        unit = session.get_one(Unit, unit_id)
        assert unit.trace_root
        assert unit.payload_hash
        key = to_hex(unit_leaf(unit.job_id, unit.round, unit.slot, unit.provider, unit.trace_root, unit.payload_hash))
        session.add(Acknowledgement(unit_id=unit.id, leaf=key, include_by=utc_now(), signature="0x"))
        return key


def paid(world: SettlementWorld, key: str) -> contested_units.Paid | None:
    return world.call(contested_units.paid, key, world.chain.client().head().timestamp)


def withheld_of(world: SettlementWorld, batch_id: int, provider: str) -> int:
    data = encode_call("JobEscrow", "withheldOf", [batch_id, provider])
    found = world.chain.client().call(world.chain.deployment.address("JobEscrow"), data)
    return int(decode_result("JobEscrow", "withheldOf", found))


def test_payout_can_be_held_until_claimable(world: SettlementWorld) -> None:
    disputes = Wallet(world.chain.deployment.address("Disputes"), "")
    first, second = world.job(), world.job()
    units = [*world.work(first, 0, *PROVIDERS[:3]), *world.work(first, 1, PROVIDERS[0])]
    units += world.work(second, 0, *PROVIDERS[1:])
    keys = [acknowledged(world, unit) for unit in units]
    assert [paid(world, key) for key in keys] == [None] * len(keys)  # in no batch yet
    world.settled(after=timedelta(hours=1))
    world.chain.anvil.rpc("anvil_impersonateAccount", disputes.address)
    world.chain.anvil.rpc("anvil_setBalance", disputes.address, hex(10**18))
    expected: dict[str, int] = {}
    for key in keys:
        found = paid(world, key)
        due = due_hold(key, found)
        assert found is not None
        assert due is not None
        assert (due.call["function"], found.price) == ("withhold", PRICE)
        fields: Mapping[str, object] = asdict(found.commitment)
        world.chain.send(disputes, "JobEscrow", "withhold", found.batch_id, fields, found.price, found.proof)
        provider = found.commitment.provider
        expected[provider] = expected.get(provider, 0) + UNIT_PAY
        assert withheld_of(world, found.batch_id, provider) == expected[provider]
    world.pass_challenge_period()
    assert [paid(world, key) for key in keys] == [None] * len(keys)
    assert due_hold(keys[0], None) is None


def test_batch_proof_is_built_only_per_call(world: SettlementWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    unit, *_ = world.work(world.job(), 0, *PROVIDERS)
    key = acknowledged(world, unit)
    world.settled(after=timedelta(hours=1))
    made: list[str] = []
    prove = settlement_batch.unit_proof

    def counted(*arguments: Any) -> list[str]:
        made.append(key)
        return prove(*arguments)

    monkeypatch.setattr(contested_units, "unit_proof", counted)

    def look() -> int:
        world.call(dispute_keeper._withhold, key, world.chain.client().head().timestamp, kept=None)
        return len(made)

    assert [look(), look(), look()] == [1, 1, 1]
    with world.database.transaction() as session:
        (intent,) = intents_about(session, f"dispute:{key}")
        assert intent.function == "withhold"
        intent.status, intent.updated_at = IntentStatus.REVERTED, utc_now() - 2 * RETRY_AFTER
    assert [look(), look()] == [2, 2]
    world.pass_challenge_period()
    with world.database.transaction() as session:
        for intent in intents_about(session, f"dispute:{key}"):
            intent.status, intent.updated_at = IntentStatus.REVERTED, utc_now() - 2 * RETRY_AFTER
    assert look() == 2  # it is too late


class Contested:
    def __init__(self, world: SettlementWorld, provider: Wallet) -> None:
        self.world, job_id = world, world.job()
        (unit_id,) = world.work(job_id, 0, provider)
        self._states = [sha256(bytes([boundary])) for boundary in range(world.orders[job_id]["segments"] + 1)]
        leaves = [trace.state_leaf(job_id, 0, 0, j, state, ENVIRONMENT) for j, state in enumerate(self._states)]
        root = to_hex(trace.trace_root(leaves))
        world.change(Unit, unit_id, trace_root=root)
        self.key, self.job_id = acknowledged(world, unit_id), job_id
        self.unit_id = unit_id
        self.unit = UnitCommitment(job_id, 0, 0, provider.address, root, world.units(job_id)[0].payload_hash or "")
        domain = Domain(31337, world.chain.deployment.address("JobEscrow"))
        self._signature = sign(provider.key, typed_data(domain, self.unit))
        self.transact(OPERATOR, "WorkWindows", "commitWindow", self.key, 1)

    def transact(self, sender: Wallet, contract: str, function: str, *arguments: Any) -> None:
        sent = self.world.chain.send(sender, contract, function, *arguments)
        assert self.world.chain.anvil.rpc("eth_getTransactionReceipt", sent)["status"] == "0x1", function

    def open(self, challenger: Wallet, root: str | None = None, proof: Sequence[str] = ()) -> str:
        bond = DEVNET.disputes.bond_wei
        if challenger != OTHER:
            self.world.chain.anvil.rpc("anvil_impersonateAccount", challenger.address)
            self.world.chain.anvil.rpc("anvil_setBalance", challenger.address, hex(10**18))
            self.transact(OTHER, "ZenToken", "transfer", challenger.address, bond)
        self.transact(challenger, "ZenToken", "approve", self.world.chain.deployment.address("Disputes"), bond)
        order = self.world.orders[self.job_id]
        self.transact(
            challenger, "Disputes", "open", order, asdict(self.unit), self._signature, root or self.key, proof
        )
        return dispute_id(self.key, challenger.address)

    def show(self, dispute: str) -> None:
        states = [to_hex(state) for state in self._states]
        self.transact(OTHER, "Disputes", "showTrace", dispute, asdict(self.unit), ENVIRONMENT, states)

    def pass_turn(self) -> None:
        self.pass_time(DEVNET.disputes.turn_seconds)

    def pass_time(self, seconds: int) -> None:
        self.world.chain.anvil.rpc("evm_increaseTime", seconds + 1)
        self.world.chain.anvil.mine()

    def keep(self) -> None:
        self.world.finalise()
        dispute_keeper.queue_due_calls(self.world.database, DEVNET, self.world.chain.views)
        self.world.send()
        self.world.finalise()


def test_losing_unit_in_pending_batch_is_not_paid(world: SettlementWorld) -> None:
    """A challenger could execute the verdict as soon as the batch is visible."""
    provider = PROVIDERS[0]
    contested = Contested(world, provider)
    dispute = contested.open(OTHER)
    contested.pass_turn()
    world.index()
    world.settle(after=timedelta(hours=1))
    contested.transact(OTHER, "Disputes", "expire", dispute)  # the provider was silent
    world.send()
    contested.keep()
    (batch,) = world.batches()
    assert batch.batch_id is not None
    assert withheld_of(world, batch.batch_id, provider.address) == UNIT_PAY
    world.pass_challenge_period()
    before = world.chain.views.balance_of(PAYER.address)
    contested.keep()
    assert world.claim_all()[provider.address] == 0
    assert world.chain.views.balance_of(PAYER.address) == before + UNIT_PAY * 100 // 95
    assert reconcile(world.database, world.chain.client(), world.chain.deployment).difference_wei == 0


def test_dispute_of_old_unit_is_rejected_by_market(world: SettlementWorld) -> None:
    """The operator's key commits an old leaf again; its provider is not there to answer."""
    contested, stranger = Contested(world, PROVIDERS[0]), "0x" + "77" * 32
    with world.database.transaction() as session:
        committed_at = from_unix(world.chain.client().head().timestamp)
        window = Window(status=WindowStatus.LATCHED, root=contested.key, leaf_count=1, committed_at=committed_at)
        session.add(window)
        session.flush()
        session.get_one(Unit, contested.unit_id).window_id = window.id
    contested.pass_time(DEVNET.disputes.period_seconds)
    again = to_hex(merkle.root([from_hex(contested.key), from_hex(stranger)]))
    contested.transact(OPERATOR, "WorkWindows", "commitWindow", again, 2)
    contested.open(OTHER, again, [stranger])
    world.index()
    for _ in range(2):
        contested.keep()
    with world.database.transaction() as session:
        (dispute,) = session.scalars(select(Dispute))
    assert dispute.status == DisputeStatus.CHALLENGER_LOST


def test_losing_unit_of_vetoed_batch_stays_excluded(world: SettlementWorld) -> None:
    provider = PROVIDERS[0]
    contested = Contested(world, provider)
    lapses = contested.open(OTHER)
    world.index()
    world.settled(after=timedelta(hours=1))
    contested.keep()
    (first,) = world.batches()
    assert first.batch_id is not None
    assert withheld_of(world, first.batch_id, provider.address) == UNIT_PAY
    world.veto(first)
    contested.show(lapses)
    contested.pass_turn()
    contested.transact(OTHER, "Disputes", "expire", lapses)  # no step was named
    contested.open(wallet(12))
    world.index()
    world.settled(after=timedelta(hours=2))
    contested.keep()
    *_, second = world.batches()
    assert second.batch_id is not None
    assert second.batch_id != first.batch_id
    assert withheld_of(world, second.batch_id, provider.address) == UNIT_PAY


def as_disputes(world: SettlementWorld, function: str, *arguments: object) -> None:
    disputes = Wallet(world.chain.deployment.address("Disputes"), "")
    world.chain.anvil.rpc("anvil_impersonateAccount", disputes.address)
    world.chain.anvil.rpc("anvil_setBalance", disputes.address, hex(10**18))
    world.chain.send(disputes, "JobEscrow", function, *arguments)


def withhold(world: SettlementWorld, key: str) -> None:
    found = paid(world, key)
    assert found is not None
    as_disputes(world, "withhold", found.batch_id, asdict(found.commitment), found.price, found.proof)


def collect_fees(world: SettlementWorld) -> int:
    claims.collect_fees(world.database, lambda: world.chain.client().head().timestamp)
    world.send()
    world.finalise()
    return world.chain.views.balance_of(world.chain.deployment.address("Treasury"))


def test_restored_payout_and_fee_arrive_normally(world: SettlementWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "utc_now", lambda: utc_now() + timedelta(days=30))  # beyond the chain's clock
    job_id = world.job()
    alone, one, *_ = world.work(job_id, 0, PROVIDERS[0], PROVIDERS[1])
    world.work(job_id, 1, PROVIDERS[1])
    keys = [acknowledged(world, unit) for unit in (alone, one)]
    world.end(job_id)
    world.settled()
    for key in keys:
        withhold(world, key)
    world.pass_challenge_period()
    fee = world.read(job_id).fee_wei
    assert fee is not None
    assert collect_fees(world) == fee // 3
    # a held payout delays no other claim, and the public view is complete
    assert world.claim_all() == {wallet.address: UNIT_PAY * (wallet is PROVIDERS[1]) for wallet in PROVIDERS}
    world.check(job_id)
    for key in keys:
        as_disputes(world, "release", key, True)
    world.index()
    assert world.claim_all() == {wallet.address: UNIT_PAY * (wallet is PROVIDERS[0]) for wallet in PROVIDERS}
    assert [world.chain.views.balance_of(wallet.address) for wallet in PROVIDERS[:2]] == [UNIT_PAY, 2 * UNIT_PAY]
    assert collect_fees(world) == fee
    world.check(job_id)


def take_earnings(world: SettlementWorld, provider: Wallet, *, index: bool = True) -> list[int]:
    found = world.call(claims.claims_of, provider.address, claimed=False, after_batch=0, limit=200)
    listed = [
        Claim(
            job_ids=claim.job_ids,
            batch_id=batch.batch_id or 0,
            amount_wei=claim.amount_wei,
            proof=claim.proof,
            claimable_at=batch.claimable_at or utc_now(),
            claim_tx=None,
        )
        for batch, claim in found
    ]
    network = Network.model_construct(rpc_url=world.chain.anvil.url, contracts=dict(world.chain.deployment.contracts))
    taken, _ = earnings.claim_pay(listed, network, OwnWallet(provider.key), None)
    if index:
        world.index()
    return [claim.batch_id for claim in taken]


def test_listed_but_claimed_payout_does_not_block_others(world: SettlementWorld) -> None:
    job_id = world.job()
    for round_ in range(2):
        world.work(job_id, round_, PROVIDERS[0])
        world.settled(after=timedelta(hours=1 + round_))
        world.pass_challenge_period()
        assert len(take_earnings(world, PROVIDERS[0], index=False)) == 1
    assert take_earnings(world, PROVIDERS[0]) == []
    assert world.chain.views.balance_of(PROVIDERS[0].address) == 2 * UNIT_PAY


def test_fully_held_batch_does_not_block_others(world: SettlementWorld) -> None:
    job_id = world.job()
    keys = []
    for round_ in range(3):
        (unit,) = world.work(job_id, round_, PROVIDERS[0])
        keys.append(acknowledged(world, unit))
        world.settled(after=timedelta(hours=1 + round_))
    withhold(world, keys[0])
    withhold(world, keys[1])
    as_disputes(world, "release", keys[1], False)  # forfeited: this batch never pays
    world.pass_challenge_period()
    assert take_earnings(world, PROVIDERS[0]) == [3]
    assert take_earnings(world, PROVIDERS[0]) == []
    as_disputes(world, "release", keys[0], True)
    assert take_earnings(world, PROVIDERS[0]) == [1]
    assert world.chain.views.balance_of(PROVIDERS[0].address) == 2 * UNIT_PAY
