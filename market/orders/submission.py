"""Taking a job in: check the signed order and permit, write the job, ask the chain for its deposit."""

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, cast

from sqlalchemy.orm import Session

from market.accounts import service as accounts
from market.accounts import spending
from market.accounts.organisations import service as organisations
from market.accounts.service import Principal
from market.chain.contracts import bindings
from market.chain.contracts.codec import ChainEvent, Deployment
from market.chain.models import TxIntent
from market.chain.service import new_intent
from market.chain.views import ChainViews, Funds
from market.domain.lifecycle import IntentStatus, JobEvent, JobStatus
from market.domain.money import format_amount
from market.domain.network import NetworkParameters
from market.jobs import repository as jobs_repository
from market.jobs.models import Job
from market.jobs.transitions import transition_job
from market.orders.dataset_check import require_dataset
from market.orders.errors import InsufficientBalance, PermitTooShort
from market.orders.quotes import Terms, funds_of, permit_document, require_unit_in_time, terms
from market.orders.schemas import SignedPermit, SubmitJob
from market.platform.db.bulk_insert import insert_together
from market.platform.db.session import UnitOfWork, enqueue_after_commit
from market.platform.events.service import MARKET, new_event
from market.platform.http.errors import InvalidSignature, NonceReplayed, StorageDown
from market.platform.storage.client import Storage
from market.platform.storage.errors import StorageUnavailable
from market.platform.storage.recently_seen import record_verified, was_recently_verified
from market.providers import service as providers
from market.training.leases.stopping import cancel_now
from zoo_protocol.content.unixfs import cid_of_file
from zoo_protocol.hashing import from_hex, to_hex
from zoo_protocol.messages import Domain, JobOrder, recover, struct_hash, typed_data

_HALF_ORDER = 0x7FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF5D576E7357A4501DDFE92F46681B20A0


_MAX_SPEC_BYTES = 64 * 1024


_FUNDS_SECONDS = 1.0  # for how long what the chain said of a payer may pass its jobs


_REVERT_REASONS = {  # by the contracts' errors
    "ERC20InsufficientAllowance": "permit_not_usable",
    "ERC20InsufficientBalance": "insufficient_balance",
    "OrderExpired": "expired",
    "EnforcedPause": "intake_paused",
    "StakeBelowGain": "stake_below_gain",
}


@dataclass(frozen=True, slots=True)
class CheckedJob:
    """A submission that passed every check and only has to be written."""

    request: SubmitJob
    terms: Terms
    order: JobOrder
    order_signature: str
    permit_signature: str
    spec_cid: str
    id: str


def check(
    request: SubmitJob,
    payer: str,
    *,
    network: NetworkParameters,
    deployment: Deployment,
    chain: ChainViews,
    storage: Storage,
    longest_round_seconds: float,
    now: datetime,
) -> CheckedJob:
    """Check a submission against the chain and storage; call it with no session open.

    The order and the permit are rebuilt from the body, never taken from it, so a signature over anything else does
    not recover the payer. Both must be from an account with a key; contract wallets can relay through the contract.

    Raises:
        InvalidSpec, UnknownTier, InvalidOrder, BudgetBelowOneUnit, InvalidSignature, PermitTooShort, DatasetNotFound,
        InvalidDataset, InsufficientBalance, StorageDown, ChainDown.
    """
    job = terms(request, network, now)
    require_unit_in_time(job, longest_round_seconds)
    order = job.order(payer, request.nonce)
    domain = Domain(deployment.chain_id, deployment.address("JobEscrow"))
    order_signature = _signed_by(payer, typed_data(domain, order), request.order_signature, "order_signature")
    if request.permit.deadline < order.waitUntil:
        raise PermitTooShort(
            f"The permit ends at {request.permit.deadline}, wait_until is {order.waitUntil} (Unix seconds).",
            field="permit.deadline",
            remedy="Sign a permit whose deadline is not before wait_until; a quote proposes one.",
        )
    permit_signature = _funded_permit(deployment, chain, payer, job.budget_wei, request.permit)
    require_dataset(storage, job.spec)
    spec_cid = _publish(storage, job.spec_json)
    return CheckedJob(request, job, order, order_signature, permit_signature, spec_cid, struct_hash(order))


def _funded_permit(deployment: Deployment, chain: ChainViews, payer: str, budget_wei: int, permit: SignedPermit) -> str:
    """The permit's signature, if it is the payer's over its permit nonce, and the payer holds the budget.

    What the chain said within the last second may pass a job, but never refuses one. That is as good as a fresh look:
    the payer can spend its tokens, or use the permit, until the deposit is mined. Then the escrow decides, and a
    deposit that fails ends the job with its reason (:func:`on_deposit_intent`).

    Raises:
        InvalidSignature, InsufficientBalance, ChainDown.
    """

    def check_against(funds: Funds) -> str:
        document = permit_document(deployment, payer, budget_wei, funds.permit_nonce, permit.deadline)
        signature = _signed_by(payer, document, permit.signature, "permit.signature")
        if funds.balance_wei < budget_wei:
            detail = f"{payer} holds {format_amount(funds.balance_wei)}, the budget is {format_amount(budget_wei)}."
            raise InsufficientBalance(detail, field="budget_max")
        return signature

    try:
        return check_against(funds_of(chain, payer, _FUNDS_SECONDS))
    except (InvalidSignature, InsufficientBalance):
        return check_against(funds_of(chain, payer))


def _publish(storage: Storage, spec: bytes) -> str:
    """Store the specification, unless the same one was stored within the last minute; its CID."""
    cid = _cid(spec)
    if not was_recently_verified(storage, cid):
        try:
            storage.put(spec, max_bytes=_MAX_SPEC_BYTES)
        except StorageUnavailable as error:
            raise StorageDown(str(error)) from error
        record_verified(storage, cid)
    return cid


@lru_cache(256)  # as many as specifications are remembered
def _cid(spec: bytes) -> str:
    return str(cid_of_file(spec))


def write_within_caps(session: Session, checked: CheckedJob, principal: Principal) -> Job:
    """Write the job, count it against all spending caps and queue its deposit: all of it or nothing.

    Raises:
        NonceReplayed: the payer used this nonce before.
        OrganisationNotFound, NotPermitted: the payer may not submit in the organisation's name.
        SpendingCapReached: the budget exceeds a cap of the API key, the organisation or the member.
    """
    limits = [] if principal.limit_id is None else [(principal.limit_id, "the API key")]
    if checked.request.organisation is not None:
        limits += organisations.limits_for(session, checked.request.organisation, checked.order.payer)
    job = write(session, checked, principal)
    if limits:
        spending.reserve(session, checked.id, checked.order.budget, limits)
    return job


def write(unit: UnitOfWork, checked: CheckedJob, principal: Principal) -> Job:
    """Write the job and queue its deposit by one statement, which is all there is to do if no cap counts it.

    Raises:
        NonceReplayed: the payer used this nonce before.
    """
    order, job_terms = checked.order, checked.terms
    options = checked.request.checkpoint
    job = Job(
        id=checked.id,
        payer=order.payer,
        status=JobStatus.SUBMITTED,
        request=checked.request.model_dump(mode="json", by_alias=True, exclude={"order_signature", "permit"}),
        spec=job_terms.spec.to_dict(),
        spec_hash=order.specHash,
        spec_cid=checked.spec_cid,
        tier_id=order.tier,
        nodes=job_terms.nodes,
        rounds=job_terms.spec.training.rounds,
        segments=order.segments,
        sampling_bps=order.samplingBps,
        checkpoint_interval=options.interval,
        redundancy=options.redundancy,
        requirements=checked.request.requirements.model_dump(),
        units_ordered=order.units,
        unit_weight_us=order.unitWeight,
        budget_wei=order.budget,
        max_price_wei=order.maxPrice,
        wait_until=job_terms.wait_until,
        nonce=order.nonce,
        order_signature=checked.order_signature,
        organisation_id=checked.request.organisation,
        permit={"deadline": checked.request.permit.deadline, "signature": checked.permit_signature},
        escrowed_wei=0,
        current_round=0,
    )
    is_new = insert_together(
        unit,
        providers.new_nonce(order.payer, order.nonce, checked.id),
        job,
        new_event(unit, job.id, "status", {"status": job.status, "reason": None}),
        _deposit(unit, checked),
        only_if=accounts.still_live(principal),
    )
    if not is_new:  # or the credential is not live, which is asked before a refusal leaves (require_live_caller)
        raise NonceReplayed(
            f"{order.payer} used the nonce {order.nonce} before.",
            field="nonce",
            remedy="Ask for a new quote (POST /v1/quotes) and sign the order it returns.",
        )
    return job


def is_unlimited(checked: CheckedJob, principal: Principal) -> bool:
    """Whether no spending cap counts the job, so that :func:`write` is all there is to do."""
    return principal.limit_id is None and checked.request.organisation is None


def on_job_opened(session: Session, event: ChainEvent) -> None:
    """The deposit is final: list the job in the book of its tier. A second delivery of the event changes nothing.

    An order whose deposit reverted is public, and anybody can relay it while it lasts. Its payer was told that it costs
    nothing, so it is cancelled, and its budget goes back by the next settlement.
    """
    job = jobs_repository.lock_job(session, event.args["jobId"])
    if job is None or job.status not in (JobStatus.SUBMITTED, JobStatus.REJECTED):
        return  # opened by somebody else's relay of an order that was never submitted here, or seen before
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
    """Handler of ``open_job`` intents. A reverted deposit ends the job; nothing was taken from the payer.

    A deposit that succeeded is acted on by its event. So is one that reverted because somebody else relayed the same
    signed order first: the escrow holds the budget just the same.
    """
    error = (intent.detail or "").partition("(")[0]
    if intent.status != IntentStatus.REVERTED or error == "JobExists":
        return
    job = jobs_repository.lock_job(session, intent.subject)
    if job is not None and job.status == JobStatus.SUBMITTED:
        transition_job(session, job, JobEvent.DEPOSIT_REVERTED, reason=_REVERT_REASONS.get(error, "deposit_reverted"))
        spending.set_cost(session, job.id, 0)


def _deposit(unit: UnitOfWork, checked: CheckedJob) -> TxIntent:
    """The call of the escrow that takes the budget. It fits: the order was hashed by the types of the escrow."""
    permit = from_hex(checked.permit_signature, 65)
    order = checked.order
    return new_intent(
        unit,
        key=f"open:{checked.id}",
        kind="open_job",
        subject=checked.id,
        fits=True,
        **bindings.JobEscrow.openJob(
            cast(bindings.JobOrder, {name: getattr(order, name) for name in order.__slots__}),
            checked.order_signature,
            checked.request.permit.deadline,
            permit[64],
            permit[:32],
            permit[32:64],
        ),
    )


def _signed_by(signer: str, document: dict[str, Any], signature: str, field: str) -> str:
    """The signature in the form that contracts take (low s, v of 27 or 28), if it is the signer's.

    Raises:
        InvalidSignature: malformed, or over another message or by another key.
    """
    name = document["primaryType"]
    try:
        raw = from_hex(signature, 65)
    except ValueError as error:
        raise InvalidSignature(str(error), field=field, remedy=f"Give the 65-byte signature of the {name}.") from error
    v = raw[64] + 27 if raw[64] < 27 else raw[64]
    if v not in (27, 28) or int.from_bytes(raw[32:64], "big") > _HALF_ORDER:
        raise InvalidSignature(
            "The signature is not in canonical form (s in the lower half, v of 27 or 28).",
            field=field,
            remedy="Sign with a current wallet; all of them give this form.",
        )
    canonical = to_hex(raw[:64] + bytes([v]))
    try:
        recovered = recover(document, canonical)
    except ValueError:
        recovered = "nobody"
    if recovered != signer:
        raise InvalidSignature(
            f"The signature over the {name} recovers to {recovered}, the caller is {signer}.",
            field=field,
            remedy=f"Sign exactly the {name} that a fresh quote for this body returns, with the caller's wallet.",
        )
    return canonical
