"""Connections and parts of a process for request handlers, built by the composition root."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self, TypeVar, cast

from redis import Redis

from market.domain.network import NetworkParameters
from market.platform.db.session import Database
from market.platform.observability.metrics import Metrics
from market.settings import Settings
from zoo_protocol.messages import Domain

Part = TypeVar("Part")


@dataclass(frozen=True, slots=True)
class Services:
    """Connections and constants of a process. All are thread-safe.

    Attributes:
        domain: EIP-712 domain of this deployment.
        parts: objects of the features and of the chain, by type; see :meth:`part`.
    """

    settings: Settings
    database: Database
    network: NetworkParameters
    domain: Domain
    redis: Redis
    metrics: Metrics
    parts: Mapping[type, object]

    def part(self, kind: type[Part]) -> Part:
        """Return the process's part of this type.

        Raises:
            LookupError: if the composition root has not built it.
        """
        if kind not in self.parts:
            raise LookupError(f"{kind.__name__} is not a part of these services. Add it in market.app.build_services.")
        return cast(Part, self.parts[kind])

    def with_part(self, kind: type[Part], part: Part) -> Self:
        """Return the same services with another part of this type."""
        return replace(self, parts={**self.parts, kind: part})
