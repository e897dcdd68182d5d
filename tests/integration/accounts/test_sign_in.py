"""Sign-in with Ethereum, sessions and API keys, over HTTP."""

from datetime import UTC, datetime, timedelta

import httpx
import pytest
from eth_account import Account
from kit.api.clients import instant, refusal, sign_in, sign_text, siwe_message
from sqlalchemy import select

from market.accounts.models import Credential
from market.platform.db.session import Database


def _nonce(api: httpx.Client, address: str) -> dict[str, object]:
    answer = api.post("/v1/auth/nonce", json={"address": address})
    assert answer.status_code == 201
    document: dict[str, object] = answer.json()
    return document


def test_signed_message_opens_session(api: httpx.Client) -> None:
    caller = sign_in(api)
    me = caller.get("/v1/me")
    assert me.json() == {
        "address": caller.address,
        "is_admin": False,
        "roles": ["user"],
        "credential": "session",
        "scopes": ["*"],
    }


def test_secrets_are_stored_as_hashes_only(api: httpx.Client, database: Database) -> None:
    caller = sign_in(api)
    with database.transaction() as session:
        row = session.scalars(select(Credential)).one()
    assert caller.token not in (row.secret_hash, row.prefix)
    assert caller.token.startswith(row.prefix)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"domain": "evil.test"}, "message.domain"),
        ({"uri": "https://evil.test"}, "message.uri"),
        ({"chain_id": 1}, "message.chain_id"),
        ({"nonce": "0123456789abcdef"}, "message.nonce"),
        ({"expiration_time": None}, "message.expiration_time"),
        ({"expiration_time": instant(datetime.now(UTC) - timedelta(seconds=5))}, "message.expiration_time"),
        ({"not_before": instant(datetime.now(UTC) + timedelta(hours=1))}, "message.not_before"),
        ({"issued_at": instant(datetime.now(UTC) - timedelta(hours=1))}, "message.issued_at"),
        ({"issued_at": instant(datetime.now(UTC) + timedelta(hours=1))}, "message.issued_at"),
    ],
)
def test_every_field_of_message_is_checked(api: httpx.Client, changes: dict[str, object], field: str) -> None:
    wallet = Account.create()
    message = siwe_message(_nonce(api, wallet.address), wallet.address, **changes)
    answer = api.post("/v1/auth/siwe", json={"message": message, "signature": sign_text(wallet, message)})
    assert refusal(answer, 401, "sign-in-refused")["field"] == field


def test_unchecksummed_address_is_refused(api: httpx.Client) -> None:
    wallet = Account.create()
    message = siwe_message(_nonce(api, wallet.address), wallet.address.lower())
    answer = api.post("/v1/auth/siwe", json={"message": message, "signature": sign_text(wallet, message)})
    assert refusal(answer, 401, "sign-in-refused")["field"] == "message.address"


def test_foreign_or_malformed_signature_is_refused(api: httpx.Client) -> None:
    wallet, other = Account.create(), Account.create()
    message = siwe_message(_nonce(api, wallet.address), wallet.address)
    for signature in (sign_text(other, message), "0x" + "00" * 65, "0x12"):
        answer = api.post("/v1/auth/siwe", json={"message": message, "signature": signature})
        assert refusal(answer, 401, "sign-in-refused")["field"] == "signature"


def test_nonce_works_once_for_its_own_wallet(api: httpx.Client) -> None:
    wallet, other = Account.create(), Account.create()
    nonce = _nonce(api, wallet.address)
    stolen = siwe_message(nonce, other.address)
    answer = api.post("/v1/auth/siwe", json={"message": stolen, "signature": sign_text(other, stolen)})
    assert refusal(answer, 401, "sign-in-refused")["field"] == "message.nonce"
    message = siwe_message(nonce, wallet.address)
    body = {"message": message, "signature": sign_text(wallet, message)}
    assert api.post("/v1/auth/siwe", json=body).status_code == 200
    assert refusal(api.post("/v1/auth/siwe", json=body), 401, "sign-in-refused")["field"] == "message.nonce"


def test_malformed_message_is_refused(api: httpx.Client) -> None:
    wallet = Account.create()
    answer = api.post("/v1/auth/siwe", json={"message": "hello", "signature": sign_text(wallet, "hello")})
    assert refusal(answer, 401, "sign-in-refused")["field"] == "message"


def test_requests_without_usable_token_are_refused(api: httpx.Client) -> None:
    for headers in ({}, {"Authorization": "Bearer zcs_wrong"}, {"Authorization": "Basic abc"}):
        refusal(api.get("/v1/me", headers=headers), 401, "not-authenticated")


def test_signing_out_ends_session(api: httpx.Client) -> None:
    caller = sign_in(api)
    assert caller.delete("/v1/auth/session").status_code == 204
    refusal(caller.get("/v1/me"), 401, "not-authenticated")


def test_expired_session_is_refused(api: httpx.Client, database: Database) -> None:
    caller = sign_in(api)
    with database.transaction() as session:
        session.scalars(select(Credential)).one().expires_at = datetime.now(UTC) - timedelta(seconds=1)
    refusal(caller.get("/v1/me"), 401, "not-authenticated")


def test_api_keys_are_made_listed_used_and_revoked(api: httpx.Client) -> None:
    caller, other = sign_in(api), sign_in(api)
    made = caller.post("/v1/me/keys", json={"name": "scripts"})
    assert made.status_code == 201
    key = {"Authorization": f"Bearer {made.json()['key']}"}
    assert api.get("/v1/me", headers=key).json() == {
        "address": caller.address,
        "is_admin": False,
        "roles": ["user"],
        "credential": "key",
        "scopes": ["*"],
    }
    listed = api.get("/v1/me/keys", headers=key).json()
    assert [item["name"] for item in listed] == ["scripts"]
    assert "key" not in listed[0]
    refusal(api.post("/v1/me/keys", json={"name": "more"}, headers=key), 403, "session-required")
    path = f"/v1/me/keys/{listed[0]['id']}"
    refusal(other.delete(path), 404, "api-key-not-found")
    assert caller.delete(path).status_code == 204
    refusal(api.get("/v1/me", headers=key), 401, "not-authenticated")
    refusal(caller.delete(path), 404, "api-key-not-found")


# The example of EIP-4361: a message of this form must be understood, and refused for its foreign parts.
EIP_4361_EXAMPLE = """example.com wants you to sign in with your Ethereum account:
0xC02aaA39b223FE8D0A0e5C4F27eAD9083C756Cc2

I accept the ExampleOrg Terms of Service: https://example.com/tos

URI: https://example.com/login
Version: 1
Chain ID: 1
Nonce: 32891756
Issued At: 2021-09-30T16:25:24Z
Resources:
- ipfs://bafybeiemxf5abjwjbikoz4mc3a3dla6ual3jsgpdr4cjr3oz3evfyavhwq/
- https://example.com/my-web2-claim.json"""


def test_eip_example_is_read_field_by_field(api: httpx.Client) -> None:
    body = {"message": EIP_4361_EXAMPLE, "signature": "0x" + "11" * 65}
    assert refusal(api.post("/v1/auth/siwe", json=body), 401, "sign-in-refused")["field"] == "message.expiration_time"
    dated = EIP_4361_EXAMPLE.replace("Resources:", "Expiration Time: 2121-09-30T16:25:24Z\nResources:")
    for message, field in (
        (dated, "message.domain"),
        (dated.replace("\n\nI accept", "\nI accept"), "message"),
        (dated.replace("Chain ID", "Chain Id"), "message"),
        (dated.replace("Version: 1", "Version: 2"), "message"),
        (dated.replace("Nonce: 32891756", "Nonce: 1"), "message"),
    ):
        answer = api.post("/v1/auth/siwe", json=body | {"message": message})
        assert refusal(answer, 401, "sign-in-refused")["field"] == field
