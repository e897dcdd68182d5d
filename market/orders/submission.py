"""Input and output of quotes and submissions: gather data, write a job, queue its deposit.

A submission takes four steps. ``parse_terms`` and ``check_order`` are pure and refuse what is cheap to refuse. The
payer's funds follow, then ``sign_terms`` (pure), the dataset and :func:`write` (one statement).
A quote reads the dataset and the funds after ``parse_terms`` and ends with ``quotes.quote`` (pure).
"""

import secrets
from dataclasses import replace
from datetime import UTC, datetime
from typing import cast

from sqlalchemy.orm import Session

from market.accounts import service as accounts
from market.accounts import spending
from market.accounts.organisations import service as organisations
from market.accounts.service import Principal
from market.auctions import service as auctions
from market.chain.contracts import bindings
from market.chain.contracts.codec import ChainEvent, Deployment
from market.chain.errors import ChainError
from market.chain.models import TxIntent
from market.chain.service import new_intent
from market.chain.views import ChainViews, Funds
from market.domain.lifecycle import IntentStatus, JobEvent, JobStatus
from market.jobs import repository as jobs_repository
from market.jobs.models import Job
from market.jobs.transitions import transition_job
from market.orders import quotes
from market.orders.dataset_check import require_dataset
from market.orders.errors import InsufficientBalance
from market.orders.schemas import JobSpec, Quote, SubmitJob
from market.orders.terms import PayerState, SignedTerms, Terms, check_order, parse_terms, sign_terms
from market.platform.db.base import utc_now
from market.platform.db.bulk_insert import insert_together
from market.platform.db.session import UnitOfWork, enqueue_after_commit
from market.platform.events.service import MARKET, new_event
from market.platform.http.errors import ChainDown, InvalidSignature, NonceReplayed, StorageDown
from market.platform.http.services import Services
from market.platform.storage.client import Storage
from market.platform.storage.errors import StorageUnavailable
from market.platform.storage.recently_seen import record_verified, was_recently_verified
from market.providers import service as providers
from market.training.leases.job_stop import cancel_now
from zoo_protocol.hashing import from_hex

_MAX_SPEC_BYTES = 64 * 1024
_FUNDS_SECONDS = 1.0  # age up to which a cached view of the chain may accept a submission
_REVERT_REASONS = {  # by the contracts' errors
    "ERC20InsufficientAllowance": "permit_not_usable",
    "ERC20InsufficientBalance": "insufficient_balance",
    "OrderExpired": "expired",
    "EnforcedPause": "intake_paused",
    "StakeBelowGain": "stake_below_gain",
}


def quote(request: JobSpec, payer: str, services: Services) -> Quote:
    """Price a job. Writes nothing; call it with no session open.

    Raises:
        InvalidSpec, UnknownTier, InvalidOrder, BudgetBelowOneUnit, DatasetNotFound, InvalidDataset, StorageDown,
        ChainDown.
    """
    terms = _parse(request, services)
    require_dataset(services.part(Storage), terms.spec)
    state = PayerState(payer, services.part(Deployment), _funds(payer, services))
    with services.database.transaction() as session:
        last_price_wei = auctions.last_price(session, terms.tier.id)
        nodes_of_tier = providers.count_of_tier(session, terms.tier.id)
    return quotes.quote(
        request,
        terms,
        state,
        network=services.network,
        longest_round_seconds=services.settings.round_timeout_seconds,
        last_price_wei=last_price_wei,
        nodes_of_tier=nodes_of_tier,
        nonce=secrets.randbits(128),
    )


def check(request: SubmitJob, payer: str, services: Services) -> SignedTerms:
    """Check a submission and store its specification; call it with no session open.

    A cached view of the payer's funds may accept a submission, but only a fresh one refuses it. A fresh view would not
    prevent later changes: until the deposit is mined, the payer can spend its tokens or use the permit. Then the escrow
    decides, and a failed deposit ends the job with its reason (:func:`on_deposit_intent`).

    Raises:
        InvalidSpec, UnknownTier, InvalidOrder, BudgetBelowOneUnit, InvalidSignature, PermitTooShort, DatasetNotFound,
        InvalidDataset, InsufficientBalance, StorageDown, ChainDown.
    """
    terms, deployment = _parse(request, services), services.part(Deployment)
    order_signature = check_order(request, terms, payer, deployment)
    state = PayerState(payer, deployment, _funds(payer, services, _FUNDS_SECONDS))
    try:
        signed = sign_terms(request, terms, order_signature, state)
    except (InvalidSignature, InsufficientBalance):
        signed = sign_terms(request, terms, order_signature, replace(state, funds=_funds(payer, services)))
    require_dataset(services.part(Storage), terms.spec)
    _publish(terms, services.part(Storage))
    return signed


def _parse(request: JobSpec, services: Services) -> Terms:
    return parse_terms(request, services.network, utc_now(), services.settings.round_timeout_seconds)


def _funds(payer: str, services: Services, max_age_seconds: float = 0.0) -> Funds:
    try:
        return services.part(ChainViews).funds(payer, max_age_seconds)
    except ChainError as error:
        raise ChainDown(str(error)) from error


def _publish(terms: Terms, storage: Storage) -> None:
    if was_recently_verified(storage, terms.spec_cid):
        return
    try:
        storage.put(terms.spec_json, max_bytes=_MAX_SPEC_BYTES)
    except StorageUnavailable as error:
        raise StorageDown(str(error)) from error
    record_verified(storage, terms.spec_cid)


def write_within_caps(session: Session, signed: SignedTerms, principal: Principal) -> Job:
    """Write the job, count it against the caps and queue its deposit, in one transaction.

    Raises:
        NonceReplayed: the payer used this nonce before.
        OrganisationNotFound, NotPermitted: the payer may not submit in the organisation's name.
        SpendingCapReached: the budget exceeds a cap of the API key, the organisation or the member.
    """
    limits = [] if principal.limit_id is None else [(principal.limit_id, "the API key")]
    if signed.request.organisation is not None:
        limits += organisations.limits_for(session, signed.request.organisation, signed.order.payer)
    job = write(session, signed, principal)
    if limits:
        spending.reserve(session, job.id, signed.order.budget, limits)
    return job


def write(unit: UnitOfWork, signed: SignedTerms, principal: Principal) -> Job:
    """Write the job and queue its deposit by one statement, for accounts without a cap.

    Raises:
        NonceReplayed: the payer used this nonce before.
    """
    request, terms, order = signed.request, signed.terms, signed.order
    job = Job(
        id=signed.job_id,
        payer=order.payer,
        status=JobStatus.SUBMITTED,
        request=request.model_dump(mode="json", by_alias=True, exclude={"order_signature", "permit"}),
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
        requirements=request.requirements.model_dump(),
        units_ordered=order.units,
        unit_weight_us=order.unitWeight,
        budget_wei=order.budget,
        max_price_wei=order.maxPrice,
        wait_until=terms.wait_until,
        nonce=order.nonce,
        order_signature=signed.order_signature,
        organisation_id=request.organisation,
        permit={"deadline": request.permit.deadline, "signature": signed.permit_signature},
        escrowed_wei=0,
        current_round=0,
    )
    is_new = insert_together(
        unit,
        providers.new_nonce(order.payer, order.nonce, job.id),
        job,
        new_event(unit, job.id, "status", {"status": job.status, "reason": None}),
        _deposit(unit, signed),
        only_if=accounts.still_live(principal),
    )
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


def _deposit(unit: UnitOfWork, signed: SignedTerms) -> TxIntent:
    permit, order = from_hex(signed.permit_signature, 65), signed.order
    return new_intent(
        unit,
        key=f"open:{signed.job_id}",
        kind="open_job",
        subject=signed.job_id,
        fits=True,  # the order was hashed with the escrow's types
        **bindings.JobEscrow.openJob(
            cast(bindings.JobOrder, {name: getattr(order, name) for name in order.__slots__}),
            signed.order_signature,
            signed.request.permit.deadline,
            permit[64],
            permit[:32],
            permit[32:64],
        ),
    )


def on_job_opened(session: Session, event: ChainEvent) -> None:
    """Add a job with a final deposit to the order book of its tier. Idempotent.

    An order whose deposit reverted is public, and any account can relay it until it expires. The market reported that
    such a job costs nothing. Therefore it is cancelled, and the next settlement refunds its budget.
    """
    job = jobs_repository.lock_job(session, event.args["jobId"])
    if job is None or job.status not in (JobStatus.SUBMITTED, JobStatus.REJECTED):
        return  # relayed and never submitted here, or handled before
    was_rejected = job.status == JobStatus.REJECTED
    job.escrowed_wei = event.args["budget"]
    job.fee_bps = event.args["feeBps"]
    job.open_tx = event.tx_hash
    job.funded_at = datetime.fromtimestamp(event.timestamp, UTC)
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


def on_deposit_intent(session: Session, intent: TxIntent) -> None:
    """Reject the job of a reverted ``open_job`` intent; the payer paid nothing.

    The event :func:`on_job_opened` handles all other deposits. That includes a deposit that reverted because another
    account relayed the same signed order first: the escrow holds its budget.
    """
    error = (intent.detail or "").partition("(")[0]
    if intent.status != IntentStatus.REVERTED or error == "JobExists":
        return
    job = jobs_repository.lock_job(session, intent.subject)
    if job is not None and job.status == JobStatus.SUBMITTED:
        transition_job(session, job, JobEvent.DEPOSIT_REVERTED, reason=_REVERT_REASONS.get(error, "deposit_reverted"))
        spending.set_cost(session, job.id, 0)
