"""Wallets that sign in, expected refusals, and the command line for tests of the API."""

import json
import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partialmethod
from typing import Any

import httpx
import pytest
from eth_account import Account
from eth_account.messages import encode_defunct
from eth_account.signers.local import LocalAccount
from siwe import SiweMessage

from zoo_compute.cli.main import main
from zoo_protocol.hashing import to_hex


@dataclass(frozen=True)
class Caller:
    """A wallet that has signed in."""

    wallet: LocalAccount
    token: str
    api: httpx.Client

    @property
    def address(self) -> str:
        return str(self.wallet.address)

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    def request(self, method: str, path: str, headers: dict[str, str] | None = None, **options: Any) -> httpx.Response:
        return self.api.request(method, path, headers=self.headers | (headers or {}), **options)

    get, post = partialmethod(request, "GET"), partialmethod(request, "POST")
    put, patch = partialmethod(request, "PUT"), partialmethod(request, "PATCH")
    delete = partialmethod(request, "DELETE")


def siwe_message(challenge: dict[str, object], address: str, **changes: object) -> str:
    """Return the EIP-4361 message for a nonce, with ``changes``; None omits a field."""
    now = datetime.now(UTC)
    fields = {
        "domain": challenge["domain"],
        "address": address,
        "statement": challenge["statement"],
        "uri": challenge["uri"],
        "version": "1",
        "chain_id": challenge["chain_id"],
        "nonce": challenge["nonce"],
        "issued_at": instant(now),
        "expiration_time": instant(now + timedelta(minutes=5)),
    } | changes
    return str(SiweMessage(**{name: value for name, value in fields.items() if value is not None}).prepare_message())


def instant(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def sign_text(wallet: LocalAccount, message: str) -> str:
    """Return an EIP-191 signature as 0x hex."""
    return "0x" + bytes(wallet.sign_message(encode_defunct(text=message)).signature).hex()


def sign_in(api: httpx.Client, wallet: LocalAccount | None = None) -> Caller:
    wallet = wallet or Account.create()
    nonce = api.post("/v1/auth/nonce", json={"address": wallet.address}).json()
    message = siwe_message(nonce, wallet.address)
    answer = api.post("/v1/auth/siwe", json={"message": message, "signature": sign_text(wallet, message)})
    return Caller(wallet, accepted(answer)["token"], api)


def accepted(answer: httpx.Response, status: int = 200) -> Any:
    """Return the content of an answer with this status."""
    assert answer.status_code == status, answer.text
    return answer.json()


def refusal(answer: httpx.Response, status: int, code: str) -> dict[str, object]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem: dict[str, object] = answer.json()
    assert problem["code"] == code
    assert problem["remedy"]
    return problem


class Cli:
    def __init__(self, patch: pytest.MonkeyPatch, capture: pytest.CaptureFixture[str]) -> None:
        self._patch, self._capture = patch, capture

    def __call__(self, *arguments: object, code: int = 0) -> str:
        self._patch.setattr(sys, "argv", ["zoo-compute", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        self.stdout, stderr = self._capture.readouterr()
        assert (ended.value.code or 0) == code, stderr
        return self.stdout if code == 0 else stderr

    def be(self, key: bytes | str) -> None:
        self._patch.setenv("ZOO_PRIVATE_KEY", key if isinstance(key, str) else to_hex(key))

    def json(self, *arguments: object) -> Any:
        return json.loads(self(*arguments, "--json"))
