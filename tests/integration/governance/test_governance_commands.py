"""Commands of treasury, admin and guardian, against the API and a real chain."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from fastapi import FastAPI
from kit.api.clients import Cli
from kit.chain.anvil import AnvilProcess
from kit.chain.deployed_chain import ADMIN, OPERATOR, OTHER, PAYER, PROVIDER, Chain, deploy_own
from kit.chain.settling import open_job, settlement
from kit.records import Records

from market.accounts.models import Account
from market.chain.contracts.codec import Deployment
from market.chain.views import ChainViews
from market.domain.network import DEVNET, ZEN
from market.governance.chain_events import HANDLERS
from market.platform.db.session import Database
from market.platform.http.services import Services
from zoo_compute.base.errors import ExitCode
from zoo_compute.chain.governance import ActSender
from zoo_compute.chain.wallet import Wallet

NETWORK = replace(DEVNET, challenge_seconds=86_400)


@dataclass
class Desk:
    """The command line of one person, and the market's index of the chain."""

    chain: Chain
    database: Database
    cli: Cli

    def index(self) -> None:
        self.chain.anvil.mine(3)
        self.chain.index(self.database, {key: [handler] for key, handler in HANDLERS.items()})

    def pass_delay(self) -> None:
        self.chain.anvil.rpc("evm_increaseTime", NETWORK.timelock_seconds)
        self.index()


@pytest.fixture
def desk(app: FastAPI, own_anvil: AnvilProcess, database: Database, cli: Cli, tmp_path: Path) -> Iterator[Desk]:
    chain = deploy_own(own_anvil, tmp_path, NETWORK)
    services: Services = app.state.services
    settings = services.settings.model_copy(update={"public_rpc_url": own_anvil.url})
    services = replace(services, settings=settings).with_part(Deployment, chain.deployment)
    app.state.services = services.with_part(ChainViews, chain.views)
    cli.be(ADMIN.key)
    desk = Desk(chain, database, cli)
    desk.index()
    yield desk
    services.redis.close()


def test_grant_is_proposed_shown_executed_and_paid(desk: Desk) -> None:
    cli, chain = desk.cli, desk.chain
    chain.send(PAYER, "ZenToken", "transfer", chain.deployment.address("Treasury"), 100 * ZEN)
    grant = ("--to", OTHER.address, "--amount", "12.5", "--purpose", "Translations", "--no-wait")
    refused = cli("treasury", "propose", *grant, code=ExitCode.USAGE)
    assert f"Pay 12.5 ZEN (12500000000000000000 wei) of the community grants to {OTHER.address}." in refused
    assert "It can be executed 2 days after the proposal." in refused
    assert "confirmation-missing" in refused
    proposed = cli.json("treasury", "propose", *grant)
    desk.index()
    [pending] = cli.json("treasury", "show")["operations"]
    assert (pending["id"], pending["status"]) == (proposed["operation_id"], "waiting")
    assert "12.5 ZEN" in cli("treasury", "show")
    assert "not due" in cli("treasury", "execute", pending["id"], "--yes", code=ExitCode.FAILED)
    desk.pass_delay()
    before = chain.views.balance_of(OTHER.address)
    executed = cli.json("treasury", "execute", pending["id"], "--no-wait")
    assert chain.views.balance_of(OTHER.address) - before == 12_500_000_000_000_000_000
    desk.index()
    assert cli.json("treasury", "show")["operations"] == []
    assert cli.json("admin", "alarms") == []  # both transactions were reported
    assert (executed["act"], executed["stage"]) == ("treasury.grant", "execute")
    wallet = ActSender(chain.anvil.url, chain.deployment.contracts, Wallet(ADMIN.key))
    block = wallet.wait_final(executed["tx"])
    assert block <= wallet.final_block().number


def test_proposal_is_cancelled_and_exported(desk: Desk) -> None:
    cli = desk.cli
    proposed = cli.json("admin", "act", "escrow.set-fee", "newFeeBps=400", "--no-wait")
    desk.index()
    shown = cli.json("admin", "parameters")
    assert (shown["parameters"]["fee_bps"], len(shown["pending"])) == ("500", 1)
    assert "Set the fee of new jobs to 4 % (400 bps)" in cli("admin", "parameters")
    safe = cli.json("treasury", "cancel", proposed["operation_id"], "--export", "safe", "--sender", ADMIN.address)
    [transaction] = safe["transactions"]
    raw = cli.json("treasury", "cancel", proposed["operation_id"], "--export", "raw")
    assert (raw["to"], raw["data"]) == (transaction["to"], transaction["data"])
    assert "sender-differs" in cli(
        "treasury", "cancel", proposed["operation_id"], "--sender", OTHER.address, "--yes", code=ExitCode.USAGE
    )
    upper = "0x" + proposed["operation_id"][2:].upper()
    assert cli.json("treasury", "cancel", upper, "--export", "raw")["data"] == raw["data"]
    early = cli.json("treasury", "execute", proposed["operation_id"], "--export", "raw")
    assert cli.json("treasury", "execute", upper, "--export", "raw")["data"] == early["data"]
    assert "operation-malformed" in cli("treasury", "cancel", "0x12", code=ExitCode.FAILED)
    cli.json("treasury", "cancel", proposed["operation_id"], "--no-wait")
    desk.index()
    assert cli.json("admin", "parameters")["pending"] == []
    assert "act-malformed" in cli("admin", "act", "escrow.set-fee", "newFeeBps=many", code=ExitCode.USAGE)
    assert "argument-malformed" in cli("admin", "act", "escrow.set-fee", "400", code=ExitCode.USAGE)
    assert "operation-not-found" in cli("treasury", "cancel", "0x" + "00" * 32, code=ExitCode.FAILED)


def test_guardian_sees_foreign_batch_and_vetoes_it(desk: Desk) -> None:
    cli, chain = desk.cli, desk.chain
    assert cli.json("guardian", "watch") == []
    job = open_job(chain)
    _, function, arguments = settlement(job)
    chain.send(OPERATOR, "JobEscrow", function, *arguments)
    desk.index()
    assert "payout-differs" in cli("guardian", "watch", "--json", code=ExitCode.MISMATCH)
    assert "The market has no record of a batch" in desk.cli.stdout
    assert job in desk.cli.stdout
    cli.be(PAYER.key)
    assert "lacks the role GUARDIAN_ROLE" in cli("guardian", "veto", "--batch", 1, "--yes", code=ExitCode.FAILED)
    cli.be(ADMIN.key)
    assert "veto-ambiguous" in cli("guardian", "veto", code=ExitCode.USAGE)
    assert cli.json("guardian", "veto", "--batch", 1, "--no-wait")["act"] == "escrow.veto"
    assert cli.json("guardian", "watch") == []


def test_guardian_pauses_and_unpauses_intake(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    cli, chain = desk.cli, desk.chain
    with monkeypatch.context() as patch:
        patch.setenv("ZOO_CLIENT_RPC_URL", "http://127.0.0.1:1")
        assert "chain-unreachable" in cli("guardian", "pause", "--yes", code=ExitCode.UNREACHABLE)
    assert cli.json("guardian", "pause", "--no-wait")["act"] == "escrow.pause"
    assert cli.json("guardian", "pause", "--stakes", "--no-wait")["act"] == "staking.pause"
    assert "Intake is paused" in cli("guardian", "pause", "--yes", code=ExitCode.FAILED)
    assert cli.json("guardian", "unpause", "--no-wait")["act"] == "escrow.unpause"
    chain.deposit(PAYER, ZEN)
    assert chain.views.funds(PAYER.address).free_wei == ZEN


@pytest.mark.long
def test_provider_is_released_by_timelock(desk: Desk) -> None:
    cli, chain = desk.cli, desk.chain
    chain.stake(PROVIDER, 1_000 * ZEN)
    chain.send(OPERATOR, "ProviderStaking", "slash", PROVIDER.address, 2, "0x" + "05" * 32)
    proposed = cli.json("admin", "release", PROVIDER.address, "--no-wait")
    desk.pass_delay()
    cli.json("admin", "execute", proposed["operation_id"], "--no-wait")
    assert not chain.views.is_jailed(PROVIDER.address)


def test_admin_reads_audit_log_and_acknowledges(desk: Desk, records: Records) -> None:
    cli = desk.cli
    assert "not-permitted" in cli("admin", "audit", code=ExitCode.REFUSED)
    records.change(Account, ADMIN.address, roles=["admin"])
    desk.chain.send(ADMIN, "JobEscrow", "pause")
    desk.index()
    [alarm] = cli.json("admin", "alarms")
    assert cli.json("admin", "acknowledge", alarm["id"])["acknowledged"] is True
    assert cli.json("admin", "alarms") == []
    entries = cli.json("admin", "audit", "--kind", "governance", "--search", "PAUSED")
    assert [(one["event"], one["actor"]) for one in entries] == [
        ("acknowledge", ADMIN.address),
        ("paused", ADMIN.address),
    ]
    assert "acknowledge" in cli("admin", "audit", "--limit", 1)


def test_acts_are_listed_with_their_arguments(cli: Cli) -> None:
    found = {one["act"]: one for one in cli.json("admin", "acts")}
    assert found["treasury.grant"]["arguments"]["amount"].startswith("an amount in ZEN")
    assert "treasury.grant" in cli("admin", "acts")
