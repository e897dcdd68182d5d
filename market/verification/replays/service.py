"""Samples: verifiers replay a drawn segment from the state that its provider served, results are compared.

A verifier commits to its result before it reveals it. Where its result is not the claimed leaf, a second verifier is
asked; :func:`market.domain.verification.sampling.verdict` says when it is enough. Decisions about units, which need
storage and
touch other jobs, are left to the background (:mod:`market.verification.judgement.decisions`).
"""

import secrets

import structlog
from sqlalchemy.orm import Session

from market.domain.lifecycle import LeaseStatus, UnitStatus
from market.domain.verification.canaries import LEAST_FOR_SECOND_OPINION, agreed_digest, is_settled
from market.domain.verification.lifecycle import ReplayEvent, ReplayStatus, SampleEvent, SampleStatus
from market.domain.verification.sampling import Verdict, is_finding, outvoted, verdict
from market.platform.db.session import Database, enqueue_after_commit
from market.settings import Settings
from market.training.leases.errors import ReplayCommitted, ReplayMismatch, ReplayNotCommitted
from market.training.units import service as units
from market.training.units.facts import UnitSummary
from market.verification.replays import canaries, comparisons
from market.verification.replays.faults import close_without_result
from market.verification.replays.verifier_choice import (
    ReplayRequest,
    has_open_request,
    of_class,
    overrule,
    pay,
    request_replay,
)
from market.verification.samples import repository as samples_repository
from market.verification.samples.lease_facts import LeaseSummary
from market.verification.samples.models import Canary, Comparison, Replay, Sample
from market.verification.samples.transitions import transition_replay, transition_sample
from market.verification.windows.service import ADVANCE
from zoo_protocol.hashing import from_hex, keccak, to_hex

_log = structlog.get_logger(__name__)


def assign_replays(database: Database, settings: Settings) -> None:
    """Draw a verifier for every revealed sample and every canary that waits for a result, where one is there.

    In secret order: a verifier that recomputes the lot must not learn from it which of the two it was drawn for.
    """
    with database.transaction() as session:
        waiting = [(Sample, id_) for id_ in samples_repository.samples_with(session, SampleStatus.REVEALED)]
        planted = [(Canary, id_) for id_ in samples_repository.planted_canaries(session)]
    for kind, row_id in secrets.SystemRandom().sample([*waiting, *planted], len(waiting) + len(planted)):
        with database.transaction() as session:
            if kind is Canary:
                canaries.assign(session, settings, row_id)
                continue
            sample = samples_repository.lock_sample(session, row_id)
            if sample is not None and sample.status == SampleStatus.REVEALED:
                _assign(session, settings, sample)


def _assign(session: Session, settings: Settings, sample: Sample) -> None:
    unit = units.unit_facts(session, sample.unit_id)
    if unit.status != UnitStatus.CHECKING:
        return
    replays = samples_repository.lock_replays(session, sample.id)
    if sample.second_opinion and not replays:
        sample.second_opinion = len(of_class(session, settings, unit)) >= LEAST_FOR_SECOND_OPINION
    for _ in range(_missing(sample, replays)):
        question = ReplayRequest(
            unit=unit,
            segment=sample.segment,
            state_cid=sample.state_cid,
            start_leaf=unit.leaves[sample.segment],
            replays=replays,
            of_the_other=samples_repository.replays_of_canary_on(session, sample.unit_id, sample.segment),
            sample_id=sample.id,
            inner=canaries.inner_state_request(sample),
        )
        if not request_replay(session, settings, question):
            break
        replays = samples_repository.lock_replays(session, sample.id)
    if not has_open_request(replays):
        _judge(session, sample, unit, replays, no_verifier_left=True)
        if sample.status == SampleStatus.REVEALED:
            comparisons.ask_another_class(session, settings, sample, unit)


def _missing(sample: Sample, replays: list[Replay]) -> int:
    """How many more are to be asked now. The two of a second opinion at once, or the later one knew which it is."""
    wanted = 2 if sample.second_opinion else 1
    given = sum(known.end_leaf is not None for known in _counting(replays))
    asked = sum(has_open_request([known]) for known in replays)
    return max(wanted - given - asked, 0 if asked else 1)


def replay_committed(session: Session, lease: LeaseSummary, result_hash: str) -> None:
    """The verifier fixed its result.

    Raises:
        ReplayCommitted: it committed another one before.
    """
    replay = samples_repository.lock_replay(session, lease.replay_id)
    if replay is None or (replay.status == ReplayStatus.COMMITTED and replay.result_hash == result_hash):
        return
    if replay.status != ReplayStatus.ASSIGNED:
        raise ReplayCommitted(f"This replay is {replay.status}.", field="result_hash")
    replay.result_hash = result_hash
    transition_replay(session, replay, ReplayEvent.COMMIT)


def replay_revealed(
    session: Session,
    lease: LeaseSummary,
    end_leaf: str,
    salt: str,
    end_state_cid: str | None = None,
    inner_digest: str | None = None,
) -> None:
    """The verifier opened its commitment; compare its result with the provider's claim.

    In another class it uploaded its end state too, which was found to be what it had committed to.

    Raises:
        ReplayNotCommitted: nothing was committed.
        ReplayMismatch: something else was.
    """
    posed, replay = _lock(session, lease)
    if replay.status != ReplayStatus.COMMITTED:
        raise ReplayNotCommitted(f"This replay is {replay.status}.")
    inner = b"" if inner_digest is None else from_hex(inner_digest)
    opened = keccak(from_hex(end_leaf) + inner + from_hex(replay.verifier, 20) + from_hex(salt))
    if to_hex(opened) != replay.result_hash:
        given = "End leaf, verifier and salt" if inner_digest is None else "End leaf, inner digest, verifier and salt"
        raise ReplayMismatch(f"{given} do not hash to {replay.result_hash}.", field="end_leaf")
    replay.salt, replay.inner_digest = salt, inner_digest
    if isinstance(posed, Comparison):
        assert end_state_cid is not None  # checked with the state
        replay.end_leaf = end_leaf
        comparisons.computed(session, posed, end_state_cid)
        enqueue_after_commit(session, ADVANCE)
        return
    _conclude(session, posed, replay, end_leaf)


def replay_abandoned(session: Session, lease: LeaseSummary) -> None:
    """The verifier went silent or gave up.

    Training that diverges is a result like any other: an honest provider could not have finished it. So is a first leaf
    that is not of the unit's start, which the market has checked itself unless a payload was added back to that.
    """
    posed, replay = _lock(session, lease)
    if not has_open_request([replay]):
        return
    if lease.status == LeaseStatus.FAILED and is_finding(lease.reason, posed.segment):
        _conclude(session, posed, replay, lease.reason)
    else:
        close_without_result(session, lease, replay)


def _lock(session: Session, lease: LeaseSummary) -> tuple[Sample | Canary | Comparison, Replay]:
    """What a replay lease is about, then the replay."""
    posed = samples_repository.lock_posed(session, lease.replay_id)
    replay = samples_repository.lock_replay(session, lease.replay_id)
    assert replay is not None  # leases are only made with one
    return posed, replay


def _conclude(session: Session, posed: Sample | Canary | Comparison, replay: Replay, end_leaf: str) -> None:
    """Note a result and judge what it is of, unless that is decided already."""
    enqueue_after_commit(session, ADVANCE)
    replay.end_leaf = end_leaf
    unit = units.unit_facts(session, posed.unit_id)
    if isinstance(posed, Comparison):
        comparisons.found_no_end(session, posed, replay)
        return
    if isinstance(posed, Canary):
        transition_replay(session, replay, ReplayEvent.DISAGREE)  # its claim is false, so nobody can agree with it
        canaries.judge(session, posed, unit)
        return
    claimed = unit.leaves[posed.segment + 1]
    transition_replay(session, replay, ReplayEvent.AGREE if end_leaf == claimed else ReplayEvent.DISAGREE)
    if posed.status == SampleStatus.REVEALED:
        _judge(session, posed, unit, samples_repository.lock_replays(session, posed.id))


def _judge(
    session: Session, sample: Sample, unit: UnitSummary, replays: list[Replay], *, no_verifier_left: bool = False
) -> None:
    """Decide the sample if its results suffice.

    What follows for the verifiers waits where the claim is refuted: a committee may yet find that it is right.
    """
    claimed = unit.leaves[sample.segment + 1]
    results = [known.end_leaf for known in _counting(replays) if known.end_leaf is not None]
    match verdict(claimed, results, no_verifier_left=no_verifier_left):
        case Verdict.PASSED:
            if sample.inner_nonce is not None and not no_verifier_left:
                digests = _inner_digests(replays, claimed)
                if not is_settled(digests, second_opinion=sample.second_opinion):
                    return
            transition_sample(session, sample, SampleEvent.PASS)
            _reward(session, sample, unit, outvoted(results), stands=True)
        case Verdict.FAILED:
            transition_sample(session, sample, SampleEvent.FAIL, reason="incorrect_computation")
        case Verdict.OPEN:
            return


def refuted_for_good(session: Session, sample: Sample, unit: UnitSummary) -> None:
    """The unit is rejected: what follows for the verifiers of a sample that failed."""
    results = [
        known.end_leaf for known in samples_repository.lock_replays(session, sample.id) if known.end_leaf is not None
    ]
    _reward(session, sample, unit, outvoted(results), stands=False)


def cleared_by_committee(session: Session, sample: Sample, unit: UnitSummary) -> None:
    """A committee on chain found the claim right: whoever refuted it was wrong, however many they were.

    What they said of other segments of the unit does not count any more; those are replayed anew.
    """
    claimed = unit.leaves[sample.segment + 1]
    given = {
        known.verifier: known.end_leaf
        for known in samples_repository.lock_replays(session, sample.id)
        if known.end_leaf
    }
    wrong = {verifier for verifier, leaf in given.items() if leaf != claimed}
    transition_sample(session, sample, SampleEvent.CLEAR)
    _reward(session, sample, unit, set(given.values()) - {claimed}, stands=True)
    for other in samples_repository.lock_samples_of_unit(session, unit.id):
        if other.status == SampleStatus.FAILED and other.reason == "incorrect_computation":
            _doubt(session, other, unit, wrong)


def _doubt(session: Session, sample: Sample, unit: UnitSummary, wrong: set[str]) -> None:
    """Overrule what these verifiers said of a refuted sample; unless others refute it enough, more are asked."""
    claimed = unit.leaves[sample.segment + 1]
    for known in samples_repository.lock_replays(session, sample.id):
        if known.verifier in wrong and known.end_leaf not in (None, claimed):
            overrule(session, known)
    counting = _counting(samples_repository.lock_replays(session, sample.id))
    results = [known.end_leaf for known in counting if known.end_leaf is not None]
    if verdict(claimed, results) is not Verdict.FAILED:
        transition_sample(session, sample, SampleEvent.REOPEN, reason="refuters_overruled")


def _counting(replays: list[Replay]) -> list[Replay]:
    """Those that have not been overruled."""
    return [known for known in replays if known.status != ReplayStatus.OVERRULED]


def _reward(session: Session, sample: Sample, unit: UnitSummary, wrong: set[str], *, stands: bool) -> None:
    """The sample is decided for good, once: pay the verifiers whose results agree with that, see to those with
    ``wrong`` ones, and note what it says of a comparison in another class.

    Of those who came to a claimed end that stands over different inner states, who is known to have copied it is
    overruled; where that is not known, none of them is paid or blamed."""
    comparisons.note_verdict(session, sample, unit, passed=stands)
    claimed = unit.leaves[sample.segment + 1]
    replays = _counting(samples_repository.lock_replays(session, sample.id))
    inner = agreed_digest(_inner_digests(replays, claimed))
    for known in replays:
        if known.end_leaf in wrong:
            overrule(session, known)
        elif known.end_leaf is None or (known.end_leaf == claimed) is not stands:
            continue
        elif not stands or known.inner_digest == inner:
            pay(session, known, unit)
        elif inner is not None and known.inner_digest is not None:
            _log.warning("a verifier copied a first segment's end", verifier=known.verifier, sample=sample.id)
            overrule(session, known, copied=True)


def _inner_digests(replays: list[Replay], claimed_leaf: str) -> list[str]:
    """Those of the results that came to the claimed end."""
    came = [known.inner_digest for known in _counting(replays) if known.end_leaf == claimed_leaf]
    return [digest for digest in came if digest is not None]
