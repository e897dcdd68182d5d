"""Acts that a page prepares and the visitor's wallet signs. The console holds no key."""

from typing import Annotated, Literal

from fastapi import APIRouter, Path
from pydantic import Field
from sqlalchemy.orm import Session

from market.chain.views import ChainViews
from market.console.page import Audience
from market.console.visits import CurrentVisit, Visit, admission
from market.governance import acts, service
from market.governance.schemas import ActProgress, PreparedView, SentActRequest
from market.platform.http.types import HashString, RequestModel
from zoo_protocol.acts.calls import Contracts

router = APIRouter(prefix="/acts", dependencies=[admission(Audience.SIGNED_IN)])
ActKey = Annotated[str, Path(max_length=64)]


class ActArguments(RequestModel):
    """Arguments of an act, by name."""

    arguments: dict[str, Annotated[str, Field(max_length=200)]] = Field(default_factory=dict, max_length=16)


@router.post("/{key}/prepare")
def prepare_act(visit: CurrentVisit, key: ActKey, body: ActArguments) -> PreparedView:
    """Return the act in words with its call data, simulated from the visitor's wallet."""
    with visit.services.database.reading() as session:
        contracts = _contracts(session, visit)
    return acts.prepare_act(_chain(visit), contracts, visit.wallet.address, key, body.arguments)


@router.post("/operations/{operation_id}/{step}/prepare")
def prepare_step(visit: CurrentVisit, operation_id: HashString, step: Literal["execute", "cancel"]) -> PreparedView:
    """Return the execution or cancellation of an operation of the timelock, simulated."""
    prepare = acts.prepare_execution if step == "execute" else acts.prepare_cancellation
    with visit.services.database.reading() as session:
        return prepare(session, _chain(visit), _contracts(session, visit), visit.wallet.address, operation_id)


@router.post("/batches/{number}/veto/prepare")
def prepare_veto(visit: CurrentVisit, number: Annotated[int, Path(ge=1, lt=2**24)]) -> PreparedView:
    """Return the veto of a batch with the contents that the chain has, simulated."""
    with visit.services.database.reading() as session:
        contracts = _contracts(session, visit)
        return acts.prepare_batch_veto(session, _chain(visit), contracts, visit.wallet.address, number)


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
        return acts.follow(session, _chain(visit), tx_hash)


def _chain(visit: Visit) -> ChainViews:
    return visit.services.part(ChainViews)


def _contracts(session: Session, visit: Visit) -> Contracts:
    return service.contracts_of(session, visit.deployment, visit.services.network)
