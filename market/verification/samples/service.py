"""Facts about samples for other packages."""

from sqlalchemy.orm import Session

from market.verification.samples import repository


def is_revealed(session: Session, cid: str) -> bool:
    """Whether a drawn segment starts from the state in this file."""
    return repository.is_revealed(session, cid)


def drawn_segments(session: Session, unit_id: int) -> list[int]:
    """The segments of a unit that were drawn, ascending."""
    return [sample.segment for sample in repository.samples_of_unit(session, unit_id)]
