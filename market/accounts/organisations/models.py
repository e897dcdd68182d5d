"""Tables of organisations: wallets that work together under shared spending limits."""

from sqlalchemy import ForeignKey, String
from sqlalchemy.orm import Mapped, mapped_column

from market.platform.db.base import Base, CreatedAt


class Organisation(Base, CreatedAt):
    """Accounts with one spending limit; the members' wallets pay, it has no funds."""

    __tablename__ = "organisations"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(64))
    limit_id: Mapped[int] = mapped_column(ForeignKey("spending_limits.id"))


class Member(Base, CreatedAt):
    __tablename__ = "organisation_members"

    organisation_id: Mapped[int] = mapped_column(ForeignKey("organisations.id"), primary_key=True)
    address: Mapped[str] = mapped_column(ForeignKey("accounts.address"), primary_key=True, index=True)
    role: Mapped[str] = mapped_column(String(8))  # owner | admin | member | viewer
    limit_id: Mapped[int] = mapped_column(ForeignKey("spending_limits.id"))
