"""Slashing of referees by their signatures, from API to stake on chain; no training."""

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
from kit.waiting import drain

from market.chain.models import TxIntent
from market.domain.network import DEVNET, MAINNET, ZEN
from market.payments.settlement import dispute_keeper
from market.platform.db.session import Database
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


class CommitteeCase:
    def __init__(self, database_url: str, chain: Chain, api_url: str) -> None:
        self.chain, self.api_url, self.database = chain, api_url, Database(database_url)
        self._sender = chain.sender(self.database, INTENT_HANDLERS)
        handlers = event_handlers(NETWORK, chain.deployment).items()
        known = {event: found for event, found in handlers if event[0] != "WorkWindows"}  # its window is foreign
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
            drain(self._sender)
            self.chain.anvil.mine(4)
        drain(self._sender)
        drain(self._indexer)

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
def case(database_url: str, chain: Chain, server: tuple[FastAPI, str], app: FastAPI) -> Iterator[CommitteeCase]:
    found = CommitteeCase(database_url, chain, server[1])
    assert len(found.members) == TERMS.seats
    yield found
    found.database.dispose()


@pytest.mark.long
def test_equivocating_referee_loses_all_slashable_balance_once(case: CommitteeCase) -> None:
    offender, *others = case.members
    assert case.give(offender, "step_correct") == "taken"
    assert case.give(offender, "data_withheld") == "verdict-differs"  # no contradiction: it is an objection
    case.follow()
    assert (case.stakes(), case.penalties()) == ([STAKE] * 5, [])
    assert [case.give(offender, "step_false") for _ in range(2)] == ["verdict-differs"] * 2
    case.keep()
    assert case.penalties() == [("proveContradiction", "final")]
    assert case.stakes() == [0, STAKE, STAKE, STAKE, STAKE]
    assert case.contract(OTHER).penalties_in(case.id) == {(0, offender.address, CONTRADICTION)}
    for referee in others:
        assert case.give(referee, "step_correct") == "taken"
    case.keep()  # the dispute goes on as if nothing had been
    assert case.contract(OTHER).dispute(case.id).phase is DisputePhase.CHALLENGER_LOST
    assert case.stakes() == [0, STAKE, STAKE, STAKE, STAKE]
    assert len(case.penalties()) == 1


@pytest.mark.long
def test_outvoted_referee_loses_fifth_to_majority(case: CommitteeCase) -> None:
    assert [case.give(referee, "step_false") for referee in case.members[:3]] == ["taken"] * 3
    dispute_keeper.queue_due_calls(case.database, NETWORK, case.chain.views)
    case.follow()
    assert case.contract(OTHER).dispute(case.id).phase is DisputePhase.JUDGING  # a quorum waits for the others
    assert case.give(case.members[3], "step_correct") == "taken"
    assert case.give(case.members[4], "step_false") == "taken"
    case.keep()
    assert case.penalties() == [("proveWrongVerdict", "final")]
    assert case.stakes() == [STAKE, STAKE, STAKE, STAKE * 4 // 5, STAKE]
    assert case.contract(OTHER).dispute(case.id).phase is DisputePhase.PROVIDER_LOST
    fees = [case.contract(referee).credits() for referee in case.members]
    assert fees == [TERMS.referee_fee_wei] * 3 + [0, TERMS.referee_fee_wei]
    case.keep()
    assert case.penalties() == [("proveWrongVerdict", "final")]


@pytest.mark.long
def test_objecting_or_absent_referee_loses_nothing(case: CommitteeCase) -> None:
    reasons = ["step_false", "step_false", "data_withheld", "step_correct"]
    given = [case.give(referee, reason) for referee, reason in zip(case.members[:4], reasons, strict=True)]
    assert given == ["taken"] * 4
    case.chain.anvil.rpc("evm_increaseTime", NETWORK.verdict_wait_seconds)
    case.keep()
    assert case.contract(OTHER).dispute(case.id).phase is DisputePhase.PROVIDER_LOST  # the objection counts
    assert (case.penalties(), case.stakes()) == ([], [STAKE] * 5)
    fees = [case.contract(referee).credits() for referee in case.members]
    assert fees == [TERMS.referee_fee_wei] * 2 + [0, 0, 0]


@pytest.mark.long
def test_any_account_proves_equivocation_by_signatures(case: CommitteeCase, cli: Cli, tmp_path: Path) -> None:
    def journal(*given: tuple[Wallet, str]) -> Path:
        found = [
            {
                "dispute_id": case.id,
                "draw": 0,
                "provider_correct": reason == "step_correct",
                "reason": reason,
                "signature": case.signature(referee, reason),
            }
            for referee, reason in given
        ]
        file = tmp_path / f"{len(given)}.json"
        file.write_text(json.dumps(found))
        return file

    cli.be(OTHER.key)
    offender, *others = case.members
    assert "nothing-to-accuse" in cli("dispute", "accuse", case.id, code=ExitCode.FAILED)
    few = journal((offender, "step_false"), *[(one, "step_correct") for one in others[:3]])
    assert "nothing-to-accuse" in cli("dispute", "accuse", case.id, "--file", few, code=ExitCode.FAILED)
    file = journal((offender, "step_false"), *[(one, "step_correct") for one in others])
    (shown,) = cli.json("dispute", "accuse", case.id, "--file", file)
    assert (shown["referee"], shown["offence"]) == (offender.address, WRONG_VERDICT)
    assert case.stakes() == [STAKE * 4 // 5, STAKE, STAKE, STAKE, STAKE]
    assert "nothing-to-accuse" in cli("dispute", "accuse", case.id, "--file", file, code=ExitCode.FAILED)
    both = journal((offender, "step_false"), (offender, "step_correct"))
    assert offender.address in cli("dispute", "accuse", case.id, "--file", both)
    assert case.stakes() == [0, STAKE, STAKE, STAKE, STAKE]


def test_referee_listing_is_renewed_while_node_runs(case: CommitteeCase) -> None:
    node = case.contract(REFEREES[0])
    assert not node.should_enlist()
    case.chain.anvil.rpc("evm_increaseTime", 15 * 86_400)
    case.chain.anvil.mine()
    assert node.should_enlist()
    node.enlist()
    assert not node.should_enlist()


def test_ineligible_referee_is_delisted(case: CommitteeCase) -> None:
    """A draw examines few entries; ineligible ones would leave committees incomplete."""
    offender = case.members[0]
    case.give(offender, "step_correct")
    case.give(offender, "step_false")
    case.follow()
    assert case.stakes()[0] == 0
    contract = case.contract(OTHER)._disputes.functions
    assert contract.refereeCount().call() == len(REFEREES)
    for _ in range(2):
        referee_list.evict_idle(case.database, case.chain.views)
        case.follow()
    assert contract.refereeCount().call() == len(REFEREES) - 1
    assert not contract.isReferee(offender.address).call()
    assert case.evictions() == [offender.address]

    case.chain.anvil.rpc("evm_increaseTime", 29 * 86_400)
    case.chain.anvil.mine()
    renewed = next(one for one in REFEREES if one != offender)
    case.transact(renewed, "Disputes", "registerReferee")
    case.chain.anvil.rpc("evm_increaseTime", 2 * 86_400)
    case.follow()
    referee_list.evict_idle(case.database, case.chain.views)
    case.follow()
    assert contract.refereeCount().call() == 1  # the others did not renew their entry
    assert contract.isReferee(renewed.address).call()
    assert len(case.evictions()) == len(set(case.evictions())) == len(REFEREES) - 1


def test_no_referee_is_delisted_during_pending_draw(case: CommitteeCase) -> None:
    case.chain.anvil.rpc("evm_increaseTime", TERMS.verdict_seconds + 1)
    case.chain.anvil.mine()
    committee = [member.address for member in case.members]
    case.transact(OTHER, "Disputes", "replaceCommittee", case.id, committee)  # another committee is to be drawn
    case.chain.anvil.rpc("evm_increaseTime", 31 * 86_400)
    case.follow()
    referee_list.evict_idle(case.database, case.chain.views)
    case.follow()
    assert case.evictions() == []
