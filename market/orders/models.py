"""Table of the budgets that payers' orders take from their balances."""

from sqlalchemy import CheckConstraint
from sqlalchemy.orm import Mapped, mapped_column

from market.platform.db.base import Address, Base, CreatedAt, Wei


class PayerDraws(Base, CreatedAt):
    """Sum of the budgets of a payer's orders, opened or still to be opened.

    ``covered_wei`` is the sum of its deposits minus its withdrawals, as the last submission saw it. The constraint
    refuses a submission beyond it, whatever runs concurrently.
    """

    __tablename__ = "payer_draws"
    __table_args__ = (CheckConstraint("total_wei <= covered_wei", name="covered"),)
    COVERED = "ck_payer_draws_covered"
    SUMMED = "total_wei"  # bulk_insert adds to an existing row

    payer: Mapped[str] = mapped_column(Address, primary_key=True)
    total_wei: Mapped[int] = mapped_column(Wei)
    covered_wei: Mapped[int] = mapped_column(Wei)
