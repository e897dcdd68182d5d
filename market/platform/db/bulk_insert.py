"""Insertion of rows into several tables by one statement, to save round trips."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import psycopg
from sqlalchemy import CTE, ColumnElement, bindparam, select, true
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import IntegrityError

from market.platform.db.base import CreatedAt
from market.platform.db.prepared import Prepared
from market.platform.db.session import UnitOfWork


@dataclass(frozen=True, slots=True)
class Condition:
    """Condition of an insertion: a constant clause, and the values of its named ``bindparam``."""

    clause: ColumnElement[bool]
    values: Mapping[str, Any]


def insert_together(unit: UnitOfWork, *rows: CreatedAt, only_if: Condition | None = None) -> bool:
    """Insert new rows of different tables, all or none, and set their ``created_at``.

    Only the first row may exist already, or one whose class has a ``SUMMED`` column. Its value is added to the existing
    one, and other columns are replaced. Columns without a value get NULL or the database's default, not Python's. The
    rows do not join a session.

    Returns:
        False, without an insertion, if the first row exists or ``only_if`` does not hold.

    Raises:
        IntegrityError: if another row exists.
    """
    shape: list[tuple[Any, tuple[str, ...]]] = []
    values: dict[str, Any] = {}
    for row in rows:
        table: Any = type(row)
        given = {name: value for name, value in vars(row).items() if value is not None and name in table.__table__.c}
        shape.append((table, tuple(given)))
        values |= {_parameter(table, name): value for name, value in given.items()}
    if only_if is not None:
        values |= only_if.values
    written = _insertion(tuple(shape), None if only_if is None else only_if.clause).rows(unit, values)
    if not written:
        return False
    for row, created_at in zip(rows, written[0], strict=True):
        row.created_at = created_at
    return True


def violates(error: IntegrityError, constraint: str) -> bool:
    """Return True if a statement failed by this named constraint."""
    return isinstance(error.orig, psycopg.Error) and error.orig.diag.constraint_name == constraint


@lru_cache(64)
def _insertion(shape: tuple[tuple[Any, tuple[str, ...]], ...], only_if: ColumnElement[bool] | None) -> Prepared:
    """Return a statement that inserts a row into each table; none if the first exists."""
    parts: list[CTE] = []
    for model, names in shape:
        table = model.__table__
        values = select(*(bindparam(_parameter(model, name), type_=table.c[name].type) for name in names))
        if parts:
            statement = insert(table).from_select(names, values.select_from(parts[-1]), include_defaults=False)
            summed = getattr(model, "SUMMED", None)
            if summed is not None:
                new = {name: statement.excluded[name] for name in names if not table.c[name].primary_key}
                new[summed] += table.c[summed]
                statement = statement.on_conflict_do_update(index_elements=table.primary_key, set_=new)
        else:
            values = values if only_if is None else values.where(only_if)
            statement = insert(table).from_select(names, values, include_defaults=False).on_conflict_do_nothing()
        parts.append(statement.returning(table.c.created_at).cte(f"new_{table.name}"))
    query = select(*(part.c.created_at for part in parts)).select_from(parts[0])
    for part in parts[1:]:
        query = query.join(part, true())
    return Prepared(query)


def _parameter(model: Any, column: str) -> str:
    return f"{model.__tablename__}_{column}"
