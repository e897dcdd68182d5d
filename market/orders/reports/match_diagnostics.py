"""Diagnosis of unmatched jobs: sentences with stable codes."""

from collections.abc import Iterator
from datetime import datetime

from sqlalchemy.orm import Session

from market.auctions.service import BookStatus
from market.domain.lifecycle import JobStatus
from market.domain.network import NetworkParameters, Tier
from market.domain.nodes.placement import Constraint
from market.jobs import repository as jobs_repository
from market.jobs.models import Job
from market.jobs.pricing import highest_price
from market.orders.amendments import longest_pause
from market.orders.reports.capacity_forecast import BookForecast, CapacityForecast, forecast_capacity
from market.orders.reports.schemas import BookChance, Change, ConstraintView, Finding, FindingCode, Why
from market.platform.db.rows import from_row
from market.platform.db.session import database_now
from market.providers import service as providers
from market.settings import Settings
from market.training.checkpoints import service as checkpoints_service
from market.training.leases import evaluations
from market.training.units.probes import dissenting_nodes
from zoo_protocol.verification.rules import MIN_AGREEING_VERIFIERS
from zoo_protocol.verification.training_faults import DIVERGED, DIVERGED_ADVICE

_CONSTRAINTS = {
    "not_active": "{n} of the tier's nodes may not work: jailed, disputed, demoted, without the tier's stake, or of an "
    "environment class that this network does not accept.",
    "silent": "{n} have sent no heartbeat recently.",
    "no_ask": "{n} eligible nodes have no open ask or are running a benchmark.",
    "region": "{n} are in regions that the job does not accept.",
    "environment_class": "{n} are of an environment class that the job does not accept.",
    "gpu_memory": "{n} declare less GPU memory than the job requires.",
    "speed": "{n} were slower in their hardware benchmark than the job's units require.",
    "reliability": "{n} are less reliable than the job requires.",
    "attestation": "{n} have no valid attestation.",
    "price": "{n} ask more than the job's limit.",
    "busy": "{n} work for another job.",
    "reserved": "{n} are reserved for a job that has waited longer.",
}
_FIELDS = {
    Constraint.REGION: "requirements.regions",
    Constraint.ENVIRONMENT_CLASS: "requirements.environment_classes",
    Constraint.GPU_MEMORY: "requirements.min_gpu_memory_gb",
    Constraint.SPEED: "training_config.inner_steps",
    Constraint.RELIABILITY: "requirements.min_reliability_bps",
    Constraint.ATTESTATION: "requirements.attested_only",
}
_REASONS = {
    "base_unusable": " Its base model was lost, or has values that are not finite.",
    "start_unusable": " Its start model or checkpoint was lost, or does not fit the job.",
    "dataset_unusable": " Its dataset was lost, or does not match its manifest.",
    "inputs_unusable": " Storage did not provide its inputs, or no model could be built or evaluated with them.",
    "no_capacity": " Too few nodes finished a round in time.",
    "escrow_ends": " It could not have been settled before its escrow ends.",
    "pause_expired": " It was paused for too long.",
}
"""Why a job ended early, by its reason."""
_TRAINED = (JobStatus.RUNNING, JobStatus.VERIFYING)
_PENDING = (JobStatus.SUBMITTED, JobStatus.FUNDED)
_ZEN = 10**18


def diagnose_unmatched_job(
    session: Session, settings: Settings, network: NetworkParameters, job: Job, rounds: BookStatus
) -> Why:
    """Return the findings on a job of any status."""
    now = database_now(session)
    if job.paused_at is not None and job.status == JobStatus.MATCHING:  # it does not bid, so no node or price matters
        return _answer(job, findings=[_paused_bid(job, job.paused_at, now)])
    if job.status != JobStatus.MATCHING:
        return _answer(job, findings=list(_not_waiting(session, settings, network, job)))
    tier = next(tier for tier in network.tiers if tier.id == job.tier_id)
    seen = forecast_capacity(session, settings, network, job, now)
    expected = min((book.expected_at for book in seen.books if book.expected_at is not None), default=None)
    return _answer(
        job,
        limit_price_wei_per_gpu_hour=seen.limit,
        nodes_total=seen.total,
        findings=list(_waiting(job, tier, seen, rounds, expected, now)),
        constraints=[
            from_row(ConstraintView, step, sentence=_CONSTRAINTS[step.code].format(n=step.removes))
            for step in seen.steps
        ],
        books=[_chance(tier, book, rounds) for book in seen.books],
        expected_at=expected,
        changes=list(_changes(job, tier, seen, expected)),
    )


def _answer(job: Job, **found: object) -> Why:
    """Return an answer with the ``found`` fields; the others are empty."""
    empty: dict[str, object] = {
        "limit_price_wei_per_gpu_hour": None,
        "nodes_total": 0,
        "expected_at": None,
        "constraints": [],
        "books": [],
        "changes": [],
    }
    return from_row(Why, job, job_id=job.id, **empty | found)


def _chance(tier: Tier, book: BookForecast, rounds: BookStatus) -> BookChance:
    return from_row(
        BookChance,
        book,
        book=f"{tier.name}.{book.zone}",
        price_now_wei_per_gpu_hour=book.price,
        last_price_wei_per_gpu_hour=rounds.last_price.get(book.zone),
        next_round_at=rounds.closes_at.get(book.zone),
    )


def _paused_bid(job: Job, since: datetime, now: datetime) -> Finding:
    if job.expires_at <= now:
        return _wait_over()
    return _paused(job, since, f"It does not bid, and expires at {_at(job.expires_at)} with a full refund.")


def _paused(job: Job, since: datetime, effect: str) -> Finding:
    resume = f"Resume it: zoo-compute job resume {job.id}"
    return _finding(FindingCode.PAUSED, f"It has been paused since {_at(since)}. {effect} {resume}")


def _wait_over() -> Finding:
    return _finding(FindingCode.WAIT_OVER, "Its wait_until has passed: it expires and is refunded in full.")


def _not_waiting(session: Session, settings: Settings, network: NetworkParameters, job: Job) -> Iterator[Finding]:
    if job.status in _PENDING:
        yield _finding(FindingCode.DEPOSIT_PENDING, "Its deposit is not final on chain. It bids once it is.")
        return
    if job.paused_at is not None and job.status == JobStatus.RUNNING:  # an ended job keeps the time of its pause
        ends = _at(job.wait_until + longest_pause(network))
        effect = f"Its nodes finish the units that they have. It is cancelled if it is still paused at {ends}."
        yield _paused(job, job.paused_at, effect)
    if job.matched_at is not None and job.clearing_price_wei is not None:
        price = _zen(job.clearing_price_wei)
        yield _finding(
            FindingCode.MATCHED,
            f"It was matched at {_at(job.matched_at)} with {_nodes(job.nodes)} at {price} ZEN per GPU-hour.",
        )
    if job.status == JobStatus.RUNNING:
        yield from _at_work(session, job)
    if job.status in _TRAINED and (dissenting := dissenting_nodes(session, job.id)):
        yield _finding(
            FindingCode.PROBES_DIFFER,
            f"{_nodes(len(dissenting))} computed its first steps otherwise than most, so other nodes take the work.",
        )
    for sentence in checkpoints_service.rollback_sentences(session, job.id):
        yield _finding(FindingCode.ROLLED_BACK, sentence)
    if job.reason == DIVERGED:
        yield _finding(FindingCode.DIVERGED, DIVERGED_ADVICE + _losses(session, job))
    if job.status in _TRAINED and job.environment_class is not None:
        yield from _verifiers(session, settings, job.environment_class)
    if job.status not in _TRAINED:
        reason = f" ({job.reason})" if job.reason else ""
        words = _REASONS.get(job.reason or "", "")
        yield _finding(FindingCode.ENDED, f"It does not wait for nodes: it is {job.status}{reason}.{words}")


def _at_work(session: Session, job: Job) -> Iterator[Finding]:
    open_evaluations = {
        model: evaluations.open_evaluations(session, job.id, final=model == "final") for model in ("first", "final")
    }
    vacant = sum(slot.provider is None for slot in jobs_repository.slots(session, job.id))
    if vacant and job.paused_at is None and not open_evaluations["final"]:  # both free nodes that are done
        yield _finding(
            FindingCode.SLOTS_VACANT,
            f"{vacant} of its {job.nodes} slots wait for a free node of its class that meets its requirements and "
            "price.",
        )
    for model, asked in open_evaluations.items():
        if asked:
            verifiers = "1 verifier is" if asked == 1 else f"{asked} verifiers are"
            yield _finding(
                FindingCode.BEING_EVALUATED,
                f"{verifiers} asked to evaluate its {model} model. The last round waits for the result.",
            )


def _losses(session: Session, job: Job) -> str:
    """Return a sentence on the lowest and the last known validation loss; empty without one."""
    found = checkpoints_service.checkpoints_of(session, job.id)
    known = [(float(one.validation_loss), one.round) for one in found if one.validation_loss is not None]
    if not known:
        return ""
    (best, best_round), (last, last_round) = min(known), known[-1]
    return (
        f" Its lowest validation loss was {best:.3f} after round {best_round}, the last {last:.3f} after round "
        f"{last_round}."
    )


def _verifiers(session: Session, settings: Settings, environment_class: str) -> Iterator[Finding]:
    live = providers.verifiers_of_class(session, settings, environment_class, "", database_now(session))
    if live < MIN_AGREEING_VERIFIERS:
        yield _finding(
            FindingCode.FEW_VERIFIERS,
            f"{live} verifiers of its nodes' environment class are live; {MIN_AGREEING_VERIFIERS} must agree to refute "
            "a unit. Sampled segments wait for them or for a cross-class check. Until then their units are not paid.",
        )


def _waiting(
    job: Job, tier: Tier, seen: CapacityForecast, rounds: BookStatus, expected: datetime | None, now: datetime
) -> Iterator[Finding]:
    if job.expires_at <= now:
        yield _wait_over()
        return
    if rounds.held:
        yield _finding(
            FindingCode.LOT_PENDING,
            "Its bid is in a closed round, which clears once its seed block exists.",
        )
        return
    yield from _limit(job, tier, seen)
    yield from _supply(job, tier, seen)
    for book in seen.books:
        if book.trades:
            at = rounds.closes_at.get(book.zone)
            when = f"at {_at(at)}" if at is not None and at > now else "within seconds"
            yield _finding(
                FindingCode.NEXT_ROUND,
                f"It can trade in {tier.name}.{book.zone}: the round closes {when}.",
            )
    if job.reserved_until is not None and job.reserved_until > now:
        yield _finding(
            FindingCode.RESERVATION,
            f"Nodes of {tier.name}.{job.reserved_zone} are reserved for it until {_at(job.reserved_until)}.",
        )
    if expected is not None and expected > job.expires_at:
        yield _finding(
            FindingCode.EXPIRES_FIRST,
            f"Capacity is expected at {_at(expected)}, after its wait_until of {_at(job.expires_at)}.",
        )


def _limit(job: Job, tier: Tier, seen: CapacityForecast) -> Iterator[Finding]:
    if seen.limit < job.price_cap_wei:
        yield _finding(
            FindingCode.BUDGET_CAPS_PRICE,
            f"Its budget pays for all units up to {_short(seen.limit)} ZEN per GPU-hour, less than its max_price.",
        )
    if seen.limit < tier.reserve_price_wei:
        yield _finding(
            FindingCode.LIMIT_BELOW_RESERVE,
            f"It bids {_short(seen.limit)} ZEN per GPU-hour; the reserve of {tier.name} is "
            f"{_zen(tier.reserve_price_wei)}.",
        )


def _supply(job: Job, tier: Tier, seen: CapacityForecast) -> Iterator[Finding]:
    gang = f"It needs {_nodes(job.nodes)} of one region and environment class"
    suitable, affordable, free = (
        max((getattr(book, kind) for book in seen.books), default=0) for kind in ("suitable", "affordable", "free")
    )
    if seen.total == 0:
        yield _finding(FindingCode.NO_NODES, f"No node has the tier {tier.name}.")
    elif suitable == 0:
        yield _finding(FindingCode.NO_SUITABLE_NODES, f"None of the {seen.total} nodes of {tier.name} suits it now.")
    elif suitable < job.nodes:
        yield _finding(FindingCode.GANG_TOO_LARGE, f"{gang}; at most {suitable} suitable ones share both, free or not.")
    elif affordable < job.nodes:
        yield _finding(
            FindingCode.ASKS_ABOVE_LIMIT,
            f"{gang}; at most {affordable} suitable ones that share both ask no more than its limit.",
        )
    elif free < job.nodes:
        yield _finding(FindingCode.NODES_BUSY, f"{gang}; at most {free} suitable ones that share both are free now.")
        if seen.reserved_elsewhere:
            yield _finding(
                FindingCode.RESERVED_FOR_OTHERS,
                f"{seen.reserved_elsewhere} free nodes are reserved for a job that has waited longer.",
            )
    elif seen.limit >= tier.reserve_price_wei and not any(book.trades for book in seen.books):
        yield _finding(FindingCode.OUTBID, "Enough nodes are free, but other orders outbid its limit.")


def _changes(job: Job, tier: Tier, seen: CapacityForecast, expected: datetime | None) -> Iterator[Change]:
    prices = [book.price for book in seen.books if book.price is not None and not book.trades]
    if prices and not any(book.trades for book in seen.books) and min(prices) > seen.limit:
        needed = _zen(min(prices))
        if min(prices) > job.price_cap_wei:
            yield Change(field="max_price", sentence=f"Raise it to {needed} ZEN per GPU-hour to trade now.")
        payable = highest_price(job.escrowed_wei, 2**96, job.units_ordered, job.unit_weight_us)
        if min(prices) > payable:
            yield Change(field="budget_max", sentence=f"Raise it to pay for all units at {needed} ZEN per GPU-hour.")
    elif seen.limit < tier.reserve_price_wei:
        reserve = _zen(tier.reserve_price_wei)
        field = "max_price" if job.price_cap_wei < tier.reserve_price_wei else "budget_max"
        yield Change(field=field, sentence=f"Raise it to the reserve of {reserve} ZEN per GPU-hour.")
    for constraint, gained in seen.relief.items():
        if gained:
            without = "With shorter units" if constraint == Constraint.SPEED else "Without it"
            yield Change(field=_FIELDS[constraint], sentence=f"{without} {gained} more free nodes are suitable now.")
    largest = max((book.free for book in seen.books), default=0)
    if 0 < largest < job.nodes:
        yield Change(field="nodes", sentence=f"Take {largest} instead of {job.nodes} nodes to fit now.")
    if expected is not None and expected > job.expires_at:
        yield Change(field="wait_until", sentence=f"Wait at least until {_at(expected)}.")


def _finding(code: FindingCode, sentence: str) -> Finding:
    return Finding(code=code, sentence=sentence)


def _nodes(count: int) -> str:
    return f"{count} node{'' if count == 1 else 's'}"


def _zen(wei: int) -> str:
    whole, rest = divmod(wei, _ZEN)
    return f"{whole}.{rest:018d}".rstrip("0").rstrip(".")


def _short(wei: int) -> str:
    """Return an amount in ZEN rounded down to millionths, for limits that divide a budget."""
    return _zen(wei - wei % (_ZEN // 10**6)) if wei >= _ZEN // 10**3 else _zen(wei)


def _at(instant: datetime) -> str:
    return instant.isoformat(timespec="seconds")
