"""State transitions of windows and omission claims."""

from sqlalchemy.orm import Session

from market.domain.verification.lifecycle import OMISSION, WINDOW, OmissionEvent, WindowEvent
from market.platform.events.service import move
from market.verification.windows.models import OmissionClaim, Window


def transition_window(session: Session, window: Window, event: WindowEvent) -> None:
    move(session, window, WINDOW, event, subject=("window", str(window.id)))


def transition_omission(session: Session, claim: OmissionClaim, event: OmissionEvent) -> None:
    move(session, claim, OMISSION, event, subject=("omission", claim.leaf))
