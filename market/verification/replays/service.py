"""Replays of sampled segments by verifiers, and verdicts on samples.

A verifier commits to its result before it reveals it. After a mismatch a second verifier is asked;
:func:`zoo_protocol.verification.rules.verdict` decides when the results suffice. Decisions about units, which need
storage and lock other jobs, run in the background (:mod:`market.verification.decisions.unit_outcomes`).
"""

import secrets

import structlog
from sqlalchemy.orm import Session

from market.domain.lifecycle import LeaseStatus, UnitStatus
from market.domain.verification.canaries import MIN_VERIFIERS_FOR_DUPLICATE, agreed_digest, is_claim_confirmed
from market.domain.verification.lifecycle import CanaryStatus, ReplayEvent, ReplayStatus, SampleEvent, SampleStatus
from market.domain.verification.sampling import is_finding, outvoted
from market.platform.db.session import Database, enqueue_after_commit
from market.settings import Settings
from market.training.leases.errors import ReplayCommitted, ReplayMismatch, ReplayNotCommitted
from market.training.units import service as units
from market.training.units.facts import UnitSummary
from market.verification.replays import canaries, comparisons
from market.verification.replays.faults import close_without_result
from market.verification.replays.verifier_choice import (
    ReplayRequest,
    eligible_verifiers,
    has_open_request,
    overrule_replay,
    pay_replay,
    request_replay,
)
from market.verification.samples import repository as samples_repository
from market.verification.samples.models import Canary, Comparison, Replay, Sample
from market.verification.samples.service import LeaseSummary
from market.verification.samples.transitions import transition_replay, transition_sample
from market.verification.windows.service import ADVANCE
from zoo_protocol.payments.job_record import result_hash as opened_hash
from zoo_protocol.verification.rules import Verdict, verdict

_log = structlog.get_logger(__name__)


def assign_replays(database: Database, settings: Settings) -> None:
    """Assign a verifier to every revealed sample and every open canary, where one is available.

    The order is secret: a verifier that recomputes the draw must not learn which of the two it got.
    """
    with database.transaction() as session:
        waiting = [(Sample, id_) for id_ in samples_repository.ids_with(session, Sample, SampleStatus.REVEALED)]
        canary_ids = [(Canary, id_) for id_ in samples_repository.ids_with(session, Canary, CanaryStatus.PLANTED)]
    for kind, row_id in secrets.SystemRandom().sample([*waiting, *canary_ids], len(waiting) + len(canary_ids)):
        with database.transaction() as session:
            if kind is Canary:
                canaries.assign(session, settings, row_id)
                continue
            sample = samples_repository.lock(session, Sample, row_id)
            if sample.status == SampleStatus.REVEALED:
                _assign(session, settings, sample)


def _assign(session: Session, settings: Settings, sample: Sample) -> None:
    unit = units.unit_facts(session, sample.unit_id)
    if unit.status != UnitStatus.CHECKING:
        return
    replays = samples_repository.lock_replays(session, sample)
    if sample.second_opinion and not replays:
        sample.second_opinion = len(eligible_verifiers(session, settings, unit)) >= MIN_VERIFIERS_FOR_DUPLICATE
    for _ in range(_missing(sample, replays)):
        request = ReplayRequest(
            unit=unit,
            segment=sample.segment,
            state_cid=sample.state_cid,
            start_leaf=unit.leaves[sample.segment],
            replays=replays,
            of_the_other=samples_repository.replays_of_canary_on(session, sample.unit_id, sample.segment),
            sample_id=sample.id,
            inner=canaries.inner_state_request(sample),
        )
        if not request_replay(session, settings, request):
            break
        replays = samples_repository.lock_replays(session, sample)
    if not has_open_request(replays):
        _evaluate(session, sample, unit, replays, no_verifier_left=True)
        if sample.status == SampleStatus.REVEALED:
            comparisons.request_cross_class_check(session, settings, sample, unit)


def _missing(sample: Sample, replays: list[Replay]) -> int:
    """Return the number of replays to request; duplicate replays start together."""
    wanted = 2 if sample.second_opinion else 1
    given = sum(known.end_leaf is not None for known in _valid(replays))
    asked = sum(has_open_request([known]) for known in replays)
    return max(wanted - given - asked, 0 if asked else 1)


def replay_committed(session: Session, lease: LeaseSummary, result_hash: str, signature: str) -> None:
    """Record a verifier's commitment to its result. Raises ReplayCommitted."""
    replay = samples_repository.lock(session, Replay, lease.replay_id)
    if replay.status == ReplayStatus.COMMITTED and replay.result_hash == result_hash:
        return
    if replay.status != ReplayStatus.ASSIGNED:
        raise ReplayCommitted(f"The replay is {replay.status}.", field="result_hash")
    replay.result_hash, replay.signature = result_hash, signature
    transition_replay(session, replay, ReplayEvent.COMMIT)


def replay_revealed(
    session: Session,
    lease: LeaseSummary,
    end_leaf: str,
    salt: str,
    end_state_cid: str | None = None,
    inner_digest: str | None = None,
) -> None:
    """Open a verifier's commitment and compare its result with the provider's claim.

    A verifier of another class has uploaded its end state too, which was checked against its commitment.

    Raises:
        ReplayNotCommitted: there is no commitment.
        ReplayMismatch: the commitment is to another result.
    """
    subject, replay = samples_repository.lock_subject(session, lease.replay_id)
    if replay.status != ReplayStatus.COMMITTED:
        raise ReplayNotCommitted(f"The replay is {replay.status}.")
    if opened_hash(end_leaf, inner_digest, replay.verifier, salt) != replay.result_hash:
        given = "End leaf, verifier and salt" if inner_digest is None else "End leaf, inner digest, verifier and salt"
        raise ReplayMismatch(f"{given} do not hash to {replay.result_hash}.", field="end_leaf")
    replay.salt, replay.inner_digest = salt, inner_digest
    if isinstance(subject, Comparison):
        assert end_state_cid is not None  # checked with the state
        replay.end_leaf = end_leaf
        comparisons.record_computed_state(session, subject, end_state_cid)
        enqueue_after_commit(session, ADVANCE)
        return
    _conclude(session, subject, replay, end_leaf)


def replay_abandoned(session: Session, lease: LeaseSummary) -> None:
    """Conclude a replay whose lease expired or failed.

    Divergence is a result: an honest provider could not have finished the unit. So is a wrong first leaf, which the
    market has checked itself except after a restored payload.
    """
    subject, replay = samples_repository.lock_subject(session, lease.replay_id)
    if not has_open_request([replay]):
        return
    if lease.status == LeaseStatus.FAILED and is_finding(lease.reason, subject.segment):
        _conclude(session, subject, replay, lease.reason)
    else:
        close_without_result(session, lease, replay)


def _conclude(session: Session, subject: Sample | Canary | Comparison, replay: Replay, end_leaf: str) -> None:
    """Record a result and decide its subject, unless it is decided."""
    enqueue_after_commit(session, ADVANCE)
    replay.end_leaf = end_leaf
    unit = units.unit_facts(session, subject.unit_id)
    if isinstance(subject, Comparison):
        comparisons.record_missing_result(session, subject, replay)
        return
    if isinstance(subject, Canary):
        transition_replay(session, replay, ReplayEvent.DISAGREE)  # no honest result matches a canary's claim
        canaries.evaluate_canary(session, subject, unit)
        return
    claimed = unit.leaves[subject.segment + 1]
    transition_replay(session, replay, ReplayEvent.AGREE if end_leaf == claimed else ReplayEvent.DISAGREE)
    if subject.status == SampleStatus.REVEALED:
        _evaluate(session, subject, unit, samples_repository.lock_replays(session, subject))


def _evaluate(
    session: Session, sample: Sample, unit: UnitSummary, replays: list[Replay], *, no_verifier_left: bool = False
) -> None:
    """Decide the sample if its results suffice."""
    # For a refuted sample, pay and sanctions wait: a committee may still uphold the claim.
    claimed = unit.leaves[sample.segment + 1]
    results = [known.end_leaf for known in _valid(replays) if known.end_leaf is not None]
    match verdict(claimed, results, no_verifier_left=no_verifier_left):
        case Verdict.PASSED:
            if sample.inner_nonce is not None and not no_verifier_left:
                digests = _inner_digests(replays, claimed)
                if not is_claim_confirmed(digests, needs_duplicate=sample.second_opinion):
                    return
            transition_sample(session, sample, SampleEvent.PASS)
            _pay_and_sanction(session, sample, unit, outvoted(results), claim_holds=True)
        case Verdict.FAILED:
            transition_sample(session, sample, SampleEvent.FAIL, reason="incorrect_computation")
        case Verdict.OPEN:
            return


def conclude_refuted_sample(session: Session, sample: Sample, unit: UnitSummary) -> None:
    """Pay and sanction the verifiers of a failed sample after its unit was rejected."""
    replays = samples_repository.lock_replays(session, sample)
    results = [known.end_leaf for known in replays if known.end_leaf is not None]
    _pay_and_sanction(session, sample, unit, outvoted(results), claim_holds=False)


def clear_sample(session: Session, sample: Sample, unit: UnitSummary) -> None:
    """Sanction all verifiers that refuted a claim which a committee upheld.

    Their results on other segments of the unit are dropped; those segments are replayed again.
    """
    claimed = unit.leaves[sample.segment + 1]
    replays = samples_repository.lock_replays(session, sample)
    given = {known.verifier: known.end_leaf for known in replays if known.end_leaf}
    wrong = {verifier for verifier, leaf in given.items() if leaf != claimed}
    transition_sample(session, sample, SampleEvent.CLEAR)
    _pay_and_sanction(session, sample, unit, set(given.values()) - {claimed}, claim_holds=True)
    for other in samples_repository.lock_samples_of_unit(session, unit.id):
        if other.status == SampleStatus.FAILED and other.reason == "incorrect_computation":
            _drop_results(session, other, unit, wrong)


def _drop_results(session: Session, sample: Sample, unit: UnitSummary, wrong: set[str]) -> None:
    """Overrule these verifiers' mismatches; reopen the sample unless others refute it."""
    claimed = unit.leaves[sample.segment + 1]
    for known in samples_repository.lock_replays(session, sample):
        if known.verifier in wrong and known.end_leaf not in (None, claimed):
            overrule_replay(session, known)
    counting = _valid(samples_repository.lock_replays(session, sample))
    results = [known.end_leaf for known in counting if known.end_leaf is not None]
    if verdict(claimed, results) is not Verdict.FAILED:
        transition_sample(session, sample, SampleEvent.REOPEN, reason="refuters_overruled")


def _valid(replays: list[Replay]) -> list[Replay]:
    return [known for known in replays if known.status != ReplayStatus.OVERRULED]


def _pay_and_sanction(
    session: Session, sample: Sample, unit: UnitSummary, wrong: set[str], *, claim_holds: bool
) -> None:
    """Apply a final verdict once: pay matching verifiers, overrule ``wrong`` ones."""
    # Verifiers of a valid end can report different inner states. Known copiers are overruled; if the copier is unknown,
    # none of them is paid or sanctioned.
    comparisons.record_verdict(session, sample, unit, passed=claim_holds)
    claimed = unit.leaves[sample.segment + 1]
    replays = _valid(samples_repository.lock_replays(session, sample))
    inner = agreed_digest(_inner_digests(replays, claimed))
    for known in replays:
        if known.end_leaf in wrong:
            overrule_replay(session, known)
        elif known.end_leaf is None or (known.end_leaf == claimed) is not claim_holds:
            continue
        elif not claim_holds or known.inner_digest == inner:
            pay_replay(session, known, unit)
        elif inner is not None and known.inner_digest is not None:
            _log.warning("first_segment_copied", verifier=known.verifier, sample=sample.id)
            overrule_replay(session, known, copied=True)


def _inner_digests(replays: list[Replay], claimed_leaf: str) -> list[str]:
    digests = [known.inner_digest for known in _valid(replays) if known.end_leaf == claimed_leaf]
    return [digest for digest in digests if digest is not None]
