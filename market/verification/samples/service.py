"""Sample reads for other packages."""

from sqlalchemy.orm import Session

from market.verification.samples import repository


def is_revealed(session: Session, cid: str) -> bool:
    """Return True if a sampled segment starts from the state in this file."""
    return repository.is_revealed(session, cid)


def drawn_segments(session: Session, unit_id: int) -> list[int]:
    return [sample.segment for sample in repository.samples_of_unit(session, unit_id)]
