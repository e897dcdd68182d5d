"""A user's and a node's own pages over HTTP: orders, keys, webhooks, organisation, node."""

import json
import re
from collections.abc import Sequence
from decimal import Decimal
from html import unescape
from typing import Any

import httpx
import pytest
from eth_account import Account as Wallets
from kit.api.console_clients import Browser, signed_in
from kit.api.submission_fixtures import app_on_chain, stored_dataset  # noqa: F401  (fixtures)
from kit.console.market_history import seed
from kit.jobs.jobs_fixtures import SPEC, ZEN, FakeChain
from kit.records import Records
from sqlalchemy import select, update

from market.accounts.models import Credential
from market.console.sessions.models import ConsoleSession
from market.console.sessions.service import csrf_token
from market.jobs.models import Job
from market.platform.db.base import utc_now
from market.providers.models import Provider
from market.webhooks.models import WebhookEndpoint


class ChainWithoutRoles(FakeChain):
    """Balances, and no role for anyone."""

    def many(self, views: Sequence[object], block: str) -> list[bool]:
        return [False for _ in views]


@pytest.fixture
def chain() -> FakeChain:
    return ChainWithoutRoles()


@pytest.fixture
def payer(api: httpx.Client, chain: FakeChain) -> Browser:
    found = signed_in(api)
    chain.balances[found.wallet.address] = 100 * ZEN
    chain.wallets[found.wallet.address] = 10 * ZEN
    chain.permit_nonces[found.wallet.address] = 3
    return found


@pytest.fixture
def fields(dataset: str) -> dict[str, str]:
    training = {**SPEC["training_config"], "inner_steps": 1000, "segment_steps": 100, "batch_size": 64}
    return {
        "name": "shakespeare-1",
        "dataset": dataset,
        "model": json.dumps(SPEC["model_config"]),
        "training": json.dumps(training),
        "tier": "bronze",
        "nodes": "4",
        "budget": "1",
        "max_price": "3",
        "wait_hours": "2",
    }


def text_of(browser: Browser, path: str) -> str:
    page = browser.http.get(f"/console{path}")
    assert page.status_code == 200, page.text[-2_000:]
    return page.text


def attribute(page: str, name: str) -> Any:
    [found] = re.findall(rf'data-{name}="([^"]*)"', page)
    return json.loads(unescape(found))


def send(browser: Browser, path: str, body: Any) -> httpx.Response:
    headers = {"Accept": "application/json", "X-CSRF-Token": csrf_token(browser.secret)}
    return browser.http.post(f"/console{path}", json=body, headers=headers)


def signature(browser: Browser, document: Any) -> str:
    return "0x" + bytes(Wallets.sign_typed_data(browser.wallet.key, full_message=document).signature).hex()


def signed_order(browser: Browser, fields: dict[str, str]) -> dict[str, Any]:
    page = browser.submit("/my/new-job/quote", **fields)
    assert page.status_code == 200
    request: dict[str, Any] = attribute(page.text, "request")
    return request | {"order_signature": signature(browser, attribute(page.text, "order"))}


def test_quoted_job_is_signed_and_submitted_once(payer: Browser, fields: dict[str, str], records: Records) -> None:
    order = signed_order(payer, fields)
    answer = send(payer, "/my/new-job/submit", order)
    assert answer.status_code == 200, answer.text
    [job] = records.all(select(Job))
    assert answer.json() == {"location": f"/console/jobs/{job.id}"}
    assert (job.payer, job.budget_wei, job.max_price_wei) == (payer.wallet.address, ZEN, 3 * ZEN)
    assert "shakespeare-1" in text_of(payer, "/my/jobs")
    assert send(payer, "/my/new-job/submit", order).json()["code"] == "nonce-replayed"


def test_order_of_another_wallet_is_refused(payer: Browser, api: httpx.Client, fields: dict[str, str]) -> None:
    order = signed_order(payer, fields)
    assert send(signed_in(api), "/my/new-job/submit", order).json()["code"] == "invalid-signature"


def test_ended_session_submits_nothing(payer: Browser, fields: dict[str, str], records: Records) -> None:
    order = signed_order(payer, fields)
    records.execute(update(ConsoleSession).values(ended_at=utc_now()))
    assert send(payer, "/my/new-job/submit", order).status_code in (401, 403)
    assert records.all(select(Job)) == []


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("budget", "0.0000000000000000001", "18 decimals"),
        ("budget", "NaN", "18 decimals"),
        ("budget", "1e999999", "18 decimals"),
        ("budget", f"1.{'0' * 30}1", "18 decimals"),
        ("model", "{", "not JSON"),
        ("model", "[" * 20_000, "not JSON"),
        ("training", "[]", "not a JSON object"),
        ("dataset", "nonsense", "dataset"),
        ("name", "<script>", "Name"),
        ("tier", "platinum", "tier"),
    ],
)
def test_wrong_field_is_named_in_place_of_quote(
    payer: Browser, fields: dict[str, str], field: str, value: str, words: str
) -> None:
    page = payer.submit("/my/new-job/quote", **fields | {field: value}).text
    quote = page[page.index('id="quote"') :]
    assert words in quote
    assert "data-order" not in quote


def test_payer_sees_no_limit_below_exact_one(payer: Browser, chain: FakeChain, fields: dict[str, str]) -> None:
    odd = fields | {"budget": "1.000000000000000001", "max_price": "3.000000000000000001"}
    location = send(payer, "/my/new-job/submit", signed_order(payer, odd)).json()["location"]
    job = text_of(payer, location.removeprefix("/console"))
    chain.balances[payer.wallet.address] = 0
    quote = payer.submit("/my/new-job/quote", **odd).text
    for page, words in (
        (quote, 'Cost at most</span><span class="value">'),
        (quote, "The balance lacks "),
        (job, 'Budget</span><span class="value">'),
    ):
        [(wei, shown)] = re.findall(rf"{words}<span[^>]* = (\d+) wei\">≈\s([\d.]+) ZEN", page)
        assert Decimal(shown) * ZEN > int(wei)
    assert re.search(r"at most ≈\s3\.00001 per GPU-hour", job)
    assert re.search(r"Deposit ≈\s2\.00001 ZEN</button>", quote)  # the first order takes as much


def test_missing_balance_is_deposited_by_permit(
    payer: Browser, chain: FakeChain, fields: dict[str, str], records: Records
) -> None:
    chain.balances[payer.wallet.address] = 0
    page = payer.submit("/my/new-job/quote", **fields).text
    assert "data-order" not in page
    amount = str(attribute(page, "deposit"))
    permit = send(payer, "/my/deposit/permit", {"amount": amount}).json()
    body = {
        "amount": amount,
        "permit_nonce": str(permit["message"]["nonce"]),
        "deadline": int(permit["message"]["deadline"]),
        "signature": signature(payer, permit),
    }
    assert send(payer, "/my/deposit", body).json() == {"status": "queued"}


def test_key_is_created_with_caps_and_revoked(payer: Browser, records: Records) -> None:
    path = "/my/access/keys"
    assert payer.submit(path, name="scripts").status_code == 422
    page = payer.submit(path, name="<script>x", scopes="jobs:write", per_day="2.5").text
    [secret] = re.findall(r"zck_[\w-]+", page)[:1]
    assert secret not in text_of(payer, "/my/access")
    assert "&lt;script&gt;x" in page
    assert "2.5 ZEN" in page
    [key] = records.all(select(Credential).where(Credential.kind == "key"))
    assert key.scopes == ["jobs:write"]
    assert payer.submit("/my/access/keys/revoke", key_id=str(key.id)).status_code == 303
    assert "No key yet" in text_of(payer, "/my/access")


def test_key_and_webhook_of_others_stay(payer: Browser, api: httpx.Client, records: Records) -> None:
    payer.submit("/my/access/keys", name="mine", scopes="jobs:read")
    [key] = records.all(select(Credential).where(Credential.kind == "key"))
    assert signed_in(api).submit("/my/access/keys/revoke", key_id=str(key.id)).status_code == 404
    assert "mine" in text_of(payer, "/my/access")


def test_webhook_and_organisation_are_created(payer: Browser, records: Records) -> None:
    refused = payer.submit("/my/access/webhooks", url="http://127.0.0.1/", kinds="status")
    assert refused.status_code >= 400
    records.add(
        WebhookEndpoint(owner=payer.wallet.address, url="https://example.com/<b>", kinds=["status"], secret="s")
    )
    [endpoint] = records.all(select(WebhookEndpoint))
    assert 'name="kinds" value="rollback"' in text_of(payer, "/my/access")
    assert "https://example.com/&lt;b&gt;" in text_of(payer, "/my/access")
    assert payer.submit("/my/access/webhooks/delete", webhook_id=str(endpoint.id)).status_code == 303
    assert "No webhook yet" in text_of(payer, "/my/access")
    assert payer.submit("/my/access/organisations", name="Lab <b>", per_day="5").status_code == 303
    page = text_of(payer, "/my/access")
    assert "Lab &lt;b&gt;" in page
    assert "owner" in page


def test_organisation_is_managed_by_its_admins(payer: Browser, api: httpx.Client) -> None:
    path = "/my/access/organisations"
    payer.submit(path, name="Lab", per_day="5")
    [number] = set(re.findall(r'name="organisation" value="(\d+)"', text_of(payer, "/my/access")))
    other, third = signed_in(api), signed_in(api)
    member = {"organisation": number, "address": other.wallet.address.lower()}
    assert other.submit(f"{path}/set-member", **member, role="owner").status_code == 404
    assert payer.submit(f"{path}/set-member", **member, role="king").status_code == 422
    assert payer.submit(f"{path}/set-member", **member, role="viewer", per_day="1.25").status_code == 303
    page = text_of(other, "/my/access")
    assert "Lab" in page
    assert "1.25 ZEN" in page
    assert "set-member" not in page, "a viewer has no form"
    assert 'aria-label="Leave Lab"' in page
    stranger = {"organisation": number, "address": third.wallet.address}
    assert other.submit(f"{path}/set-member", **stranger, role="member").status_code == 403
    assert payer.submit(f"{path}/set-member", **member, role="admin").status_code == 303
    page = text_of(other, "/my/access")
    assert "set-member" in page
    assert "<option>owner</option>" not in page, "only owners appoint owners"
    change = {"organisation": number, "name": "Lab <i>", "per_job": "0.5", "total": "70"}
    assert other.submit(f"{path}/change", **change).status_code == 303
    page = text_of(payer, "/my/access")
    assert "Lab &lt;i&gt;" in page
    assert 'name="per_job" inputmode="decimal" maxlength="40" value="0.5"' in page
    assert other.submit(f"{path}/remove-member", organisation=number, address=payer.wallet.address).status_code == 403
    assert payer.submit(f"{path}/remove-member", organisation=number, address=payer.wallet.address).status_code == 409
    assert payer.submit(f"{path}/remove-member", **member).status_code == 303
    assert "You belong to no organisation" in text_of(other, "/my/access")


def test_node_sees_work_deadlines_and_record(api: httpx.Client, records: Records) -> None:
    seeded = seed(records.database.engine, utc_now(), jobs=60, providers=20, epochs=3, rounds=8)
    wallet = signed_in(api)
    assert wallet.http.get("/console/my/node").status_code == 403
    [template] = records.all(select(Provider).where(Provider.address == seeded.provider))
    columns = {column.name: getattr(template, column.name) for column in Provider.__table__.columns}
    records.add(Provider(**columns | {"address": wallet.wallet.address, "rebenchmark_by": utc_now()}))
    page = text_of(wallet, "/my/node")
    assert all(words in page for words in ("pass benchmark", "Expected pay", "Score now", "No work now"))
