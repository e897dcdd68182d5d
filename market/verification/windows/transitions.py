"""State transitions of windows and omission claims."""

from sqlalchemy.orm import Session

from market.domain.verification.lifecycle import OMISSION, WINDOW, OmissionEvent, WindowEvent
from market.platform.events.service import apply_event
from market.verification.windows.models import OmissionClaim, Window


def transition_window(session: Session, window: Window, event: WindowEvent) -> None:
    apply_event(session, window, WINDOW, event, subject=("window", str(window.id)))


def transition_omission(session: Session, claim: OmissionClaim, event: OmissionEvent) -> None:
    apply_event(session, claim, OMISSION, event, subject=("omission", claim.leaf))
