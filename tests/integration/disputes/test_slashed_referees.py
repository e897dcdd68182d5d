"""What referees' signatures prove against them, from the market's API to the stake on a chain. Nothing is trained."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from kit.api.clients import Cli
from kit.chain.anvil import AnvilProcess
from kit.chain.deployed_chain import OPERATOR, OTHER, PROVIDER, Chain, Wallet, chain_settings, deploy_contracts, wallet

from market.chain.models import TxIntent
from market.domain.network import DEVNET, MAINNET, ZEN
from market.payments.settlement import dispute_keeper
from market.platform.db.session import Database
from market.settings import Settings
from market.verification.disputes import referee_list
from worker.chain_handlers import INTENT_HANDLERS, event_handlers
from zoo_compute.audit.misconduct_proof import CONTRADICTION, WRONG_VERDICT
from zoo_compute.base.errors import ApiError, ExitCode
from zoo_compute.chain.disputes import DisputePhase
from zoo_compute.chain.referees import RefereeChain
from zoo_compute.chain.wallet import Wallet as NodeWallet
from zoo_compute.client.http import Connection
from zoo_compute.node.market.calls import Market
from zoo_protocol.hashing import sha256, to_hex
from zoo_protocol.messages import Domain, UnitCommitment, finding_of, sign, typed_data
from zoo_protocol.payments.job_record import leaf_of
from zoo_protocol.verification import trace

REFEREES = [wallet(index) for index in range(20, 26)]
STAKE = 500 * ZEN
TERMS = MAINNET.disputes
NETWORK = replace(DEVNET, disputes=TERMS)
"""With committees of five."""
ENVIRONMENT = to_hex(sha256(b"class"))


@pytest.fixture
def chain(own_anvil: AnvilProcess, tmp_path: Path) -> Chain:
    deployment = deploy_contracts(own_anvil, NETWORK)
    own_anvil.mine(3)
    return Chain(own_anvil, deployment, chain_settings(own_anvil, deployment, tmp_path))


@pytest.fixture
def settings(settings: Settings, chain: Chain) -> Settings:
    names = ("rpc_url", "deployment_file", "acknowledger_key")
    return settings.model_copy(update={name: getattr(chain.settings, name) for name in names})


class Courtroom:
    def __init__(self, database_url: str, chain: Chain, api_url: str) -> None:
        self.chain, self.api_url, self.database = chain, api_url, Database(database_url)
        self._sender = chain.sender(self.database, INTENT_HANDLERS)
        handlers = event_handlers(NETWORK, chain.deployment).items()
        known = {
            event: found for event, found in handlers if event[0] != "WorkWindows"
        }  # the window is none of its own
        self._indexer = chain.indexer(self.database, known)
        for account in REFEREES:
            chain.anvil.rpc("anvil_impersonateAccount", account.address)
            chain.anvil.rpc("anvil_setBalance", account.address, hex(ZEN))
            self.transact(OTHER, "ZenToken", "transfer", account.address, STAKE)
            chain.stake(account, STAKE)
            self.transact(account, "Disputes", "registerReferee")
        self.id = self._opened()
        self.keep()
        self.committee = self.contract(OTHER).committee(self.id)
        self.members = [next(one for one in REFEREES if one.address == member) for member in self.committee]

    def _opened(self) -> str:
        job, opening = self.chain.order(ZEN, segments=1)
        states = [sha256(bytes([j])) for j in range(2)]
        root = trace.trace_root([trace.state_leaf(job, 0, 0, j, s, ENVIRONMENT) for j, s in enumerate(states)])
        unit = UnitCommitment(job, 0, 0, PROVIDER.address, to_hex(root), ENVIRONMENT)
        escrow, disputes = (self.chain.deployment.address(name) for name in ("JobEscrow", "Disputes"))
        signature = sign(PROVIDER.key, typed_data(Domain(31337, escrow), unit))
        window = to_hex(leaf_of(unit))
        self.chain.stake(PROVIDER, 1_000 * ZEN)
        self.transact(OPERATOR, "WorkWindows", "commitWindow", window, 1)
        self.transact(OTHER, "ZenToken", "approve", disputes, TERMS.bond_wei)
        fields = {name: getattr(unit, name) for name in unit.__slots__}
        self.transact(OTHER, "Disputes", "open", opening[0], fields, signature, window, [])
        id_ = to_hex(self.contract(OTHER)._disputes.functions.disputeIdOf(leaf_of(unit), OTHER.address).call())
        self.transact(OTHER, "Disputes", "showTrace", id_, fields, ENVIRONMENT, [to_hex(state) for state in states])
        return id_

    def transact(self, sender: Wallet, contract: str, function: str, *arguments: Any) -> None:
        sent = self.chain.send(sender, contract, function, *arguments)
        assert self.chain.anvil.rpc("eth_getTransactionReceipt", sent)["status"] == "0x1", function

    def contract(self, account: Wallet) -> RefereeChain:
        return RefereeChain(self.chain.anvil.url, self.chain.deployment.contracts, NodeWallet(account.key))

    def keep(self) -> None:
        for _ in range(2):
            self.follow()
            dispute_keeper.queue_due_calls(self.database, NETWORK, self.chain.views)
        self.follow()

    def follow(self) -> None:
        for _ in range(2):
            while self._sender.step():
                pass
            self.chain.anvil.mine(4)
        while self._sender.step():
            pass
        while self._indexer.step():
            pass

    def signature(self, referee: Wallet, reason: str) -> str:
        message = finding_of(self.id, 0, reason == "step_correct", reason)
        return sign(referee.key, typed_data(self.contract(OTHER).domain, message))

    def give(self, referee: Wallet, reason: str) -> str:
        finding = {"dispute_id": self.id, "draw": 0, "provider_correct": reason == "step_correct", "reason": reason}
        market = Market(Connection(self.api_url, wallet=NodeWallet(OTHER.key), retry_seconds=0.1))
        try:
            market.give_verdict({**finding, "signature": self.signature(referee, reason)})
        except ApiError as error:
            return error.code
        return "taken"

    def stakes(self) -> list[int]:
        return [self.chain.views.stake_of(member) for member in self.committee]

    def penalties(self) -> list[tuple[str, str]]:
        with self.database.transaction() as session:
            found = session.query(TxIntent).filter(TxIntent.kind == "punish_referee").order_by(TxIntent.id)
            return [(intent.function, intent.status) for intent in found]

    def evictions(self) -> list[str]:
        with self.database.transaction() as session:
            found = session.query(TxIntent).filter(TxIntent.kind == "evict_referee")
            return [intent.subject.removeprefix("referee:") for intent in found.order_by(TxIntent.id)]


@pytest.fixture
def court(database_url: str, chain: Chain, server: tuple[FastAPI, str], app: FastAPI) -> Iterator[Courtroom]:
    found = Courtroom(database_url, chain, server[1])
    assert len(found.members) == TERMS.seats
    yield found
    found.database.dispose()


def test_equivocating_referee_loses_all_slashable_balance_once(court: Courtroom) -> None:
    liar, *others = court.members
    assert court.give(liar, "step_correct") == "taken"
    assert court.give(liar, "data_withheld") == "verdict-differs"  # no contradiction: it is an objection
    court.follow()
    assert (court.stakes(), court.penalties()) == ([STAKE] * 5, [])
    assert [court.give(liar, "step_false") for _ in range(2)] == ["verdict-differs"] * 2
    court.keep()
    assert court.penalties() == [("proveContradiction", "final")]
    assert court.stakes() == [0, STAKE, STAKE, STAKE, STAKE]
    assert court.contract(OTHER).penalties_in(court.id) == {(0, liar.address, CONTRADICTION)}
    for referee in others:
        assert court.give(referee, "step_correct") == "taken"
    court.keep()  # the dispute goes on as if nothing had been
    assert court.contract(OTHER).dispute(court.id).phase is DisputePhase.CHALLENGER_LOST
    assert court.stakes() == [0, STAKE, STAKE, STAKE, STAKE]
    assert len(court.penalties()) == 1


def test_outvoted_referee_loses_fifth_to_majority(court: Courtroom) -> None:
    assert [court.give(referee, "step_false") for referee in court.members[:3]] == ["taken"] * 3
    dispute_keeper.queue_due_calls(court.database, NETWORK, court.chain.views)
    court.follow()
    assert court.contract(OTHER).dispute(court.id).phase is DisputePhase.JUDGING  # a quorum waits for the others
    assert court.give(court.members[3], "step_correct") == "taken"
    assert court.give(court.members[4], "step_false") == "taken"
    court.keep()
    assert court.penalties() == [("proveWrongVerdict", "final")]
    assert court.stakes() == [STAKE, STAKE, STAKE, STAKE * 4 // 5, STAKE]
    assert court.contract(OTHER).dispute(court.id).phase is DisputePhase.PROVIDER_LOST
    fees = [court.contract(referee).credits() for referee in court.members]
    assert fees == [TERMS.referee_fee_wei] * 3 + [0, TERMS.referee_fee_wei]
    court.keep()
    assert court.penalties() == [("proveWrongVerdict", "final")]


def test_objecting_or_absent_referee_loses_nothing(court: Courtroom) -> None:
    reasons = ["step_false", "step_false", "data_withheld", "step_correct"]
    given = [court.give(referee, reason) for referee, reason in zip(court.members[:4], reasons, strict=True)]
    assert given == ["taken"] * 4
    court.chain.anvil.rpc("evm_increaseTime", NETWORK.verdict_wait_seconds)
    court.keep()
    assert court.contract(OTHER).dispute(court.id).phase is DisputePhase.PROVIDER_LOST  # the objection counts
    assert (court.penalties(), court.stakes()) == ([], [STAKE] * 5)
    fees = [court.contract(referee).credits() for referee in court.members]
    assert fees == [TERMS.referee_fee_wei] * 2 + [0, 0, 0]


def test_any_account_proves_equivocation_by_signatures(court: Courtroom, cli: Cli, tmp_path: Path) -> None:
    def journal(*given: tuple[Wallet, str]) -> Path:
        found = [
            {
                "dispute_id": court.id,
                "draw": 0,
                "provider_correct": reason == "step_correct",
                "reason": reason,
                "signature": court.signature(referee, reason),
            }
            for referee, reason in given
        ]
        file = tmp_path / f"{len(given)}.json"
        file.write_text(json.dumps(found))
        return file

    cli.be(OTHER.key)
    liar, *others = court.members
    assert "nothing-to-accuse" in cli("dispute", "accuse", court.id, code=ExitCode.FAILED)
    few = journal((liar, "step_false"), *[(one, "step_correct") for one in others[:3]])
    assert "nothing-to-accuse" in cli("dispute", "accuse", court.id, "--file", few, code=ExitCode.FAILED)
    file = journal((liar, "step_false"), *[(one, "step_correct") for one in others])
    (shown,) = cli.json("dispute", "accuse", court.id, "--file", file)
    assert (shown["referee"], shown["offence"]) == (liar.address, WRONG_VERDICT)
    assert court.stakes() == [STAKE * 4 // 5, STAKE, STAKE, STAKE, STAKE]
    assert "nothing-to-accuse" in cli("dispute", "accuse", court.id, "--file", file, code=ExitCode.FAILED)
    both = journal((liar, "step_false"), (liar, "step_correct"))
    assert liar.address in cli("dispute", "accuse", court.id, "--file", both)
    assert court.stakes() == [0, STAKE, STAKE, STAKE, STAKE]


def test_referee_listing_is_renewed_while_node_runs(court: Courtroom) -> None:
    node = court.contract(REFEREES[0])
    assert not node.should_enlist()
    court.chain.anvil.rpc("evm_increaseTime", 15 * 86_400)
    court.chain.anvil.mine()
    assert node.should_enlist()
    node.enlist()
    assert not node.should_enlist()


def test_ineligible_referee_is_delisted(court: Courtroom) -> None:
    """A draw examines a limited number of entries; ineligible ones would leave committees incomplete."""
    liar = court.members[0]
    court.give(liar, "step_correct")
    court.give(liar, "step_false")
    court.follow()
    assert court.stakes()[0] == 0
    contract = court.contract(OTHER)._disputes.functions
    assert contract.refereeCount().call() == len(REFEREES)
    for _ in range(2):
        referee_list.evict_idle(court.database, court.chain.views)
        court.follow()
    assert contract.refereeCount().call() == len(REFEREES) - 1
    assert not contract.isReferee(liar.address).call()
    assert court.evictions() == [liar.address]

    court.chain.anvil.rpc("evm_increaseTime", 29 * 86_400)
    court.chain.anvil.mine()
    renewed = next(one for one in REFEREES if one != liar)
    court.transact(renewed, "Disputes", "registerReferee")
    court.chain.anvil.rpc("evm_increaseTime", 2 * 86_400)
    court.follow()
    referee_list.evict_idle(court.database, court.chain.views)
    court.follow()
    assert contract.refereeCount().call() == 1  # who did not renew its entry
    assert contract.isReferee(renewed.address).call()
    assert len(court.evictions()) == len(set(court.evictions())) == len(REFEREES) - 1


def test_no_referee_is_delisted_during_pending_draw(court: Courtroom) -> None:
    court.chain.anvil.rpc("evm_increaseTime", TERMS.verdict_seconds + 1)
    court.chain.anvil.mine()
    committee = [member.address for member in court.members]
    court.transact(OTHER, "Disputes", "replaceCommittee", court.id, committee)  # another committee is to be drawn
    court.chain.anvil.rpc("evm_increaseTime", 31 * 86_400)
    court.follow()
    referee_list.evict_idle(court.database, court.chain.views)
    court.follow()
    assert court.evictions() == []
