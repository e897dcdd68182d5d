"""The moves of windows, samples and replays, filed under their own names in the audit log."""

from sqlalchemy.orm import Session

from market.domain.lifecycle import REPLAY, SAMPLE, WINDOW, ReplayEvent, SampleEvent, WindowEvent
from market.events.service import move
from market.verification.models import Replay, Sample, Window


def move_window(session: Session, window: Window, event: WindowEvent) -> None:
    move(session, window, WINDOW, event, subject=("window", str(window.id)))


def move_sample(session: Session, sample: Sample, event: SampleEvent, *, reason: str | None = None) -> None:
    move(session, sample, SAMPLE, event, subject=("sample", str(sample.id)), reason=reason)


def move_replay(session: Session, replay: Replay, event: ReplayEvent, *, reason: str | None = None) -> None:
    move(session, replay, REPLAY, event, subject=("replay", str(replay.id)), reason=reason, actor=replay.verifier)
