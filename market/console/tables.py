"""Tables that sort, filter and page by the query string, and remember it in a cookie.

A page describes its columns and filters, and passes a statement that selects its rows.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from sqlalchemy import ColumnElement, Row, Select, UnaryExpression, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from market.console.visits import Visit

Sortable = ColumnElement[Any] | InstrumentedAttribute[Any]
PAGE_ROWS = 50
_MAX_PAGE, _MAX_TEXT, _MAX_COOKIE = 2_000, 100, 500


@dataclass(frozen=True, slots=True)
class Column:
    """Column of a table. With ``by`` it can be sorted. ``kind``: empty or ``number``."""

    key: str
    title: str
    by: Sortable | None = None
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Filter:
    """Field of the form above a table: a choice, or a search with no ``choices``.

    Attributes:
        condition: returns the condition of a value, which is one of ``choices`` or any text.
    """

    key: str
    title: str
    condition: Any
    choices: Sequence[str] = ()


@dataclass
class Table:
    """State of one table of a page.

    Args:
        name: id of the table in the page and prefix of its query parameters.
        sort: key of the column to sort by first; ``-`` in front: descending.
        tie: key of the rows, which makes the order total.
    """

    visit: Visit
    name: str
    columns: Sequence[Column]
    sort: str
    tie: Sortable
    filters: Sequence[Filter] = ()

    def __post_init__(self) -> None:
        keys = ("sort", "page", *(one.key for one in self.filters))
        query = self.visit.request.query_params
        given = {key: query[self._parameter(key)][:_MAX_TEXT] for key in keys if self._parameter(key) in query}
        cookie = f"table_{self.name}"
        if self._parameter("reset") in query:
            self.visit.cookies[cookie] = None
        elif given:
            kept = json.dumps({key: value for key, value in given.items() if key != "page" and value})
            if len(kept) < _MAX_COOKIE:
                self.visit.cookies[cookie] = kept.encode().hex()  # a cookie takes few characters
        else:
            given = self._remembered(self.visit.request.cookies.get(cookie, ""), keys)
        self._given = {key: value.replace("\0", "") for key, value in given.items()}
        self.rows: list[Any] = []
        self.has_next = False

    def fetch(self, session: Session, statement: Select[*tuple[Any, ...]]) -> Sequence[Row[Any]]:
        """Return and keep the rows of the present page.

        Later pages skip their predecessors in the index alone, without reading the rows.
        """
        filtered = statement
        for one in self.filters:
            value = self.value(one.key)
            if value and (not one.choices or value in one.choices):
                filtered = filtered.where(one.condition(value))
        shown = filtered.order_by(*self._order()).limit(PAGE_ROWS + 1)
        if self.page > 1:
            keys = shown.with_only_columns(self.tie, maintain_column_froms=True).offset((self.page - 1) * PAGE_ROWS)
            shown = statement.where(self.tie.in_(select(keys.subquery()))).order_by(*self._order())
        found = session.execute(shown).all()
        self.has_next = len(found) > PAGE_ROWS
        self.rows = list(found[:PAGE_ROWS])
        return self.rows

    @property
    def page(self) -> int:
        text = self._given.get("page", "1")
        return min(max(int(text), 1), _MAX_PAGE) if text.isascii() and text.isdigit() else 1

    @property
    def is_filtered(self) -> bool:
        return any(self.value(one.key) for one in self.filters)

    @property
    def order(self) -> tuple[str, bool]:
        """Return the key of the column and True if descending."""
        keys = {column.key for column in self.columns if column.by is not None}
        for text in (self._given.get("sort", ""), self.sort):
            if text.removeprefix("-") in keys:
                return text.removeprefix("-"), text.startswith("-")
        raise ValueError(f"{self.sort} is not a sortable column of the table {self.name}")

    def value(self, key: str) -> str:
        """Return the present value of a filter; empty: not set."""
        return self._given.get(key, "")

    def parameter(self, key: str) -> str:
        """Return the name of a query parameter of this table."""
        return self._parameter(key)

    def link(self, **changes: object) -> str:
        """Return the query string of this table with other values."""
        values = {**self._given, **{key: str(value) for key, value in changes.items()}}
        if "page" not in changes:
            values.pop("page", None)
        return "?" + urlencode({self._parameter(key): value for key, value in values.items() if value})

    def sort_link(self, key: str) -> str:
        """Return the query string that sorts by a column, or reverses its order."""
        present, is_descending = self.order
        return self.link(sort=key if present != key or is_descending else f"-{key}")

    def _parameter(self, key: str) -> str:
        return f"{self.name}.{key}"

    def _order(self) -> list[UnaryExpression[Any]]:
        key, is_descending = self.order
        by = next(column.by for column in self.columns if column.key == key and column.by is not None)
        found = by.desc() if is_descending else by.asc()
        if getattr(by, "nullable", True):  # an index serves the plain order only
            found = found.nulls_last()
        return [found, self.tie.desc() if is_descending else self.tie.asc()]

    def _remembered(self, cookie: str, keys: Sequence[str]) -> dict[str, str]:
        try:
            found = json.loads(bytes.fromhex(cookie))
        except (ValueError, RecursionError):
            return {}
        if not isinstance(found, dict):
            return {}
        return {key: str(found[key])[:_MAX_TEXT] for key in keys if key in found}
