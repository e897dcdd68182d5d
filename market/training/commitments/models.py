"""Table of inclusion acknowledgements."""

from datetime import datetime

from sqlalchemy import ForeignKey, String
from sqlalchemy.orm import Mapped, mapped_column

from market.platform.db.base import Base, CreatedAt, Hash32, UtcDateTime


class Acknowledgement(Base, CreatedAt):
    """Signed inclusion acknowledgement of one unit commitment."""

    __tablename__ = "acknowledgements"

    unit_id: Mapped[int] = mapped_column(ForeignKey("units.id"), primary_key=True)
    leaf: Mapped[str] = mapped_column(Hash32, unique=True)  # of the commitment; unitId in the Omissions contract
    include_by: Mapped[datetime] = mapped_column(UtcDateTime)  # deadline for a window with the leaf
    signature: Mapped[str] = mapped_column(String(132))
