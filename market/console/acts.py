"""Acts that a page prepares and the visitor's wallet signs. The console holds no key."""

from typing import Annotated, Literal

from fastapi import APIRouter, Path
from pydantic import Field

from market.chain.views import ChainViews
from market.console.page import Audience
from market.console.visits import CurrentVisit, admission
from market.governance import acts, service
from market.governance.schemas import ActProgress, PreparedView, SentActRequest
from market.platform.http.types import HashString, RequestModel

router = APIRouter(prefix="/acts", dependencies=[admission(Audience.SIGNED_IN)])
ActKey = Annotated[str, Path(max_length=64)]


class ActArguments(RequestModel):
    """Arguments of an act, by name."""

    arguments: dict[str, Annotated[str, Field(max_length=200)]] = Field(default_factory=dict, max_length=16)


@router.post("/{key}/prepare")
def prepare_act(visit: CurrentVisit, key: ActKey, body: ActArguments) -> PreparedView:
    """Return the act in words with its call data, simulated from the visitor's wallet."""
    services = visit.services
    with services.database.reading() as session:
        contracts = service.contracts_of(session, visit.deployment, services.network)
    return acts.prepare_act(services.part(ChainViews), contracts, visit.wallet.address, key, body.arguments)


@router.post("/operations/{operation_id}/{stage}")
def prepare_step(visit: CurrentVisit, operation_id: HashString, stage: Literal["execute", "cancel"]) -> PreparedView:
    """Return the execution or the cancellation of an operation of the timelock."""
    services = visit.services
    prepare = acts.prepare_execution if stage == "execute" else acts.prepare_cancellation
    with services.database.reading() as session:
        contracts = service.contracts_of(session, visit.deployment, services.network)
        return prepare(session, services.part(ChainViews), contracts, visit.wallet.address, operation_id)


@router.post("/sent", status_code=204)
def record_sent_act(visit: CurrentVisit, body: SentActRequest) -> None:
    """Store an act that a holder of a role sent, so that its events raise no alarm."""
    address = visit.wallet.address
    with visit.services.database.transaction() as session:
        if service.role_holders(session, address):
            service.record_sent(session, address, body.act, body.stage, body.tx_hash)


@router.get("/transactions/{tx_hash}")
def follow_act(visit: CurrentVisit, tx_hash: HashString) -> ActProgress:
    """Return whether a sent transaction waits, is mined, is final or has reverted."""
    with visit.services.database.reading() as session:
        return acts.follow(session, visit.services.part(ChainViews), tx_hash)
