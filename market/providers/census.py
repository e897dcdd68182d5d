"""Nodes of a tier, counted by what requirements, limits and their state can tell apart."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Select
from sqlalchemy.orm import Session

from market.domain.network import NETWORKS
from market.domain.nodes.placement import Node
from market.platform.db.rows import from_row
from market.providers import repository
from market.providers.attestation.chain_events import attested_until
from market.settings import Settings


@dataclass(frozen=True, slots=True)
class EqualNodes:
    """Nodes with equal properties in an equal state.

    Attributes:
        node: any of them, without its address. Its reliability is the highest given one that it reaches.
        of_tier: they earned the tier; otherwise they only have an ask in it.
        working: they may work: active, undisputed, of an accepted class.
        seen: they were seen recently.
        offered: they have an open ask, as :func:`market.providers.service.open_offers`.
        affordable: they ask at most the limit.
        asks: asks of free ``offered`` nodes in wei, net of the fee.
        jobs: jobs of busy ``offered`` and ``affordable`` nodes, one per node.
    """

    node: Node
    of_tier: bool
    working: bool
    seen: bool
    offered: bool
    busy: bool
    affordable: bool
    size: int
    asks: tuple[int, ...]
    jobs: tuple[str, ...]


def census(
    session: Session,
    settings: Settings,
    tier_id: int,
    now: datetime,
    *,
    reliabilities: Collection[int],
    limit_wei: int,
    held: Select[str | None, str],
) -> list[EqualNodes]:
    """Return all nodes that earned a tier, of any status, and all with an open ask in it.

    Args:
        reliabilities: thresholds that requirements set, in basis points.
        limit_wei: highest affordable ask, net of the fee.
        held: query of (node, job) for busy nodes.
    """
    thresholds = sorted({0, *reliabilities})
    attested = attested_until(session, NETWORKS[settings.network], repository.addresses_of_tier(tier_id), now)
    rows = repository.equal_nodes(
        session,
        tier_id,
        settings.accepted_classes,
        now - timedelta(seconds=settings.heartbeat_timeout_seconds),
        now,
        reliabilities=thresholds,
        limit_wei=limit_wei,
        attested=attested.keys(),
        held=held,
    )
    return [
        from_row(
            EqualNodes,
            row,
            node=Node(
                "",
                row.region,
                row.environment_class,
                gpu_memory_gb=float(row.gpu_memory_gb or 0),
                measured_mflops=row.mflops,
                reliability_bps=thresholds[row.rank - 1],
                attested=row.attested,
            ),
            asks=tuple(row.asks or ()),
            jobs=tuple(row.jobs or ()),
        )
        for row in rows
    ]
