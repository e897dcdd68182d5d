"""Row locks of queries."""

from typing import TypeVar

from sqlalchemy import Select

from market.platform.db.base import Base

Row = TypeVar("Row", bound=Base)


def locked(query: Select[Row], *, skip_locked: bool = False) -> Select[Row]:
    """Return the query with ``FOR NO KEY UPDATE``, which refreshes loaded rows.

    Args:
        skip_locked: skip rows that another transaction has locked, instead of waiting for them.
    """
    return query.with_for_update(key_share=True, skip_locked=skip_locked).execution_options(populate_existing=True)
