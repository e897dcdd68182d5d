"""Description of a page: address, place in the navigation, and the roles that may see it."""

from dataclasses import dataclass
from enum import Enum

from fastapi import APIRouter

from market.console.sessions.service import Visitor


class Audience(Enum):
    """Visitors that may see a page: all, signed-in wallets, staff, or nodes."""

    PUBLIC = frozenset[str]()
    SIGNED_IN = frozenset({"signed-in"})
    STAFF = frozenset({"admin", "guardian", "operator", "support"})
    NODE = frozenset({"provider", "verifier"})

    def admits(self, visitor: Visitor | None) -> bool:
        """Return True if the visitor may see pages of this audience."""
        if self is Audience.PUBLIC:
            return True
        return visitor is not None and (self is Audience.SIGNED_IN or not visitor.roles.isdisjoint(self.value))


@dataclass(frozen=True, slots=True)
class Page:
    """Page or group of pages with one entry in the navigation.

    Attributes:
        path: address below ``/console``, of the entry in the navigation.
        group: heading of the navigation; empty: reachable by links only.
        router: routes with paths below ``/console``. All are for ``audience``.
    """

    path: str
    title: str
    group: str
    audience: Audience
    router: APIRouter
