"""The moves of windows, omission claims, samples, canaries, comparisons and replays, by name in the audit log."""

from sqlalchemy.orm import Session

from market.domain.verification_lifecycle import (
    CANARY,
    COMPARISON,
    OMISSION,
    REPLAY,
    SAMPLE,
    WINDOW,
    CanaryEvent,
    ComparisonEvent,
    OmissionEvent,
    ReplayEvent,
    SampleEvent,
    WindowEvent,
)
from market.events.service import move
from market.verification.models import Canary, Comparison, OmissionClaim, Replay, Sample, Window


def move_window(session: Session, window: Window, event: WindowEvent) -> None:
    move(session, window, WINDOW, event, subject=("window", str(window.id)))


def move_omission(session: Session, claim: OmissionClaim, event: OmissionEvent) -> None:
    move(session, claim, OMISSION, event, subject=("omission", claim.leaf))


def move_sample(session: Session, sample: Sample, event: SampleEvent, *, reason: str | None = None) -> None:
    move(session, sample, SAMPLE, event, subject=("sample", str(sample.id)), reason=reason)


def move_canary(session: Session, canary: Canary, event: CanaryEvent) -> None:
    move(session, canary, CANARY, event, subject=("canary", str(canary.id)))


def move_comparison(
    session: Session, comparison: Comparison, event: ComparisonEvent, *, reason: str | None = None
) -> None:
    move(session, comparison, COMPARISON, event, subject=("comparison", str(comparison.id)), reason=reason)


def move_replay(session: Session, replay: Replay, event: ReplayEvent, *, reason: str | None = None) -> None:
    move(session, replay, REPLAY, event, subject=("replay", str(replay.id)), reason=reason, actor=replay.verifier)
