"""State transitions of samples, canaries, comparisons and replays."""

from sqlalchemy.orm import Session

from market.domain.verification.lifecycle import (
    CANARY,
    COMPARISON,
    REPLAY,
    SAMPLE,
    CanaryEvent,
    ComparisonEvent,
    ReplayEvent,
    SampleEvent,
)
from market.platform.events.service import apply_event
from market.verification.samples.models import Canary, Comparison, Replay, Sample


def transition_sample(session: Session, sample: Sample, event: SampleEvent, *, reason: str | None = None) -> None:
    apply_event(session, sample, SAMPLE, event, subject=("sample", str(sample.id)), reason=reason)


def transition_canary(session: Session, canary: Canary, event: CanaryEvent) -> None:
    apply_event(session, canary, CANARY, event, subject=("canary", str(canary.id)))


def transition_comparison(
    session: Session, comparison: Comparison, event: ComparisonEvent, *, reason: str | None = None
) -> None:
    apply_event(session, comparison, COMPARISON, event, subject=("comparison", str(comparison.id)), reason=reason)


def transition_replay(session: Session, replay: Replay, event: ReplayEvent, *, reason: str | None = None) -> None:
    apply_event(
        session, replay, REPLAY, event, subject=("replay", str(replay.id)), reason=reason, actor=replay.verifier
    )
