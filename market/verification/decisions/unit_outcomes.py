"""Decisions about units.

A unit passes if all its sampled segments pass. A unit that two verifiers refute is disputed on chain. Where a dispute
cannot decide, the operator's key slashes (:mod:`market.domain.verification.dispute_routes`).

Evidence is stored first. Then one transaction jails the provider, rejects its delivered and unverified units, frees its
replicas and records the penalty. It applies once: only while the unit, under lock, is undecided.
"""

import structlog
from sqlalchemy.orm import Session

from market.chain.contracts.codec import ChainEvent
from market.chain.errors import ChainError
from market.chain.service import final_events
from market.domain.lifecycle import (
    DISPUTE_STATUSES,
    UNIT_DECIDED,
    ChallengeStatus,
    DisputeStatus,
    ProviderStatus,
    UnitStatus,
)
from market.domain.verification.dispute_routes import DecidedBy, Reason, Route
from market.domain.verification.late_states import REFUSED_DATA, WITHHELD_DATA
from market.domain.verification.lifecycle import SAMPLE_OPEN, SampleEvent, SampleStatus, WindowEvent, WindowStatus
from market.platform.db.base import utc_now
from market.platform.db.session import Database
from market.platform.storage.client import Storage
from market.providers import lifecycle
from market.providers import service as providers
from market.training.commitments import service as commitments
from market.training.leases import service as leases
from market.training.units import service as units_service
from market.training.units.facts import UnitSummary
from market.verification.decisions.dispute_routing import Adjudicator
from market.verification.decisions.slashes import evidence, operators_slash
from market.verification.disputes import challenger
from market.verification.disputes.chain_events import provider_of
from market.verification.disputes.challenger import Ending
from market.verification.penalties.models import Slash
from market.verification.penalties.service import record_penalty
from market.verification.replays.comparisons import TOLERANCE
from market.verification.replays.service import clear_sample, conclude_refuted_sample
from market.verification.samples import repository as samples_repository
from market.verification.samples.models import Sample
from market.verification.samples.transitions import transition_sample
from market.verification.windows import repository as windows_repository
from market.verification.windows.models import Window
from market.verification.windows.transitions import transition_window
from zoo_protocol.hashing import canonical_json

PROVIDER_JAILED = "provider_jailed"
IN_DISPUTE = "in_dispute"
INCORRECT = "incorrect_computation"
_FRAUD = (INCORRECT, WITHHELD_DATA, REFUSED_DATA)

_log = structlog.get_logger(__name__)


def decide_units(database: Database, storage: Storage, adjudicator: Adjudicator) -> None:
    """Decide every unit of the latched windows that can be decided, each in its own transaction.

    Raises:
        StorageError: evidence could not be stored; the next call repeats the decision.
    """
    with database.transaction() as session:
        windows = [window.id for window in windows_repository.windows(session, WindowStatus.LATCHED)]
    for window_id in windows:
        with database.transaction() as session:
            units = commitments.window_units(session, window_id)
            samples = samples_repository.samples_of_units(session, [unit.id for unit in units])
            watched = samples_repository.units_with_a_canary(session, [unit.id for unit in units])
        for unit in units:
            states = {SampleStatus(sample.status) for sample in samples.get(unit.id, [])}
            if unit.status == UnitStatus.DISPUTED:
                _apply_dispute_outcome(database, storage, unit)
            elif unit.status != UnitStatus.CHECKING:
                continue
            elif SampleStatus.FAILED in states:
                is_open = bool(states & SAMPLE_OPEN) or unit.id in watched
                _handle_refuted_unit(database, storage, adjudicator, unit, is_open=is_open)
            elif states <= {SampleStatus.PASSED} and unit.id not in watched:
                tolerated = [sample.segment for sample in samples.get(unit.id, []) if sample.reason == TOLERANCE]
                with database.transaction() as session:
                    units_service.pass_unit(session, unit.id, tolerated)
        _close_if_decided(database, window_id)


def _close_if_decided(database: Database, window_id: int) -> None:
    with database.transaction() as session:
        window = windows_repository.lock_window(session, window_id)
        undecided = any(unit.status not in UNIT_DECIDED for unit in commitments.window_units(session, window_id))
        if window.status == WindowStatus.LATCHED and not undecided:
            transition_window(session, window, WindowEvent.DECIDE)


def _handle_refuted_unit(
    database: Database, storage: Storage, adjudicator: Adjudicator, unit: UnitSummary, *, is_open: bool
) -> None:
    """Dispute the unit, or slash by the operator's key where a dispute cannot decide."""
    # A dispute publishes the unit's trace, so it waits while samples of the unit are ``is_open``. A provider is in one
    # dispute of the market at a time; its other refuted units wait.
    with database.transaction() as session:
        failed = _failed_sample(session, unit.id)
        provider = providers.require(session, unit.provider)
        is_slashed, is_disputed = _is_jailed_for_fraud(session, unit.provider), provider.disputed_at is not None
        window = windows_repository.window(session, unit.window_id or 0)
    try:
        route = adjudicator.route(database, unit, window, failed.reason or "")
    except ChainError as error:  # only this unit waits
        _log.warning("dispute_route_unknown", unit=unit.id, code=error.code, detail=str(error))
        return
    if route.path is DecidedBy.OPERATOR or is_slashed:
        _slash_by_operator(database, storage, unit, route)
    elif not (is_open or is_disputed):
        _dispute(database, storage, adjudicator, unit, window)


def _dispute(database: Database, storage: Storage, adjudicator: Adjudicator, unit: UnitSummary, window: Window) -> None:
    """Open a dispute of the unit. Its provider gets no work until the dispute has ended."""
    with database.transaction() as session:
        failed = _failed_sample(session, unit.id)
        document = evidence(session, unit, failed, Route(DecidedBy.DISPUTE))
    evidence_cid = storage.put_block(canonical_json(document)).cid
    with database.transaction() as session:
        provider = providers.require(session, unit.provider, lock=True)
        if units_service.unit_facts(session, unit.id).status != UnitStatus.CHECKING or provider.disputed_at is not None:
            return
        dispute_id = adjudicator.open_dispute(session, unit, window, failed.segment, evidence_cid)
        units_service.dispute_unit(session, unit.id, dispute_id)
        providers.record_disputed(session, unit.provider, utc_now())
        leases.remove_node_from_jobs(session, unit.provider, IN_DISPUTE)


def _apply_dispute_outcome(database: Database, storage: Storage, unit: UnitSummary) -> None:
    """Apply the final outcome of the market's dispute of the unit, once."""
    with database.transaction() as session:
        ending = challenger.final_outcome(session, unit.id)
    if ending is None:
        return
    if ending.status is ChallengeStatus.MISSED:
        _slash_by_operator(database, storage, unit, Route(DecidedBy.OPERATOR, Reason(ending.reason or "")))
        return
    with database.transaction() as session:
        providers.require(session, unit.provider, lock=True)
        if units_service.unit_facts(session, unit.id).status != UnitStatus.DISPUTED:
            return
        providers.record_disputed(session, unit.provider, None)
        if ending.status is ChallengeStatus.WON:
            _jail_and_reject(session, unit, ending.reason or "", _slash_by_dispute(session, unit, ending))
        elif ending.status is ChallengeStatus.LOST:
            units_service.return_to_checking(session, unit.id)
            failed = samples_repository.lock_sample_of(session, unit.id, ending.step)
            assert failed is not None  # the disputed sample
            clear_sample(session, failed, unit)
        else:  # inconclusive dispute: no payout and no slash
            _reject(session, unit.id, ending.reason or "")


def _slash_by_dispute(session: Session, unit: UnitSummary, ending: Ending) -> Slash:
    """Return the penalty that the contract took; its final event has amount and transaction."""
    assert ending.convicted_in is not None  # the dispute was upheld
    event = next(event for event in final_events(session, ending.convicted_in) if event.name == "Slashed")
    return Slash(
        job_id=unit.job_id,
        unit_id=unit.id,
        provider=unit.provider,
        offence=INCORRECT,
        evidence=ending.convicted_in,
        evidence_cid=ending.evidence_cid,
        path=DecidedBy.DISPUTE,
        amount_wei=event.args["amount"],
        tx=event.tx_hash,
    )


def _slash_by_operator(database: Database, storage: Storage, unit: UnitSummary, route: Route) -> None:
    with database.transaction() as session:
        failed = _failed_sample(session, unit.id)
        document = evidence(session, unit, failed, route)
    evidence_cid = storage.put_block(canonical_json(document)).cid
    with database.transaction() as session:
        providers.require(session, unit.provider, lock=True)
        status = units_service.unit_facts(session, unit.id).status
        if status not in (UnitStatus.CHECKING, UnitStatus.DISPUTED):
            return
        if status == UnitStatus.DISPUTED:
            providers.record_disputed(session, unit.provider, None)
        offence = failed.reason or ""
        if _is_jailed_for_fraud(session, unit.provider):
            _reject(session, unit.id, offence)
        else:
            slash = operators_slash(unit, unit.provider, offence, evidence_cid, route)
            _jail_and_reject(session, unit, offence, slash)


def _is_jailed_for_fraud(session: Session, provider: str) -> bool:
    # Jailing for downtime or lateness costs far less and does not count.
    found = providers.require(session, provider)
    return found.status == ProviderStatus.JAILED and found.reason in _FRAUD


def on_dispute_ended(session: Session, event: ChainEvent) -> None:
    """Handle the final DisputeEnded event: a provider that lost is jailed.

    The unit itself is decided by :func:`decide_units` or, for other challengers, by its settlement.
    """
    provider = provider_of(session, event.args["disputeId"])
    if DISPUTE_STATUSES[event.args["outcome"]] is DisputeStatus.PROVIDER_LOST and provider is not None:
        _end_work(session, provider)


def _end_work(session: Session, provider: str) -> None:
    leases.remove_node_from_jobs(session, provider, PROVIDER_JAILED)
    for unit_id in units_service.unverified_units_of(session, provider):
        _reject(session, unit_id, PROVIDER_JAILED)


def _jail_and_reject(session: Session, unit: UnitSummary, reason: str, slash: Slash) -> None:
    record_penalty(session, unit, slash)
    lifecycle.jail(session, unit.provider, slash.offence)
    _reject(session, unit.id, reason)
    _end_work(session, unit.provider)
    # Units that passed undrawn before this one was refuted are sampled in full before they are paid.
    for window_id in units_service.reopen_unpaid_units(session, unit.provider):
        window = windows_repository.lock_window(session, window_id)
        if window.status == WindowStatus.DECIDED:
            transition_window(session, window, WindowEvent.REOPEN)


def _failed_sample(session: Session, unit_id: int) -> Sample:
    samples = samples_repository.lock_samples_of_unit(session, unit_id)
    failed = [sample for sample in samples if sample.status == SampleStatus.FAILED]
    return min(failed, key=lambda sample: (sample.reason != INCORRECT, sample.segment))


def _reject(session: Session, unit_id: int, reason: str) -> None:
    """Reject a unit, drop its open samples, pay or sanction verifiers of refuted samples."""
    unit = units_service.unit_facts(session, unit_id)
    units_service.reject_unit(session, unit_id, reason)
    for sample in samples_repository.lock_samples_of_unit(session, unit_id):
        if sample.status in SAMPLE_OPEN:
            transition_sample(session, sample, SampleEvent.DROP, reason=reason)
        elif sample.status == SampleStatus.FAILED:
            conclude_refuted_sample(session, sample, unit)
