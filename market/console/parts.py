"""Parts of pages that tables repeat in each row.

Functions are faster than macros of the templates. They escape all values themselves.
"""

from collections.abc import Callable
from dataclasses import dataclass

from markupsafe import Markup, escape

_DASH = Markup("–")
_COPY = (
    '<svg class="icon" viewBox="0 0 16 16" aria-hidden="true"><path d="M5 5V2h9v9h-3M2 5h9v9H2z"/>'
    '<path class="tick" d="M4 9.5 6 12l4-6"/></svg>'
)
_OUT = '<svg class="icon" viewBox="0 0 16 16" aria-hidden="true"><path d="M7 3H3v10h10V9M9 2h5v5M14 2 7 9"/></svg>'


@dataclass(frozen=True, slots=True)
class Parts:
    """Parts of one page.

    Attributes:
        name_of: returns the name of an address on this page, or None.
        explorer: address of the block explorer; empty: none.
    """

    name_of: Callable[[str], str | None]
    explorer: str

    def copy(self, value: str, what: str) -> Markup:
        """Return the button that copies a value."""
        return Markup(
            f'<button type="button" class="copy" data-copy="{_safe(value)}" aria-label="Copy {_safe(what)} '
            f'{_safe(value[:8])}">'
            f"{_COPY}</button>"
        )

    def explore(self, kind: str, value: str) -> Markup:
        """Return the link to the block explorer; nothing without one."""
        if not self.explorer:
            return Markup()
        root, safe = _safe(self.explorer.rstrip("/")), _safe(value)
        return Markup(
            f'<a class="out" href="{root}/{_safe(kind)}/{safe}" rel="noreferrer" target="_blank" '
            f'aria-label="{_safe(kind)} {_safe(value[:8])} in the block explorer">{_OUT}</a>'
        )

    def address(self, value: str | None, href: str | None = None, plain: bool = False) -> Markup:
        """Return an address with its name, copy button and, unless ``plain``, the explorer's link.

        Args:
            href: page about the address.
        """
        if value is None:
            return _DASH
        name = self.name_of(value)
        label = "" if name is None else f"<b>{_safe(name)}</b> "
        short = f"{label}{_code(value, 6)}"
        return self._id(value, short, href, "address", "" if plain else "address")

    def hash(self, value: str | None, href: str | None = None, kind: str = "") -> Markup:
        """Return the hash of a job, transaction or root; ``kind``: ``tx`` for the explorer's link."""
        return _DASH if value is None else self._id(value, _code(value, 10), href, "id", kind)

    def _id(self, value: str, short: str, href: str | None, what: str, kind: str) -> Markup:
        if href:
            short = f'<a href="{_safe(href)}" title="{_safe(value)}">{short}</a>'
        link = self.explore(kind, value) if kind else ""
        return Markup(f'<span class="id">{short}{self.copy(value, what)}{link}</span>')


def _safe(text: str) -> str:
    return text if text.isalnum() else str(escape(text))


def _code(value: str, digits: int) -> str:
    return f'<code title="{_safe(value)}">{_safe(value[:digits])}…{_safe(value[-4:])}</code>'
