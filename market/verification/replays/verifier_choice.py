"""Asking a verifier to replay a segment, and what follows for it from its result.

A drawn sample and a canary are asked for by the same lease with the same task, drawn by the same lot: a verifier must
not be able to tell which it has.
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


_SHUFFLED = 3
"""As many are asked about a segment and the canary on it, if all of them agree."""


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """A segment to be replayed from a state that hashes to ``start_leaf``: a sample's, or a canary's.

    ``replays`` are those of this question, ``of_the_other`` those of the canary on the sample, or of the sample that
    the canary was planted on. Who was asked the one is asked the other only where nobody else is left.
    """

    unit: UnitSummary
    segment: int
    state_cid: str | None
    start_leaf: str
    replays: Sequence[Replay]
    of_the_other: Sequence[Replay]
    sample_id: int | None = None
    canary_id: int | None = None
    comparison_id: int | None = None  # then verifiers of other classes are asked
    inner: dict[str, Any] | None = None  # the state within a first segment whose digest is asked for too


def has_open_request(replays: Iterable[Replay]) -> bool:
    """Whether a verifier holds one of these replays now."""
    return any(replay.status in _OPEN for replay in replays)


def request_replay(session: Session, settings: Settings, question: ReplayRequest) -> bool:
    """Draw a verifier and lease the replay to it; False where nobody is left to be asked."""
    unit = question.unit
    attempt = _attempt(question)
    drawn = _draw(session, settings, question, attempt)
    if drawn is None:
        return False
    verifier, verifier_class = drawn.address, drawn.environment_class
    replay = next((known for known in question.replays if known.verifier == verifier), None)
    if replay is None:
        replay = Replay(
            sample_id=question.sample_id,
            canary_id=question.canary_id,
            comparison_id=question.comparison_id,
            environment_class=None if question.comparison_id is None else verifier_class,
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
        "segment": question.segment,
        "checkpoint_cid": unit.start_checkpoint_cid,
        "slot_state_cid": unit.start_slot_state_cid,
        "restored_payload_cid": unit.start_restored_payload_cid,
        "eager_payload_cid": unit.start_eager_payload_cid,
        "state_cid": question.state_cid,
        "start_leaf": question.start_leaf,
        "environment": unit.environment_class,
        "inner": question.inner,
    }
    if question.comparison_id is not None:
        task["across"] = True
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


def of_class(session: Session, settings: Settings, unit: UnitSummary) -> dict[str, VerifierSummary]:
    """The live verifiers of the unit's class, none of its provider's or payer's own, by address."""
    own = _parties(session, unit)
    return {
        facts.address: facts
        for facts in _live(session, settings)
        if can_verify(facts.address, facts.environment_class, own, unit.environment_class)
    }


def _of_any_class(session: Session, settings: Settings, unit: UnitSummary) -> dict[str, VerifierSummary]:
    own = _parties(session, unit)
    return {facts.address: facts for facts in _live(session, settings) if facts.address not in own}


def _parties(session: Session, unit: UnitSummary) -> set[str]:
    """Who gains by the unit's being paid, or by its not being paid, each with the other nodes of its owner."""
    payer = jobs.get(session, unit.job_id).order.payer
    return providers.of_same_owner(session, unit.provider) | providers.of_same_owner(session, payer)


def _attempt(question: ReplayRequest) -> int:
    """A number for the lot that was not used yet: those below ``_SHUFFLED`` in secret order, then the next.

    Who finds out by which number it was drawn must not learn from it that it is not alone.
    """
    used = {replay.attempt for replay in (*question.replays, *question.of_the_other)}
    free = [number for number in range(_SHUFFLED) if number not in used]
    return secrets.choice(free) if free else next(number for number in count(_SHUFFLED) if number not in used)


def _draw(session: Session, settings: Settings, question: ReplayRequest, attempt: int) -> VerifierSummary | None:
    """By lot, weighted by stake times reliability, among live verifiers of the unit's class, or for a comparison among
    those of others; never its own provider or payer, nor a node of their owners.

    First among those whose stake covers the segment and was there before the unit's window was committed, whose score
    is not below that by which providers are demoted, and who know nothing of the segment. One that gave a result is not
    asked again; one that gave none only if nobody else is left, and never about a canary.
    """
    unit = question.unit
    window = windows_repository.window(session, unit.window_id or 0)
    assert window is not None  # samples are drawn by a window's seed
    assert window.seed is not None
    assert window.committed_at is not None
    live = (of_class if question.comparison_id is None else _of_any_class)(session, settings, unit)
    # Wallets cost nothing: with the seed at hand one could be found that is drawn, and then be given a stake.
    before = {address for address, facts in live.items() if facts.staked_before(window.committed_at)}
    asked = {replay.verifier for replay in question.replays}
    # Who replays a neighbouring segment has been told a leaf that is this one's end, or may be told so.
    neighbours = samples_repository.verifiers_of_neighbours(session, unit.id, question.segment)
    posed = {replay.verifier for replay in question.of_the_other}
    silent = {replay.verifier for replay in question.replays if replay.status == ReplayStatus.ABANDONED}
    if question.canary_id is not None:
        silent = set()  # its unit waits for the answer, and must not do so for who cannot give one
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
                group - asked - posed - neighbours,
                group - asked - posed,  # who holds a segment and the canary on it sees which is which
                group - asked,
            )
        ),
        live.keys() & silent,
    ]
    candidates = next((some for some in preferred if some), None)
    if candidates is None:
        return None
    subject = from_hex(unit.trace_root) + question.segment.to_bytes(8, "big") + attempt.to_bytes(8, "big")
    weights = {address: live[address].weight for address in candidates}
    return live[draw_weighted(from_hex(window.seed), "verifier", subject, weights)]


def _live(session: Session, settings: Settings) -> list[VerifierSummary]:
    return providers.live_verifiers(session, settings, utc_now())


def pay(session: Session, replay: Replay, unit: UnitSummary) -> None:
    """The replay was right: it is paid by what the segment weighs, and all of a unit's have as many steps."""
    reliability.note_replay(session, replay.verifier, unit.gross_wei // unit.segments, utc_now())


def overrule(session: Session, replay: Replay, *, copied: bool = False) -> None:
    """More verifiers agree on another result, or a committee does, or it is ``copied``: this one is not paid; the
    reason says what follows for its verifier."""
    follows = providers.note_overruled(session, replay.verifier, replay.created_at, utc_now(), copied=copied)
    transition_replay(session, replay, ReplayEvent.OVERRULE, reason=follows)
