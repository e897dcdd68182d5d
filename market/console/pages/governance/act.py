"""Pages of acts: list of all, form of one, steps of the timelock, veto of a batch."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path
from fastapi.responses import HTMLResponse

from market.console.page import Audience, Page
from market.console.reads import governance as reads
from market.console.visits import CurrentVisit, Visit
from market.governance import acts, service
from market.governance.errors import PayoutNotFound
from market.governance.schemas import ActView, ParameterView
from market.platform.db.base import utc_now
from market.platform.events.service import audit_entries
from market.platform.http.errors import NotFound
from market.platform.http.types import HashString
from zoo_protocol.acts.parameters import Kind
from zoo_protocol.acts.roles import DEFAULT_ADMIN_ROLE, roles_of
from zoo_protocol.acts.table import Delay, Stage

router = APIRouter()
PAGE = Page("/acts", "Acts", "You", Audience.SIGNED_IN, router)
Step = Literal["execute", "cancel"]
VETO = "escrow.veto"
_MAX_FILLED = 200
_SENT = 20


@router.get("/acts")
def list_acts(visit: CurrentVisit) -> HTMLResponse:
    """Return the table of acts, those that the visitor's roles permit first."""
    with visit.services.database.reading() as session:
        holders = service.role_holders(session)
        sent = audit_entries(session, actor=visit.wallet.address, kind="act", limit=_SENT)
    found = [(act, reads.need_of_act(act, holders, visit.wallet.address)) for act in acts.acts()]
    found.sort(key=lambda one: (not one[1].is_held, one[1].role is None))
    return visit.render("governance/acts.html", acts=found, sent=sent, is_typed=reads.is_typed)


@router.get("/acts/{key}")
def show_act(visit: CurrentVisit, key: Annotated[str, Path(max_length=64)]) -> HTMLResponse:
    """Return the form of an act. The query fills its fields."""
    act = _act(key)
    given = visit.request.query_params
    filled = {one.name: given.get(one.name, "")[:_MAX_FILLED] for one in act.parameters}
    choices = {one.name: _choices(act, one) for one in act.parameters}
    with visit.services.database.reading() as session:
        need = reads.need_of_act(act, service.role_holders(session), visit.wallet.address)
        contracts = service.contracts_of(session, visit.deployment, visit.services.network)
    delays = {
        Delay.NONE: 0,
        Delay.TIMELOCK: contracts.delay_seconds,
        Delay.UNBONDING: visit.services.network.unbonding_seconds,
    }
    fields = {"parameters": act.parameters, "filled": filled, "choices": choices, "is_typed": reads.is_typed(act)}
    return _page(visit, act.title, key, need, delay_seconds=delays[act.delay], **fields)


@router.get("/acts/operations/{operation_id}/{step}")
def show_step(visit: CurrentVisit, operation_id: HashString, step: Step) -> HTMLResponse:
    """Return the form that executes or cancels an operation of the timelock."""
    with visit.services.database.reading() as session:
        contracts = service.contracts_of(session, visit.deployment, visit.services.network)
        operation = service.operation_view(service.operation_of(session, operation_id), contracts, utc_now())
        need = reads.need_of_stage(Stage(step), service.role_holders(session), visit.wallet.address)
    title = f"{step.capitalize()} an operation of the timelock"
    return _page(visit, title, f"operations/{operation_id}/{step}", need, operation=operation)


@router.get("/acts/batches/{number}/veto")
def show_veto(visit: CurrentVisit, number: Annotated[int, Path(ge=1, lt=2**24)]) -> HTMLResponse:
    """Return the form that vetoes a settlement batch under challenge."""
    with visit.services.database.reading() as session:
        payouts = service.payouts_under_challenge(session, utc_now())
        need = reads.need_of_act(_act(VETO), service.role_holders(session), visit.wallet.address)
    payout = next((one for one in payouts if (one.kind, one.number) == ("batch", number)), None)
    if payout is None:
        raise PayoutNotFound(f"batch {number} is not under challenge")
    return _page(visit, f"Veto settlement batch {number}", f"batches/{number}/veto", need, payout=payout)


def _page(visit: Visit, title: str, path: str, need: reads.RoleNeed, **values: Any) -> HTMLResponse:
    shown: dict[str, Any] = {"parameters": [], "filled": {}, "choices": {}, "is_typed": True, "delay_seconds": 0}
    shown |= {"operation": None, "payout": None, **values}
    return visit.render("governance/act.html", 200, title=title, path=path, need=need, **shown)


def _act(key: str) -> ActView:
    found = next((act for act in acts.acts() if act.key == key), None)
    if found is None:
        raise NotFound(f"the table of acts has no {key!r}", remedy="Choose one of the page Acts.")
    return found


def _choices(act: ActView, parameter: ParameterView) -> list[str]:
    match parameter.kind:
        case Kind.ROLE:
            return [role for role in roles_of(act.contract) if role != DEFAULT_ADMIN_ROLE]
        case Kind.FLAG:
            return ["yes", "no"]
        case _:
            return parameter.choices
