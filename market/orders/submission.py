"""Input and output of quotes and submissions: gather data, write a job, queue its opening.

The manifests of base model and dataset first complete the request (``inputs.py``). A submission then takes four steps.
``parse_terms`` and ``sign_terms`` are pure and refuse what is cheap to refuse. The payer's balance and the dataset
follow, then :func:`write` (one statement).
A quote reads the dataset and the balance after ``parse_terms`` and ends with ``quotes.quote`` (pure).
"""

import secrets
from dataclasses import replace
from typing import TypeVar, cast

from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from market.accounts import service as accounts
from market.accounts import spending
from market.accounts.organisations import service as organisations
from market.accounts.service import Principal
from market.auctions import service as auctions
from market.chain.contracts import bindings
from market.chain.contracts.codec import ChainEvent, Deployment
from market.chain.models import TxIntent
from market.chain.service import new_intent
from market.domain.lifecycle import IntentStatus, JobEvent, JobStatus
from market.jobs import repository as jobs_repository
from market.jobs.models import Job
from market.jobs.transitions import transition_job
from market.orders import balance, quotes
from market.orders.errors import BalanceTaken
from market.orders.inputs import (
    epochs,
    require_dataset,
    require_start,
    with_base_settings,
    with_rounds,
    with_validation_samples,
)
from market.orders.models import PayerDraws
from market.orders.schemas import JobSpec, Quote, SubmitJob
from market.orders.terms import MAX_UNITS, SignedTerms, Terms, parse_terms, require_aggregation_memory, sign_terms
from market.platform.db.base import from_unix, utc_now
from market.platform.db.bulk_insert import Condition, insert_together, violates
from market.platform.db.session import UnitOfWork, enqueue_after_commit
from market.platform.events.service import MARKET, new_event
from market.platform.http.errors import NonceReplayed
from market.platform.http.services import Services
from market.platform.storage.client import Storage
from market.providers import service as providers
from market.training.aggregation import memory
from market.training.leases.service import cancel_now
from training_gym.spec.config import TrainingSpec

_Request = TypeVar("_Request", bound=JobSpec)
_MAX_SPEC_BYTES = 64 * 1024
_FUNDS_SECONDS = 1.0  # age up to which a cached view of the chain may accept a submission
_REVERT_REASONS = {  # by the contracts' errors
    "InsufficientBalance": "insufficient_balance",
    "OrderExpired": "expired",
    "EnforcedPause": "intake_paused",
    "StakeBelowGain": "stake_below_gain",
}


def quote(request: JobSpec, payer: str, services: Services) -> Quote:
    """Price a job. Writes nothing; call it with no session open.

    Raises:
        InvalidSpec, UnknownTier, InvalidOrder, BudgetBelowOneUnit, BaseModelNotFound, InvalidBaseModel,
        DatasetNotFound, InvalidDataset, StorageUnavailable, ChainError.
    """
    request, terms = _parse(request, services)
    _require_inputs(terms.spec, services)
    found = balance.funds(payer, services)
    with services.database.transaction() as session:
        available_wei = found.free_wei - balance.pending_wei(session, payer, found)
        last_price_wei = auctions.last_price(session, terms.tier.id)
        nodes_of_tier = providers.count_of_tier(session, terms.tier.id)
    return quotes.quote(
        request,
        terms,
        payer,
        services.part(Deployment),
        available_wei=available_wei,
        network=services.network,
        longest_round_seconds=services.settings.round_timeout_seconds,
        last_price_wei=last_price_wei,
        nodes_of_tier=nodes_of_tier,
        epochs=epochs(services.part(Storage), terms.spec),
        nonce=secrets.randbits(128),
    )


def check(request: SubmitJob, payer: str, services: Services) -> SignedTerms:
    """Check a submission and store its specification; call it with no session open.

    A cached view of the payer's balance may accept a submission, but only a fresh one refuses it. A fresh view would
    not prevent later changes: until the job is opened, the payer can withdraw. Then the escrow decides, and a failed
    opening ends the job with its reason (:func:`on_open_intent`).

    Raises:
        InvalidSpec, UnknownTier, InvalidOrder, BudgetBelowOneUnit, InvalidSignature, BaseModelNotFound,
        InvalidBaseModel, DatasetNotFound, InvalidDataset, InsufficientBalance, StorageUnavailable, ChainError.
    """
    request, terms = _parse(request, services)
    signed = sign_terms(request, terms, payer, services.part(Deployment))
    found = balance.funds(payer, services, _FUNDS_SECONDS)
    if found.free_wei < terms.budget_wei:
        found = balance.require(payer, terms.budget_wei, services)
    _require_inputs(terms.spec, services)
    storage = services.part(Storage)
    storage.once_a_minute(terms.spec_cid, lambda: storage.put(terms.spec_json, max_bytes=_MAX_SPEC_BYTES))
    return replace(signed, covered_wei=found.covered_wei)


def check_balance(signed: SignedTerms, services: Services) -> SignedTerms:
    """Return the terms with a fresh view of the payer's balance.

    Raises:
        InsufficientBalance, ChainError.
    """
    found = balance.require(signed.order.payer, signed.order.budget, services)
    return replace(signed, covered_wei=found.covered_wei)


def _parse(request: _Request, services: Services) -> tuple[_Request, Terms]:
    """Return the request, completed by its base model and its dataset, and its terms."""
    settings, storage = services.settings, services.part(Storage)
    request = with_rounds(with_base_settings(request, storage, settings.max_base_parameters), storage, MAX_UNITS)
    request = with_validation_samples(request, storage)
    terms = parse_terms(request, services.network, utc_now(), settings.round_timeout_seconds, settings.max_parameters)
    needed = memory.estimate(settings, terms.spec, terms.nodes)
    storage.once_a_minute(("aggregation", needed), lambda: _require_worker_memory(needed, services))
    return request, terms


def _require_inputs(spec: TrainingSpec, services: Services) -> None:
    def spec_of(job_id: str) -> TrainingSpec | None:
        with services.database.reading() as session:
            job = jobs_repository.job(session, job_id)
            return None if job is None else TrainingSpec.from_dict(job.spec)

    require_dataset(services.part(Storage), spec)
    require_start(services.part(Storage), spec, spec_of)


def _require_worker_memory(needed: int, services: Services) -> None:
    with services.database.reading() as session:
        require_aggregation_memory(needed, memory.smallest_worker(session, services.settings))


def write_within_caps(
    session: Session, signed: SignedTerms, principal: Principal, only_if: Condition | None = None
) -> Job:
    """Write the job, count it against the caps and queue its opening, in one transaction.

    Raises:
        NonceReplayed, BalanceTaken: see :func:`write`.
        OrganisationNotFound, NotPermitted: the payer may not submit in the organisation's name.
        SpendingCapReached: the budget exceeds a cap of the API key, the organisation or the member.
    """
    limits = [] if principal.limit_id is None else [(principal.limit_id, "the API key")]
    if signed.request.organisation is not None:
        limits += organisations.limits_for(session, signed.request.organisation, signed.order.payer)
    job = write(session, signed, principal, only_if)
    if limits:
        spending.reserve(session, job.id, signed.order.budget, limits)
    return job


def write(unit: UnitOfWork, signed: SignedTerms, principal: Principal, only_if: Condition | None = None) -> Job:
    """Write the job and queue its opening by one statement, for accounts without a cap.

    The statement adds the budget to the payer's total under a constraint. Concurrent submissions therefore cannot
    exceed the balance together.

    Args:
        only_if: condition that the caller is still signed in; default: its credential of the API is live.

    Raises:
        NonceReplayed: the payer used this nonce before.
        BalanceTaken: with the payer's other orders, the budget exceeds the balance as last read.
    """
    request, terms, order = signed.request, signed.terms, signed.order
    job = Job(
        id=signed.job_id,
        payer=order.payer,
        status=JobStatus.SUBMITTED,
        request=request.model_dump(mode="json", by_alias=True, exclude={"order_signature"}),
        spec=terms.spec.to_dict(),
        spec_hash=order.specHash,
        spec_cid=terms.spec_cid,
        tier_id=order.tier,
        nodes=terms.nodes,
        rounds=terms.spec.training.rounds,
        segments=order.segments,
        sampling_bps=order.samplingBps,
        checkpoint_interval=request.checkpoint.interval,
        redundancy=request.checkpoint.redundancy,
        requirements=request.requirements.model_dump() | {"min_mflops": terms.min_mflops},
        units_ordered=order.units,
        unit_weight_us=order.unitWeight,
        budget_wei=order.budget,
        max_price_wei=order.maxPrice,
        wait_until=terms.wait_until,
        nonce=order.nonce,
        order_signature=signed.order_signature,
        organisation_id=request.organisation,
        escrowed_wei=0,
        current_round=0,
    )
    try:
        is_new = insert_together(
            unit,
            providers.new_nonce(order.payer, order.nonce, job.id),
            PayerDraws(payer=order.payer, total_wei=order.budget, covered_wei=signed.covered_wei),
            job,
            new_event(unit, job.id, "status", {"status": job.status, "reason": None}),
            _opening(unit, signed),
            only_if=only_if or accounts.still_live(principal),
        )
    except IntegrityError as error:
        if violates(error, PayerDraws.COVERED):
            raise BalanceTaken from error
        raise
    if not is_new:  # If the credential ended instead, require_live_caller replaces this refusal.
        raise NonceReplayed(
            f"{order.payer} used the nonce {order.nonce} before.",
            field="nonce",
            remedy="Ask for a new quote (POST /v1/quotes) and sign the order it returns.",
        )
    return job


def is_unlimited(request: SubmitJob, principal: Principal) -> bool:
    """Return true if no spending cap applies, so that :func:`write` suffices."""
    return principal.limit_id is None and request.organisation is None


def _opening(unit: UnitOfWork, signed: SignedTerms) -> TxIntent:
    order = signed.order
    return new_intent(
        unit,
        key=f"open:{signed.job_id}",
        kind="open_job",
        subject=signed.job_id,
        fits=True,  # the order was hashed with the escrow's types
        **bindings.JobEscrow.openJob(
            cast(bindings.JobOrder, {name: getattr(order, name) for name in order.__slots__}),
            signed.order_signature,
        ),
    )


def on_job_opened(session: Session, event: ChainEvent) -> None:
    """Add a job with a final escrow to the order book of its tier. Once for each event.

    An order whose opening reverted is public, and any account can relay it until it expires. The market reported that
    such a job costs nothing. Therefore it is cancelled, and the next settlement refunds its budget.
    """
    job = jobs_repository.lock_job(session, event.args["jobId"])
    was_rejected = job is not None and job.status == JobStatus.REJECTED
    if job is None or was_rejected:
        balance.record_foreign(session, event.args["payer"], event.args["budget"])
    if job is None or job.status not in (JobStatus.SUBMITTED, JobStatus.REJECTED):
        return  # relayed and never submitted here, or handled before
    job.escrowed_wei = event.args["budget"]
    job.fee_bps = event.args["feeBps"]
    job.open_tx = event.tx_hash
    job.funded_at = from_unix(event.timestamp)
    transition_job(session, job, JobEvent.DEPOSIT_FINAL)
    if was_rejected:
        cancel_now(session, job, MARKET, reason="deposit_after_rejection")
        return
    if job.cancelled_by is not None:
        cancel_now(session, job, job.cancelled_by)
        return
    transition_job(session, job, JobEvent.LISTED)
    enqueue_after_commit(session, "auctions.clear")
    enqueue_after_commit(session, "jobs.dispatch", job.id)


def on_open_intent(session: Session, intent: TxIntent) -> None:
    """Reject the job of a reverted ``open_job`` intent; the payer paid nothing.

    The event :func:`on_job_opened` handles all others. That includes an opening that reverted because another
    account relayed the same signed order first: the escrow holds its budget.
    """
    error = (intent.detail or "").partition("(")[0]
    if intent.status != IntentStatus.REVERTED or error == "JobExists":
        return
    job = jobs_repository.lock_job(session, intent.subject)
    if job is not None and job.status == JobStatus.SUBMITTED:
        transition_job(session, job, JobEvent.DEPOSIT_REVERTED, reason=_REVERT_REASONS.get(error, "deposit_reverted"))
        spending.set_cost(session, job.id, 0)
        balance.release(session, job.payer, job.budget_wei)
