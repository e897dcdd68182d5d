"""Acknowledged commitments on a real chain: kept, omitted, falsely claimed, reorganised."""

import time
from collections.abc import Iterator
from dataclasses import asdict, astuple, dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from eth_account import Account as Keys
from fastapi import FastAPI
from kit import records
from kit.api.clients import Cli
from kit.chain.anvil import AnvilProcess
from kit.chain.deployed_chain import ACKNOWLEDGER, BOND, FUNDS, PROVIDER, Chain, deploy_own
from kit.errors import raising
from kit.jobs.jobs_fixtures import World
from kit.jobs.unit_results import Work
from kit.waiting import delay, drain
from sqlalchemy import select

from market.app import build_services
from market.chain.models import TxIntent
from market.chain.views import ChainViews
from market.domain.network import DEVNET
from market.ledger.reconciliation import reconcile
from market.ledger.service import balances
from market.platform.db.base import utc_now
from market.settings import Settings
from market.training.commitments import repository as commitments_repository
from market.training.commitments.models import Acknowledgement as StoredAcknowledgement
from market.training.leases import expiry
from market.verification.decisions import service as decisions_service
from worker.chain_handlers import event_handlers
from zoo_compute.base.errors import Unreachable, ZooError
from zoo_compute.base.models import Network
from zoo_compute.chain.omissions import OmissionChain
from zoo_compute.chain.wallet import Wallet
from zoo_compute.client.http import Connection
from zoo_compute.node.disk.traces import Inclusion, Traces
from zoo_compute.node.disputes.omissions import Omissions, Status
from zoo_compute.node.market.calls import Lease, Market
from zoo_compute.node.work.acknowledgements import Acknowledgements, Journal, NotAcknowledged
from zoo_protocol import messages
from zoo_protocol.hashing import to_hex
from zoo_protocol.payments.job_record import leaf_of

TERMS = DEVNET.omissions
EPOCH_BLOCKS = 2
FINALITY = 2 * EPOCH_BLOCKS


@dataclass
class Stage:
    chain: Chain
    world: World
    settings: Settings
    services: Any
    network: Network
    connection: Connection
    journal: Journal
    traces: Traces

    @property
    def node_chain(self) -> OmissionChain:
        return OmissionChain(self.network.rpc_url, self.network.contracts, Wallet(PROVIDER.key))

    def taker(self) -> Acknowledgements:
        return Acknowledgements(self.journal, self.network, lambda: self.node_chain)

    def omissions(self) -> Omissions:
        return Omissions(self.journal, self.traces, self.connection, lambda: self.node_chain)

    def statuses(self) -> list[Status]:
        return [finding.status for finding in self.omissions().look()]

    def work(self) -> tuple[Work, messages.UnitCommitment, dict[str, Any]]:
        self.world.running([PROVIDER.address])
        work = self.world.work(PROVIDER.address)
        work.report_probe()
        body = work.commitment(self.services.domain).model_dump()
        task = work.lease.task
        unit = messages.UnitCommitment(
            task["job_id"], task["round"], task["slot"], PROVIDER.address, body["trace_root"], body["payload_hash"]
        )
        return work, unit, body

    def commit(self, work: Work, body: dict[str, Any]) -> dict[str, Any]:
        answer = Market(self.connection).commit(Lease.from_dict(work.lease.model_dump()), body)["acknowledgement"]
        assert isinstance(answer, dict)
        return answer

    def delivered(self) -> messages.UnitCommitment:
        work, unit, body = self.work()
        self.taker().take(unit, self.commit(work, body))
        work.complete()
        return unit

    def run(self, blocks: int = FINALITY + 1) -> None:
        handlers = event_handlers(DEVNET, self.chain.deployment)
        sender = self.chain.sender(self.world.database)
        indexer = self.chain.indexer(self.world.database, handlers)
        for _ in range(blocks):
            decisions_service.advance(
                self.world.database, self.world.storage, self.settings, DEVNET, self.services.part(ChainViews)
            )
            drain(sender)
            self.chain.anvil.mine()
            drain(indexer)

    def pass_time(self, seconds: int) -> None:
        self.chain.anvil.rpc("evm_increaseTime", seconds + 60)
        self.chain.anvil.mine(FINALITY + 1)

    def metrics(self, api: httpx.Client) -> dict[str, float]:
        lines = api.get("/metrics").text.splitlines()
        wanted = ("zoo_acknowledgements_", "zoo_omission_")
        return {name: float(value) for name, value in (line.split() for line in lines if line.startswith(wanted))}

    def agrees(self) -> dict[str, int]:
        proof = reconcile(self.world.database, self.chain.client(), self.chain.deployment)
        assert proof.agrees, proof.differences
        return self.world.call(balances, "omissions", "omission", "bond")


@pytest.fixture
def stage(
    world: World, app: FastAPI, server: tuple[FastAPI, str], settings: Settings, tmp_path: Path
) -> Iterator[Stage]:
    with AnvilProcess(epoch_blocks=EPOCH_BLOCKS) as anvil:
        chain = deploy_own(anvil, tmp_path, depth=FINALITY)
        on_chain = {name: getattr(chain.settings, name) for name in ("rpc_url", "deployment_file", "acknowledger_key")}
        settings = settings.model_copy(update=on_chain)
        services = replace(build_services(settings), metrics=app.state.services.metrics)
        app.state.services = services
        world.wallets[PROVIDER.address] = Keys.from_key(PROVIDER.key)
        world.add(records.account(PROVIDER.address))
        world.register(PROVIDER.address)
        connection = Connection(server[1], wallet=Wallet(PROVIDER.key), retry_seconds=1.0)
        network = Network.model_validate(connection.get("/v1/network"))
        journal, traces = Journal(tmp_path / "acknowledgements"), Traces(tmp_path / "traces")
        yield Stage(chain, world, settings, services, network, connection, journal, traces)
        connection.close()
        services.database.dispose()
        services.redis.close()


def test_kept_acknowledgement_is_checked_on_chain_and_deleted(stage: Stage, api: httpx.Client) -> None:
    unit = stage.delivered()
    assert stage.statuses() == [Status.WAITING]
    assert stage.metrics(api)["zoo_acknowledgements_outstanding"] == 1
    stage.run()
    [finding] = stage.omissions().look()
    assert (finding.status, finding.over) == (Status.INCLUDED, True)
    shown = stage.connection.get(f"/v1/commitments/{to_hex(leaf_of(unit))}")
    proof = [bytes.fromhex(node[2:]) for node in shown["proof"]]
    includes = stage.node_chain._windows.functions.includes
    assert includes(bytes.fromhex(shown["window_root"][2:]), astuple(unit), proof).call()
    stage.omissions().watch()
    assert stage.journal.all() == []
    kept = stage.traces.inclusion(to_hex(leaf_of(unit)))
    assert kept == Inclusion(shown["window_root"], shown["proof"])
    assert stage.metrics(api) == {
        "zoo_acknowledgements_outstanding": 0,
        "zoo_acknowledgements_late": 0,
        "zoo_omission_claims_open": 0,
    }
    assert stage.agrees() == {"bond": BOND}


def test_python_acknowledgement_passes_contract_check(stage: Stage) -> None:
    work, unit, body = stage.work()
    given = stage.commit(work, body)
    leaf = to_hex(leaf_of(unit))
    domain = messages.omissions_domain(31337, stage.chain.deployment.address("Omissions"))
    contract = stage.node_chain._omissions.functions
    for unit_id, include_by in ((leaf, given["include_by"]), ("0x" + "ff" * 32, 2**40 - 1)):
        own = messages.digest(domain, messages.Acknowledgement(unit_id, include_by))
        assert contract.acknowledgementDigest(bytes.fromhex(unit_id[2:]), include_by).call() == own
    assert given["unit_id"] == leaf


def test_omitted_commitment_is_proven_and_paid_from_bond(
    stage: Stage, api: httpx.Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cli: Cli
) -> None:
    command = ("node", "omissions", "--state-dir", tmp_path)
    cli.be(PROVIDER.key)
    unit = stage.delivered()
    leaf = to_hex(leaf_of(unit))
    with monkeypatch.context() as fault:
        fault.setattr(commitments_repository, "lock_windowless_units", lambda *_: [])  # the market forgets
        stage.run()
        assert stage.statuses() == [Status.WAITING]
        stage.pass_time(stage.settings.inclusion_deadline_seconds)
    stage.run()  # included after all, but too late
    assert stage.connection.get(f"/v1/commitments/{leaf}")["window_root"]
    assert stage.statuses() == [Status.OMITTED]

    stage.omissions().watch()
    assert stage.statuses() == [Status.CLAIMED]
    assert stage.node_chain.balance() == FUNDS - TERMS.deposit_wei
    promise = stage.journal.all()[0]
    for include_by in (promise.include_by, promise.include_by - 1):  # a second time; with another time
        with pytest.raises(ZooError, match="refuses"):
            stage.node_chain.open_claim(unit, include_by, promise.signature)
    stage.run()
    assert stage.metrics(api)["zoo_omission_claims_open"] == 1
    assert stage.agrees() == {"bond": BOND, f"omission:{leaf}": TERMS.deposit_wei}
    assert intents(stage, "answer_omission") == []  # a late window is no answer
    assert cli.json(*command)["acknowledgements"][0]["status"] == "claimed"

    stage.pass_time(TERMS.answer_seconds)
    assert stage.statuses() == [Status.DUE]
    [taken] = cli.json(*command, "--prove")["acknowledgements"]
    assert taken["tx"].startswith("0x")
    assert stage.node_chain.balance() == FUNDS + TERMS.compensation_wei
    stage.omissions().watch()
    assert len(stage.journal.all()) == 1, "kept until the payment is final"
    stage.run()
    stage.omissions().watch()
    assert stage.journal.all() == []
    assert stage.agrees() == {"bond": BOND - TERMS.compensation_wei}
    listed = cli.json(*command)
    assert listed["bond_wei"] == str(BOND - TERMS.compensation_wei)
    [claim] = listed["claims"]
    assert (claim["unit_id"], claim["status"]) == (leaf, "compensated")
    assert claim["compensation_wei"] == str(TERMS.compensation_wei)
    assert stage.metrics(api)["zoo_omission_claims_open"] == 0
    with pytest.raises(ZooError, match="refuses"):
        stage.node_chain.open_claim(unit, promise.include_by, promise.signature)


@pytest.mark.long
def test_unfounded_claim_is_answered_and_costs_its_stake(stage: Stage) -> None:
    unit = stage.delivered()
    [promise] = stage.journal.all()
    stage.run()
    stage.pass_time(stage.settings.inclusion_deadline_seconds)
    assert stage.statuses() == [Status.INCLUDED]
    stage.node_chain.open_claim(unit, promise.include_by, promise.signature)
    stage.run(2 * FINALITY + 2)
    assert len(intents(stage, "answer_omission")) == 1
    [finding] = stage.omissions().look()
    assert (finding.status, finding.over) == (Status.ANSWERED, True)
    assert stage.agrees() == {"bond": BOND + TERMS.deposit_wei}
    assert stage.connection.get("/v1/omissions")[0]["status"] == "answered"


def test_unresponsive_market_is_given_time(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.delivered()
    stage.pass_time(stage.settings.inclusion_deadline_seconds)

    monkeypatch.setattr(stage.connection, "get", raising(Unreachable("market-unreachable", "down")))
    stage.omissions().watch()
    assert stage.statuses() == [Status.UNANSWERED]
    stage.pass_time(TERMS.claim_seconds // 2)
    stage.omissions().watch()
    assert stage.statuses() == [Status.CLAIMED]


def test_unclaimed_acknowledgement_is_deleted_after_its_period(stage: Stage) -> None:
    stage.delivered()
    stage.pass_time(stage.settings.inclusion_deadline_seconds + TERMS.claim_seconds + 60)
    assert stage.statuses() == [Status.EXPIRED]
    stage.omissions().watch()
    assert stage.journal.all() == []


@pytest.mark.long
def test_window_removed_by_reorg_is_committed_again(stage: Stage) -> None:
    stage.delivered()
    stage.run(1)  # mined, not final
    root = stage.world.scalar(select(TxIntent.arguments))[0]
    assert stage.node_chain.committed_at(root, stage.node_chain.latest_block()) is not None
    assert stage.statuses() == [Status.WAITING]
    stage.chain.anvil.reorg(2)
    assert stage.node_chain.committed_at(root, stage.node_chain.latest_block()) is None
    stage.run()
    assert stage.statuses() == [Status.INCLUDED]
    assert stage.agrees() == {"bond": BOND}
    assert len(intents(stage, "commit_window")) == 1


def test_repeated_delivery_gets_same_acknowledgement(stage: Stage) -> None:
    work, unit, body = stage.work()
    first = stage.commit(work, body)
    delay(1.1)  # a new promise would be for later
    assert stage.commit(work, body) == first
    stage.taker().take(unit, first)
    stage.taker().take(unit, first)
    assert len(stage.journal.all()) == 1


def test_commitment_with_failing_acknowledgement_is_refused(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    work, _, body = stage.work()
    with monkeypatch.context() as fault:
        fault.setattr("market.chain.transactions.signer.Signer.sign_typed_data", lambda *_: 1 / 0)
        with pytest.raises(Unreachable):
            stage.commit(work, body)
    [unit] = stage.world.units(work.lease.job_id)
    assert (unit.status, unit.trace_root) == ("leased", None)
    assert stage.world.all(select(StoredAcknowledgement)) == []
    assert stage.commit(work, body)


def test_only_contract_valid_acknowledgement_is_kept(stage: Stage) -> None:
    work, unit, body = stage.work()
    given, taker, now = stage.commit(work, body), stage.taker(), int(time.time())
    domain = messages.omissions_domain(31337, stage.chain.deployment.address("Omissions"))
    leaf = to_hex(leaf_of(unit))

    def signed(unit_id: str = leaf, include_by: int = now + 60, key: str = ACKNOWLEDGER.key, **changes: Any) -> Any:
        document = messages.typed_data(replace(domain, **changes), messages.Acknowledgement(unit_id, include_by))
        return {"include_by": include_by, "signature": messages.sign(key, document)}

    raw = bytes.fromhex(given["signature"][2:])
    order = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
    high_s = (order - int.from_bytes(raw[32:64])).to_bytes(32)
    forged = {
        "missing": None,
        "no text": "acknowledged",
        "no fields": {},
        "another key": signed(key=PROVIDER.key),
        "another commitment": signed("0x" + "77" * 32),
        "another contract": signed(contract="0x" + "12" * 20),
        "another chain": signed(chain_id=1),
        "another time": given | {"include_by": given["include_by"] + 1},
        "the time is over": signed(include_by=now - 1),
        "far away": signed(include_by=now + messages.MAX_PROMISE_SECONDS + 3600),
        "no number": given | {"include_by": str(given["include_by"])},
        "too short": given | {"signature": given["signature"][:-2]},
        "other s": given | {"signature": to_hex(raw[:32] + high_s + bytes([55 - raw[64]]))},
        "other v": given | {"signature": to_hex(raw[:64] + bytes([raw[64] - 27]))},
    }
    for name, answer in forged.items():
        with pytest.raises(NotAcknowledged):
            taker.take(unit, answer)
        assert stage.journal.all() == [], name
    taker.take(unit, signed())
    taker.take(unit, given)
    assert [asdict(promise.unit) for promise in stage.journal.all()] == [asdict(unit)]


def test_commitments_without_upload_are_lost_but_included(stage: Stage) -> None:
    work, unit, body = stage.work()
    stage.taker().take(unit, stage.commit(work, body))
    stage.run(2)
    assert intents(stage, "commit_window") == [], "its seed must not be known while it can be uploaded"
    expiry.expire_uploads(stage.world.database, utc_now() - timedelta(seconds=60))
    assert stage.world.units(work.lease.job_id)[0].status == "committed"
    expiry.expire_uploads(stage.world.database, utc_now())
    lost = stage.world.units(work.lease.job_id)[0]
    assert (lost.status, lost.reason) == ("lost", "upload_overdue")
    stage.run()
    assert stage.statuses() == [Status.INCLUDED]


def intents(stage: Stage, kind: str) -> list[TxIntent]:
    return stage.world.all(select(TxIntent).where(TxIntent.kind == kind))
