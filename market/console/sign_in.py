"""Sign-in with a wallet, and on a devnet with its accounts."""

import re
from datetime import datetime
from typing import Annotated, Any, Literal

import siwe
from fastapi import APIRouter, Header
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse
from pydantic import Field

from market.accounts import service as accounts
from market.chain.contracts.codec import Deployment
from market.chain.errors import ChainError
from market.chain.rpc.transport import Endpoint
from market.console.chain_facts import ChainFactsReader
from market.console.errors import DevnetOnly
from market.console.reads.providers import kinds_of_nodes
from market.console.sessions import service as sessions
from market.console.visits import COOKIE, CurrentVisit
from market.platform.db.base import utc_now
from market.platform.http.services import Services
from market.platform.http.types import AddressString, RequestModel, SignatureString
from market.settings import split_list

router = APIRouter()
DEVNET_CHAIN_ID = 31337
_RPC_SECONDS = 10.0
_NEXT = re.compile(r"/console(/[\w./?&=%-]*)?")
RelayedMethod = Literal[
    "eth_accounts",
    "eth_chainId",
    "personal_sign",
    "eth_signTypedData_v4",
    "eth_sendTransaction",
    "eth_getTransactionReceipt",
]


class ChallengeRequest(RequestModel):
    """Wallet that wants to sign in."""

    address: AddressString


class SignInRequest(RequestModel):
    """Signed EIP-4361 message."""

    message: Annotated[str, Field(max_length=2_000)]
    signature: SignatureString


class RelayRequest(RequestModel):
    """JSON-RPC request of the devnet's wallet (EIP-1193)."""

    method: RelayedMethod
    params: list[Any] = Field(default_factory=list, max_length=4)


@router.get("/sign-in")
def show_sign_in(visit: CurrentVisit, next: str = "/console") -> HTMLResponse:
    """Return the page with the wallets of the browser, and on a devnet its accounts."""
    wallets = _devnet_wallets(visit.services) if is_devnet(visit.services) else []
    return visit.render("account/sign_in.html", wallets=wallets, target=next if _NEXT.fullmatch(next) else "/console")


@router.post("/sign-in/challenge")
def challenge(visit: CurrentVisit, body: ChallengeRequest) -> dict[str, str]:
    """Return the EIP-4361 message that the wallet signs, with a nonce for one use."""
    settings, now = visit.services.settings, utc_now()
    with visit.services.database.transaction() as session:
        nonce = accounts.issue_nonce(session, body.address)
    message = siwe.SiweMessage(
        domain=settings.domain,
        address=body.address,
        statement=accounts.STATEMENT,
        uri=settings.public_url,
        version="1",
        chain_id=visit.deployment.chain_id,
        nonce=nonce.nonce,
        issued_at=_instant(now),
        expiration_time=_instant(nonce.expires_at),
    )
    return {"message": str(message.prepare_message())}


@router.post("/sign-in")
def sign_in(visit: CurrentVisit, body: SignInRequest, user_agent: Annotated[str, Header()] = "") -> JSONResponse:
    """Open a session and set its cookie."""
    secret, expires_at = sessions.sign_in(visit.services, body.message, body.signature, user_agent)
    response = JSONResponse({"expires_at": expires_at.isoformat()})
    visit.keep(response, COOKIE, secret, expires_at)
    return response


@router.post("/sign-out")
def sign_out(visit: CurrentVisit) -> RedirectResponse:
    """End this session."""
    visitor = visit.wallet
    with visit.services.database.transaction() as session:
        sessions.end_session(session, visitor.address, visitor.session_id)
    response = visit.back_to("")
    visit.forget(response, COOKIE)
    return response


@router.post("/devnet/rpc")
def relay(visit: CurrentVisit, body: RelayRequest) -> dict[str, Any]:
    """Pass a request of the devnet's wallet to its node, whose accounts have public keys.

    Raises:
        DevnetOnly: the chain is another one.
    """
    if not is_devnet(visit.services):
        raise DevnetOnly(f"the chain id is {visit.deployment.chain_id}; expected {DEVNET_CHAIN_ID}")
    return {"result": _node(visit.services).ask(body.method, *body.params)}


def is_devnet(services: Services) -> bool:
    """Return True if the chain is a development chain with public keys."""
    return services.part(Deployment).chain_id == DEVNET_CHAIN_ID


def _node(services: Services) -> Endpoint:
    return Endpoint(split_list(services.settings.rpc_url)[0], _RPC_SECONDS)


def _devnet_wallets(services: Services) -> list[tuple[str, str]]:
    """Return the node's accounts with their roles, those with a role first."""
    try:
        roles = services.part(ChainFactsReader).devnet_accounts(services)
    except ChainError:
        return []
    with services.database.reading() as session:
        kinds = kinds_of_nodes(session, list(roles))
    found = [(address, ", ".join(sorted(own)) or kinds.get(address, "user")) for address, own in roles.items()]
    return sorted(found, key=lambda one: (not roles[one[0]], one[0] in kinds))


def _instant(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
