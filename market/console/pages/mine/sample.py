"""Sample of a job's model: a form on the job's page, and the text, which a worker generates."""

from typing import Annotated, Any

from fastapi import APIRouter, Form, Path
from fastapi.responses import HTMLResponse, RedirectResponse
from sqlalchemy.orm import Session

from market.accounts.service import Principal
from market.console.principals import principal_of
from market.console.visits import CurrentVisit, Visit
from market.jobs.errors import JobNotFound
from market.jobs.models import Job
from market.platform.http.errors import InvalidRequest
from market.platform.http.problem import MarketError
from market.platform.http.types import RowId
from market.training.generation import service as generation
from market.training.generation.service import MAX_LENGTH, MAX_PROMPT, MAX_SEED, MAX_TEMPERATURE, Prompt, Sample

router = APIRouter()
JobId = Annotated[str, Path(pattern=r"^0x[0-9a-f]{64}$")]
REMEDIES = {
    "memory-short": "The worker has too little memory for this model. Sample it on your own machine.",
    "model-unusable": "The model gives no text: a value is not finite, or its tokenizer does not fit.",
    "prompt-empty": "The model's tokenizer makes no token of this prompt. Enter other text.",
    "time-up": "The model did not load in time. Sample it on your own machine.",
    "files-unavailable": "The storage does not give the model's files now. Try again in some minutes.",
    "worker-lost": "The worker stopped. Try again; sample a large model on your own machine.",
}
"""Remedies by the code of a failed sample."""
DEFAULTS = Prompt("The ", 100, 0.8, 0)


def form_of(session: Session, principal: Principal, job: Job) -> dict[str, Any] | None:
    """Return the values of a job's form; None if the visitor may not sample the model."""
    try:
        generation.may_sample(session, principal, job.id)
    except JobNotFound:
        return None
    return _form(job.id, DEFAULTS)


def _form(job_id: str, given: Prompt) -> dict[str, Any]:
    limits = {"prompt": MAX_PROMPT, "length": MAX_LENGTH, "temperature": MAX_TEMPERATURE, "seed": MAX_SEED}
    return {"job_id": job_id, "given": given, "limits": limits}


@router.post("/jobs/{job_id}/samples", response_model=None)
def request_sample(
    visit: CurrentVisit,
    job_id: JobId,
    prompt: Annotated[str, Form(min_length=1, max_length=MAX_PROMPT)],
    length: Annotated[int, Form(ge=1, le=MAX_LENGTH)] = DEFAULTS.length,
    temperature: Annotated[float, Form(ge=0.01, le=MAX_TEMPERATURE)] = DEFAULTS.temperature,
    seed: Annotated[int, Form(ge=0, le=MAX_SEED)] = DEFAULTS.seed,
) -> HTMLResponse | RedirectResponse:
    """Queue a sample and lead to it, or show why there is none; the job's page loads that part."""
    given = Prompt(prompt, length, temperature, seed)
    try:
        if "\0" in prompt:
            raise InvalidRequest("prompt has a null character", field="prompt", remedy="Remove it.")
        with visit.services.database.transaction() as session:
            found = generation.request(session, visit.services.settings, principal_of(visit.wallet), job_id, given)
    except JobNotFound:
        raise
    except MarketError as problem:
        return _page(visit, _form(job_id, given), None, problem)
    return visit.back_to(f"/jobs/{job_id}/samples/{found}")


@router.get("/jobs/{job_id}/samples/{sample_id}")
def show_sample(visit: CurrentVisit, job_id: JobId, sample_id: RowId) -> HTMLResponse:
    """Return the sample: waiting, in progress, its text, or the reason of its failure."""
    with visit.services.database.reading() as session:
        found = generation.sample(session, visit.wallet.address, job_id, sample_id)
    given = Prompt(found.prompt, found.length, found.temperature, found.seed)
    return _page(visit, _form(job_id, given), found, None)


def _page(visit: Visit, form: dict[str, Any], sample: Sample | None, problem: MarketError | None) -> HTMLResponse:
    return visit.render("mine/sample.html", sampling=form, sample=sample, problem=problem, remedies=REMEDIES)
