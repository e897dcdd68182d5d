"""Form for a new job with a live quote. The payer's wallet signs the order in the browser."""

import json
from datetime import timedelta
from decimal import Decimal
from typing import Annotated, Any

from fastapi import APIRouter, Form
from fastapi.responses import HTMLResponse
from pydantic import BaseModel, Field, ValidationError

from market.chain.errors import ChainError
from market.console.amounts import parse_zen
from market.console.page import Audience, Page
from market.console.principals import principal_of
from market.console.sessions.service import still_live
from market.console.visits import CurrentVisit
from market.domain.network import ZEN
from market.orders import balance, submission
from market.orders.errors import BalanceTaken
from market.orders.schemas import JobSpec, NewDeposit, SubmitJob
from market.platform.db.base import utc_now
from market.platform.http.errors import ChainDown, InvalidRequest
from market.platform.http.problem import MarketError
from market.platform.http.types import RequestModel, WeiString

router = APIRouter()
PAGE = Page("/my/new-job", "New job", "You", Audience.SIGNED_IN, router)
MODEL = '{\n  "hidden_size": 128,\n  "num_hidden_layers": 4,\n  "num_attention_heads": 4,\n  "sequence_length": 128\n}'
TRAINING = '{\n  "rounds": 8,\n  "inner_steps": 24,\n  "segment_steps": 6,\n  "batch_size": 8\n}'
_MAX_TEXT = 20_000
Text = Annotated[str, Field(max_length=_MAX_TEXT)]


class JobForm(BaseModel):
    """Fields of the form. Amounts in ZEN."""

    name: Annotated[str, Field(max_length=48)] = ""
    dataset: Annotated[str, Field(max_length=128)] = ""
    model: Text = MODEL
    training: Text = TRAINING
    tier: Annotated[str, Field(max_length=32)] = ""
    nodes: Annotated[int, Field(ge=1, le=256)] = 4
    budget: Annotated[str, Field(max_length=40)] = "1"
    max_price: Annotated[str, Field(max_length=40)] = ""
    wait_hours: Annotated[int, Field(ge=1, le=720)] = 6


class DepositAmount(RequestModel):
    """Wei of ZEN to move into the balance."""

    amount: WeiString


@router.get("/my/new-job")
def show_form(visit: CurrentVisit) -> HTMLResponse:
    """Return the page with the form."""
    tier = visit.services.network.tiers[0]
    price = f"{Decimal(tier.reserve_price_wei * 2) / ZEN:f}"
    return visit.render("mine/new_job.html", form=JobForm(tier=tier.name, max_price=price))


@router.post("/my/new-job/quote")
def quote(visit: CurrentVisit, form: Annotated[JobForm, Form()]) -> HTMLResponse:
    """Return the form with its quote or the field to correct; the page loads that part."""
    try:
        request = _request(form)
        found = submission.quote(request, visit.wallet.address, visit.services)
    except MarketError as problem:
        return visit.render("mine/new_job.html", form=form, problem=problem)
    except ChainError as error:
        return visit.render("mine/new_job.html", form=form, problem=ChainDown(str(error)))
    signable = request.model_dump(mode="json", by_alias=True) | {"nonce": str(found.nonce)}
    return visit.render("mine/new_job.html", form=form, quote=found, signable=signable)


@router.post("/my/new-job/submit")
def submit(visit: CurrentVisit, request: SubmitJob) -> dict[str, str]:
    """Submit the signed order; return the address of the job's page."""
    principal, services = principal_of(visit.wallet), visit.services
    signed = submission.check(request, principal.address, services)
    while True:
        try:
            with services.database.transaction() as session:
                job = submission.write_within_caps(session, signed, principal, still_live(visit.wallet))
            return {"location": f"/console/jobs/{job.id}"}
        except BalanceTaken:
            signed = submission.check_balance(signed, services)  # refuses, unless the balance has grown


@router.post("/my/deposit/permit")
def prepare_deposit(visit: CurrentVisit, body: DepositAmount) -> dict[str, Any]:
    """Return the permit to sign for a deposit into the balance."""
    permit = balance.balance(visit.wallet.address, int(body.amount), visit.services).permit
    assert permit is not None, "an amount was given"
    return permit


@router.post("/my/deposit")
def deposit(visit: CurrentVisit, body: NewDeposit) -> dict[str, str]:
    """Queue the deposit of a signed permit."""
    with visit.services.database.transaction() as session:
        queued = balance.deposit(session, visit.wallet.address, body, visit.services)
    return {"status": queued.status}


def _request(form: JobForm) -> JobSpec:
    """Return the job of a form. Raises InvalidRequest with the field to correct."""
    values = {
        "name": form.name or None,
        "data_config": {"dataset": form.dataset.strip()},
        "model_config": _settings(form.model, "model"),
        "training_config": _settings(form.training, "training"),
        "tier": form.tier,
        "nodes": form.nodes,
        "budget_max": str(parse_zen(form.budget, "budget")),
        "max_price": str(parse_zen(form.max_price, "max_price")),
        "wait_until": (utc_now() + timedelta(hours=form.wait_hours)).replace(microsecond=0).isoformat(),
    }
    try:
        return JobSpec.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise InvalidRequest(f"{field}: {first['msg']}", field=field, remedy="Correct the field.") from error


def _settings(text: str, field: str) -> dict[str, Any]:
    try:
        found = json.loads(text or "{}")
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"{field} is not JSON: {error}", field=field, remedy="Correct the field.") from error
    if not isinstance(found, dict):
        raise InvalidRequest(f"{field} is not a JSON object", field=field, remedy="Correct the field.")
    return found
