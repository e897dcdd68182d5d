"""Pages for the operation of the market: overview, treasury, transactions, chain and queues."""

import csv
from datetime import timedelta

import httpx
import pytest
from eth_account import Account
from kit.api.console_clients import Browser, signed_in
from kit.chain.anvil import AnvilProcess
from kit.chain.deployed_chain import ADMIN, OPERATOR, OTHER, PAYER, PROVIDER, Chain, Wallet, queue_payment
from kit.waiting import wait_until
from sqlalchemy import update

from market.chain.models import TxIntent
from market.console.chain_facts import ChainFacts, ChainFactsReader
from market.console.reads.overview import read_alarms, read_figures
from market.console.reads.treasury import daily_balances, movements, read_emission, read_treasury
from market.domain.lifecycle import IntentStatus
from market.domain.network import DEVNET, ZEN
from market.governance import acts
from market.governance import service as governance
from market.governance.chain_events import HANDLERS
from market.ledger.reconciliation import watch
from market.ledger.service import post
from market.platform.db.base import utc_now
from market.platform.http.services import Services

PURPOSE = b"audit <b>2026</b>".ljust(32, b"\0")


@pytest.fixture
def staff(api: httpx.Client, on_chain: Services) -> Browser:
    return signed_in(api, Account.from_key(ADMIN.key))


@pytest.fixture
def paid(chain: Chain, anvil: AnvilProcess, on_chain: Services) -> Chain:
    """A treasury that received 1,000 ZEN and spent 7 wei, indexed."""
    chain.send(PAYER, "ZenToken", "transfer", chain.deployment.address("Treasury"), 1_000 * ZEN + 1)
    timelock = Wallet(chain.deployment.address("Timelock"), "")
    anvil.rpc("anvil_impersonateAccount", timelock.address)
    anvil.rpc("anvil_setBalance", timelock.address, hex(10**18))
    chain.send(timelock, "Treasury", "spend", 1, OTHER.address, 7, PURPOSE)
    chain.send(OTHER, "Emission", "release")
    anvil.mine(3)
    chain.index(on_chain.database)
    return chain


def codes(services: Services, facts: ChainFacts | None = None) -> set[str]:
    with services.database.reading() as session:
        return {alarm.code for alarm in read_alarms(session, services, facts, utc_now())}


def test_treasury_page_equals_contract_to_the_wei(paid: Chain, on_chain: Services, api: httpx.Client) -> None:
    with on_chain.database.reading() as session:
        found, contract = read_treasury(session, DEVNET), paid.views.treasury()
    assert (found.balance_wei, found.received_wei) == (contract.balance_wei, contract.received_wei)
    assert [(fund.name, fund.available_wei, fund.spent_wei) for fund in found.funds] == [
        (share.destination, share.available_wei, share.spent_wei) for share in contract.shares
    ]
    page = api.get("/console/treasury").text
    assert "audit &lt;b&gt;2026&lt;/b&gt;" in page
    assert "= 1000000000000000000001 wei" in page


def test_treasury_file_sums_to_balance(paid: Chain, on_chain: Services, api: httpx.Client) -> None:
    answer = api.get("/console/treasury.csv")
    assert answer.headers["content-type"].startswith("text/csv")
    rows = list(csv.DictReader(answer.text.splitlines()))
    assert [int(row["amount_wei"]) for row in rows] == [1_000 * ZEN + 1, -7]
    assert int(rows[-1]["balance_wei"]) == paid.views.treasury().balance_wei
    with on_chain.database.reading() as session:
        assert daily_balances(session, 3650, utc_now())[-1][1] == int(rows[-1]["balance_wei"])
        assert [one.block for one in movements(session)] == [int(row["block"]) for row in rows]


def test_emission_fills_years_of_schedule(paid: Chain, on_chain: Services) -> None:
    with on_chain.database.reading() as session:
        years = read_emission(session, DEVNET)
    assert [year.planned_wei for year in years] == list(DEVNET.emission_yearly_wei)
    assert years[0].released_wei == paid.views.balance_of(paid.deployment.address("Rewards")) > 0
    assert years[1].released_wei == 0


def test_overview_shows_holdings_of_last_comparison(paid: Chain, on_chain: Services, staff: Browser) -> None:
    watch(on_chain.database, paid.client(), paid.deployment)
    with on_chain.database.reading() as session:
        figures = read_figures(session, utc_now())
    for contract in ("Treasury", "JobEscrow", "ProviderStaking"):
        assert figures.holdings_wei[contract] == paid.views.balance_of(paid.deployment.address(contract))
    page = staff.http.get("/console/overview").text
    assert "Nothing needs you" in page
    assert "1,000 ZEN" in page


def test_overview_alarms_name_each_trouble(paid: Chain, on_chain: Services) -> None:
    database = on_chain.database
    assert codes(on_chain) == {"never_compared"}
    with database.transaction() as session:
        lines = [(f"stake:{PROVIDER.address}", -1), (f"stake:{OTHER.address}", 1)]
        post(session, kind="planted", key="planted", lines=lines, block=1)
    watch(database, paid.client(), paid.deployment)
    queue_payment(database)
    with database.transaction() as session:
        session.execute(
            update(TxIntent).values(status=IntentStatus.BROADCAST, updated_at=utc_now() - timedelta(minutes=11))
        )
    assert codes(on_chain) == {"ledger_differs", "transactions_stuck"}
    facts = ChainFacts(head=10_000, bond_wei=1, gas_wei={OPERATOR.address: 1}, read_at=utc_now())
    assert codes(on_chain, facts) >= {"indexer_behind", "gas_low", "bond_low"}
    with on_chain.database.reading() as session:
        later = utc_now() + timedelta(hours=1)
        found = {alarm.code: alarm.tone for alarm in read_alarms(session, on_chain, None, later)}
    assert found["worker_mute"] == "bad"


def test_chain_is_read_after_response(paid: Chain, on_chain: Services, staff: Browser) -> None:
    reader = on_chain.part(ChainFactsReader)
    assert "are being read" in staff.http.get("/console/overview").text
    wait_until(lambda: reader.latest is not None)
    assert reader.latest is not None
    assert reader.latest.head == paid.views.head_number()
    assert reader.latest.bond_wei == 1_000 * ZEN


def test_transactions_are_listed_and_filtered(on_chain: Services, staff: Browser) -> None:
    queue_payment(on_chain.database, "one", 5)
    queue_payment(on_chain.database, "two", 6)
    with on_chain.database.transaction() as session:
        session.execute(update(TxIntent).where(TxIntent.key == "two").values(status=IntentStatus.FINAL))
    assert staff.http.get("/console/transactions").text.count("ZenToken") == 2
    assert staff.http.get("/console/transactions?tx.status=final").text.count("<td>payment<br>") == 1
    assert "Nothing matches" in staff.http.get("/console/transactions?tx.status=&tx.q=none").text


def test_proposed_grant_and_its_alarm_are_shown(chain: Chain, on_chain: Services, staff: Browser) -> None:
    with on_chain.database.reading() as session:
        contracts = governance.contracts_of(session, chain.deployment, DEVNET)
    grant = {"recipient": OTHER.address, "amount": "5", "purpose": "<i>docs</i>"}
    prepared = acts.prepare_act(chain.views, contracts, ADMIN.address, "treasury.grant", grant)
    call = {"from": ADMIN.address, "to": prepared.transaction.to, "data": prepared.transaction.data}
    chain.anvil.send(call)
    chain.anvil.mine(3)
    chain.index(on_chain.database, {key: [handler] for key, handler in HANDLERS.items()})
    for path in ("governance", "treasury"):
        page = staff.http.get(f"/console/{path}").text
        assert "Pay 5 ZEN" in page
        assert "waiting" in page
        assert "<i>" not in page
    assert "Acknowledge alarm" in staff.http.get("/console/guardian").text
    assert "PROPOSER_ROLE" in staff.http.get("/console/governance").text
    assert "governance event" in staff.http.get("/console/overview").text


@pytest.mark.parametrize("path", ["guardian", "overview", "transactions", "system", "audit"])
def test_operation_pages_are_for_staff(api: httpx.Client, on_chain: Services, path: str) -> None:
    assert signed_in(api).http.get(f"/console/{path}").status_code == 403
