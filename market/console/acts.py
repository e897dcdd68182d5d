"""Acts that a page prepares and the visitor's wallet signs. The console holds no key."""

from typing import Annotated, Literal

from fastapi import APIRouter, Path
from pydantic import Field
from sqlalchemy.orm import Session

from market.chain.service import final_block
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
        contracts, operation = _contracts(session, visit), service.operation_of(session, operation_id)
    return prepare(_chain(visit), contracts, visit.wallet.address, operation)


@router.post("/batches/{number}/veto/prepare")
def prepare_veto(visit: CurrentVisit, number: Annotated[int, Path(ge=1, lt=2**24)]) -> PreparedView:
    """Return the veto of a batch with the contents that the chain has, simulated."""
    with visit.services.database.reading() as session:
        contracts, batch = _contracts(session, visit), service.batch_of(session, number)
    return acts.prepare_batch_veto(_chain(visit), contracts, visit.wallet.address, batch)


@router.post("/sent", status_code=204)
def record_sent_act(visit: CurrentVisit, body: SentActRequest) -> None:
    """Store an act that a holder of a role sent, so that its events raise no alarm."""
    address = visit.wallet.address
    with visit.services.database.reading() as session:
        contracts, roles = _contracts(session, visit), service.role_holders(session, address)
    if not roles:
        return
    sent = acts.sent_transaction(_chain(visit), body.tx_hash)
    with visit.services.database.transaction() as session:
        service.record_sent(session, contracts, address, body.act, body.stage, sent)


@router.get("/transactions/{tx_hash}")
def follow_act(visit: CurrentVisit, tx_hash: HashString) -> ActProgress:
    """Return whether a sent transaction waits, is mined, is final or has reverted."""
    with visit.services.database.reading() as session:
        final = final_block(session)
    return acts.follow(_chain(visit), final, tx_hash)


def _chain(visit: Visit) -> ChainViews:
    return visit.services.part(ChainViews)


def _contracts(session: Session, visit: Visit) -> Contracts:
    return service.contracts_of(session, visit.deployment, visit.services.network)
