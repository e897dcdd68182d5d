"""Nodes of a tier, counted by what requirements can tell apart."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from market.domain.network import NETWORKS
from market.domain.nodes.placement import Node, coarse_mflops
from market.providers import repository
from market.providers.attestation.chain_events import attested_until
from market.settings import Settings


@dataclass(frozen=True, slots=True)
class EqualNodes:
    """Nodes that requirements cannot tell apart.

    Attributes:
        node: any of them, without its address.
        seen: those seen recently.
        working: those that may work: active, undisputed, of an accepted class.
    """

    node: Node
    addresses: frozenset[str]
    seen: frozenset[str]
    working: frozenset[str]


def census(session: Session, settings: Settings, tier_id: int, reliability_bps: int, now: datetime) -> list[EqualNodes]:
    """Return all nodes that earned a tier, of any status.

    Reliability above the given one counts as that, so that nodes of different reliability are equal.
    """
    of_tier = repository.addresses_of_tier(tier_id)
    attested = attested_until(session, NETWORKS[settings.network], of_tier, now).keys()
    seen_since = now - timedelta(seconds=settings.heartbeat_timeout_seconds)
    found = []
    for row in repository.kinds_of_tier(session, tier_id, settings.accepted_classes, seen_since, reliability_bps):
        for is_attested in (True, False):
            addresses = frozenset(row.addresses)
            addresses = addresses & attested if is_attested else addresses - attested
            if addresses:
                node = Node(
                    "",
                    row.region,
                    row.environment_class,
                    gpu_memory_gb=float(row.gpu_memory_gb or 0),
                    measured_mflops=coarse_mflops(row.measured_mflops or 0),
                    reliability_bps=row.reliability_bps,
                    attested=is_attested,
                )
                found.append(EqualNodes(node, addresses, addresses.intersection(row.seen), addresses & {*row.working}))
    return found
