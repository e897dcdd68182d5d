"""Selection of verifiers, replay leases, and pay or sanctions for results.

Samples and canaries use the same lease, task and draw: a verifier must not be able to tell them apart.
"""

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from sqlalchemy.orm import Session

from market.domain.nodes.reliability import DEMOTION_BPS
from market.domain.verification.lifecycle import ReplayEvent, ReplayStatus
from market.domain.verification.sampling import can_verify, stake_covers_segment
from market.jobs import service as jobs
from market.platform.db.base import utc_now
from market.providers import service as providers
from market.providers.record import reliability
from market.providers.service import VerifierSummary
from market.settings import Settings
from market.training.leases import service as leases
from market.training.units.facts import UnitSummary
from market.verification.samples import repository as samples_repository
from market.verification.samples.models import Replay
from market.verification.samples.transitions import transition_replay
from market.verification.windows import repository as windows_repository
from zoo_protocol.hashing import from_hex
from zoo_protocol.verification.sampling import draw_weighted

_OPEN = (ReplayStatus.ASSIGNED, ReplayStatus.COMMITTED)
_SECRET_NUMBERS = 3
"""Honest verifiers asked about a segment and its canary. Their draw numbers are in secret order."""


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """A segment to replay from a state that hashes to ``start_leaf``.

    ``replays`` are its own, ``of_the_other`` those of the sample's canary, or of the canary's sample. A verifier of one
    gets the other only if no other verifier is left.
    """

    unit: UnitSummary
    segment: int
    state_cid: str | None
    start_leaf: str
    replays: Sequence[Replay]
    of_the_other: Sequence[Replay]
    sample_id: int | None = None
    canary_id: int | None = None
    comparison_id: int | None = None  # selects verifiers of other classes
    inner: dict[str, Any] | None = None  # inner state of a first segment whose digest is requested too


def has_open_request(replays: Iterable[Replay]) -> bool:
    return any(replay.status in _OPEN for replay in replays)


def request_replay(session: Session, settings: Settings, request: ReplayRequest) -> bool:
    """Draw a verifier and lease the replay to it; return False if no verifier is left."""
    unit = request.unit
    attempt = _attempt(request)
    drawn = _draw(session, settings, request, attempt)
    if drawn is None:
        return False
    verifier, verifier_class = drawn.address, drawn.environment_class
    replay = next((known for known in request.replays if known.verifier == verifier), None)
    if replay is None:
        replay = Replay(
            sample_id=request.sample_id,
            canary_id=request.canary_id,
            comparison_id=request.comparison_id,
            environment_class=None if request.comparison_id is None else verifier_class,
            verifier=verifier,
            status=ReplayStatus.ASSIGNED,
        )
        session.add(replay)
        session.flush()
    else:
        replay.result_hash = None
        transition_replay(session, replay, ReplayEvent.ASSIGN)
    replay.attempt = attempt
    task = {
        "job_id": unit.job_id,
        "spec": unit.spec,
        "round": unit.round,
        "slot": unit.slot,
        "segment": request.segment,
        "checkpoint_cid": unit.start_checkpoint_cid,
        "slot_state_cid": unit.start_slot_state_cid,
        "restored_payload_cid": unit.start_restored_payload_cid,
        "eager_payload_cid": unit.start_eager_payload_cid,
        "state_cid": request.state_cid,
        "start_leaf": request.start_leaf,
        "environment": unit.environment_class,
        "inner": request.inner,
    }
    if request.comparison_id is not None:
        task |= {"across": True, "verifier_class": verifier_class}
    leases.create_lease(
        session,
        kind="replay",
        holder=verifier,
        job_id=unit.job_id,
        task=task,
        unit_id=unit.id,
        replay_id=replay.id,
        seconds=settings.lease_seconds,
    )
    return True


def eligible_verifiers(
    session: Session, settings: Settings, unit: UnitSummary, *, any_class: bool = False
) -> dict[str, VerifierSummary]:
    """Return by address live verifiers of the unit's or any class, not of the parties' owners."""
    own = _parties(session, unit)
    return {
        facts.address: facts
        for facts in providers.live_verifiers(session, settings, utc_now())
        if can_verify(
            facts.address, unit.environment_class if any_class else facts.environment_class, own, unit.environment_class
        )
    }


def _parties(session: Session, unit: UnitSummary) -> set[str]:
    """Return the nodes interested in the verdict: provider's, payer's, and their owners'."""
    payer = jobs.get(session, unit.job_id).order.payer
    return providers.of_same_owner(session, unit.provider) | providers.of_same_owner(session, payer)


def _attempt(request: ReplayRequest) -> int:
    """Return an unused number for the draw: secret ones first, then the next."""
    # A verifier that recomputes its number must not learn that it is not alone.
    used = {replay.attempt for replay in (*request.replays, *request.of_the_other)}
    free = [number for number in range(_SECRET_NUMBERS) if number not in used]
    return secrets.choice(free) if free else next(number for number in count(_SECRET_NUMBERS) if number not in used)


def _draw(session: Session, settings: Settings, request: ReplayRequest, attempt: int) -> VerifierSummary | None:
    """Draw a live verifier, weighted by stake times reliability.

    It is of the unit's class (for a comparison, of another) and not of the provider's or payer's owner. Preferred are
    verifiers that meet all of these:

    - Their stake covers the segment and precedes the commitment of the unit's window.
    - Their score is not below the demotion limit.
    - They know no leaf of the segment.

    A verifier with a result is not asked again. One without is asked last, and never about a canary.
    """
    unit = request.unit
    window = windows_repository.window(session, unit.window_id or 0)
    assert window.seed is not None  # samples depend on it
    assert window.committed_at is not None
    live = eligible_verifiers(session, settings, unit, any_class=request.comparison_id is not None)
    # With the seed known, a wallet can be ground until it is drawn, and staked afterwards.
    before = {address for address, facts in live.items() if facts.staked_before(window.committed_at)}
    asked = {replay.verifier for replay in request.replays}
    # A replay of a neighbouring segment reveals a leaf that is this one's end.
    neighbours = samples_repository.verifiers_of_neighbours(session, unit.id, request.segment)
    of_the_other = {replay.verifier for replay in request.of_the_other}
    silent = {replay.verifier for replay in request.replays if replay.status == ReplayStatus.ABANDONED}
    if request.canary_id is not None:
        silent = set()  # the unit waits for its canary, but not for a verifier without a result
    covered = {
        address for address in live if stake_covers_segment(live[address].stake_wei, unit.gross_wei // unit.segments)
    }
    reliable = {address for address in live if live[address].reliability_bps >= DEMOTION_BPS}
    groups = (covered & before & reliable, before & reliable, covered & before, before, reliable, set(live))
    preferred = [
        *(
            choice
            for group in groups
            for choice in (
                group - asked - of_the_other - neighbours,
                group - asked - of_the_other,  # a verifier with both could tell the canary from the segment
                group - asked,
            )
        ),
        live.keys() & silent,
    ]
    candidates = next((some for some in preferred if some), None)
    if candidates is None:
        return None
    subject = from_hex(unit.trace_root) + request.segment.to_bytes(8, "big") + attempt.to_bytes(8, "big")
    weights = {address: live[address].weight for address in candidates}
    return live[draw_weighted(from_hex(window.seed), "verifier", subject, weights)]


def pay_replay(session: Session, replay: Replay, unit: UnitSummary) -> None:
    """Record a right replay, which is paid by the weight of its segment."""
    reliability.record_replay(session, replay.verifier, unit.gross_wei // unit.segments, utc_now())


def overrule_replay(session: Session, replay: Replay, *, copied: bool = False) -> None:
    """Overrule a wrong or ``copied`` result and do not pay it; the reason is the sanction."""
    sanction = providers.record_overruled(session, replay.verifier, replay.created_at, utc_now(), copied=copied)
    transition_replay(session, replay, ReplayEvent.OVERRULE, reason=sanction)
