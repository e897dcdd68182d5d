"""Statements that are compiled once, for the most frequent requests.

SQLAlchemy's cache key and row objects take several times longer than an index lookup in PostgreSQL. Prepared statements
avoid both. They are SQLAlchemy expressions, and SQLAlchemy's events see them.
"""

from collections.abc import Callable, Mapping
from typing import Any

import psycopg
from sqlalchemy import Select
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.sql import CompoundSelect

from market.platform.db.session import UnitOfWork

_DIALECT = PGDialect_psycopg(dbapi=psycopg, paramstyle="format")  # type: ignore[no-untyped-call]
Convert = Callable[[Any], Any]


class Prepared:
    """Query that is compiled once; its ``bindparam`` names are not expanding."""

    def __init__(self, query: Select[*tuple[Any, ...]] | CompoundSelect[*tuple[Any, ...]]) -> None:
        compiled = query.compile(dialect=_DIALECT)
        self._text = str(compiled)
        self._types = [column.type.dialect_impl(_DIALECT) for column in query.selected_columns]
        self._fixed = {name: bound.value for name, bound in compiled.binds.items() if not bound.required}
        self._read: list[tuple[int, Convert]] | None = None  # set by the first result
        self._bind: list[tuple[str, Convert | None]] = [
            (name, compiled.binds[name].type.dialect_impl(_DIALECT).bind_processor(_DIALECT))
            for name in compiled.positiontup or ()
        ]

    def rows(self, unit: UnitOfWork, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """Return the rows for these parameters, without a flush; the session does not keep them.

        Raises:
            sqlalchemy.exc.DBAPIError: as a session's execution.
        """
        values = {**self._fixed, **values}
        given = tuple(values[name] if convert is None else convert(values[name]) for name, convert in self._bind)
        result = unit.connection().exec_driver_sql(self._text, given)
        if self._read is None:
            assert result.cursor is not None  # a query returns rows
            codes = [column[1] for column in result.cursor.description]
            found = (kind.result_processor(_DIALECT, code) for kind, code in zip(self._types, codes, strict=True))
            self._read = [(index, convert) for index, convert in enumerate(found) if convert is not None]
        rows = []
        for row in result:
            values_of_row = list(row)
            for index, convert in self._read:
                values_of_row[index] = convert(values_of_row[index])
            rows.append(tuple(values_of_row))
        return rows
