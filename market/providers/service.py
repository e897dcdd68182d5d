"""Registration, availability and stake of providers and verifiers.

A provider becomes active with a passed benchmark and the final stake of its tier. A verifier has no tier: its
registration replaces the benchmark, because the market compares its results. The verifier's minimum stake makes it
active.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Select
from sqlalchemy.orm import Session

from market.domain.lifecycle import ProviderEvent, ProviderStatus
from market.domain.network import BPS, NETWORKS, NetworkParameters
from market.domain.nodes import uptime
from market.domain.nodes.placement import Node, coarse_mflops
from market.domain.nodes.uptime import epoch_of, minute_of
from market.domain.rewards import Work
from market.domain.verification.sampling import VerifierSanction, sanction_for
from market.platform.db.base import utc_now
from market.providers import repository
from market.providers.attestation.chain_events import attested_until
from market.providers.errors import EnvironmentNotAccepted, KindFixed, NotRegistered, ProviderNotFound
from market.providers.lifecycle import STAKE_DECIDES, advance, minimum_stake, review_stake
from market.providers.models import Provider, SignerNonce
from market.providers.record import repository as record_repository
from market.providers.schemas import RegistrationRequest
from market.settings import Settings

OVERRULED = "overruled"
"""Reason of a verifier's suspension."""
REBENCHMARK_MISSED = "rebenchmark_missed"
"""Reason of a demotion after a missed benchmark."""
NOT_ACCEPTED = "environment_not_accepted"
"""Reason why a node of any status gets no work."""


@dataclass(frozen=True, slots=True)
class Offer(Node):
    """Available node with its open ask. ``min_price_wei``: per GPU-hour, net of the fee."""

    gpus: int
    min_price_wei: int
    stake_wei: int
    placed_at: datetime
    ask_id: str


@dataclass(frozen=True, slots=True)
class VerifierSummary:
    """Available verifier; its stake last grew at ``raised_at`` (chain time), None: long ago."""

    address: str
    stake_wei: int
    raised_at: datetime | None
    reliability_bps: int
    environment_class: str

    @property
    def weight(self) -> int:
        """Return the weight of the verifier in the selection."""
        return max(1, self.stake_wei * self.reliability_bps // BPS)

    def staked_before(self, then: datetime) -> bool:
        """Return True if it had all of its stake at that time of the chain's clock."""
        return self.raised_at is None or self.raised_at <= then


def register(session: Session, network: NetworkParameters, address: str, request: RegistrationRequest) -> Provider:
    """Register a wallet as provider or verifier, or update its registration.

    A changed environment class cancels the open ask, because replays compare within one class. Only the first
    registration counts as a heartbeat, since a session token suffices for a registration.

    Raises:
        KindFixed: it is registered as the other kind.
    """
    declared = request.model_dump(exclude={"kind"})
    new = {"kind": request.kind, "status": ProviderStatus.REGISTERED, "last_seen_at": utc_now()}
    repository.insert_provider(session, address=address, **new, **declared)
    provider = require(session, address, lock=True)
    if provider.kind != request.kind:
        raise KindFixed(f"{address} is registered as {provider.kind}", field="kind")
    if provider.environment_class != request.environment_class:
        repository.close_open_ask(session, address, "cancelled")
    for name, value in declared.items():
        setattr(provider, name, value)
    if provider.kind == "verifier" and provider.status == ProviderStatus.REGISTERED:
        advance(session, provider, ProviderEvent.BENCHMARK_PASSED, reason="verifier_registered")
    review_stake(session, network, provider)
    return provider


def heartbeat(session: Session, address: str, round_trip_ms: int | None = None) -> Provider:
    """Record a heartbeat, with the node's round trip to the market if measured.

    Raises:
        NotRegistered: the wallet is not registered.
    """
    now = utc_now()
    if not repository.record_heartbeat(session, address, now, round_trip_ms):
        raise NotRegistered(f"{address} has not registered")
    record_repository.mark_minute(session, address, *minute_of(now.timestamp()))
    return require(session, address)


def had_outage(session: Session, start: datetime, end: datetime) -> bool:
    """Return True if the market received no heartbeat in some whole minute: an outage."""
    seen = record_repository.minutes_seen(session, minute_of(start.timestamp())[0])
    return bool(seen) and uptime.had_outage(seen, start.timestamp(), end.timestamp())


def require(session: Session, address: str, *, lock: bool = False) -> Provider:
    """Return the registration of a wallet.

    Raises:
        NotRegistered: the wallet is not registered.
    """
    provider = repository.lock_provider(session, address) if lock else repository.provider(session, address)
    if provider is None:
        raise NotRegistered(f"{address} has not registered")
    return provider


def kind_of(session: Session, address: str) -> str | None:
    """Return the kind of a registered wallet, provider or verifier, or None."""
    provider = repository.provider(session, address)
    return None if provider is None else provider.kind


def get(session: Session, address: str) -> tuple[Provider, int]:
    """Return a provider and its active stake in wei.

    Raises:
        ProviderNotFound: the address is not registered.
    """
    row = repository.with_stake(session, address)
    if row is None:
        raise ProviderNotFound(f"{address} is not registered", field="address")
    return row[0], row[1]


def at_risk(session: Session, address: str) -> int:
    """Return the wallet's slashable balance in wei, from final events."""
    return repository.at_risk(session, address)


def list_page(session: Session, after: str, limit: int) -> list[tuple[Provider, int]]:
    """Return providers with their active stakes in wei, by address, beginning after ``after``."""
    return [(row[0], row[1]) for row in repository.page(session, after, limit)]


def count_by_status(session: Session) -> dict[tuple[str, str], int]:
    return repository.count_by_status(session)


def open_offers(session: Session, settings: Settings, tier_id: int, now: datetime) -> list[Offer]:
    """Return the open asks of a tier by price, time and id.

    Their providers may work (:func:`working_among`), were seen recently and are not in a benchmark. They may have a
    replica: the caller excludes busy ones.
    """
    rows = repository.available_asks(session, tier_id, settings.accepted_classes, _seen_since(settings, now), now)
    attested = _attested(session, settings, repository.open_askers(tier_id), now)
    return [
        Offer(
            **_placement_values(row, attested),
            gpus=row.gpus,
            min_price_wei=row.min_price_wei,
            stake_wei=row.stake_wei,
            placed_at=row.placed_at,
            ask_id=row.ask_id,
        )
        for row in rows
    ]


def nodes_among(session: Session, settings: Settings, addresses: Collection[str], now: datetime) -> dict[str, Node]:
    """Return the placement data of these nodes, without unregistered ones."""
    attested = _attested(session, settings, [*addresses], now)
    rows = repository.for_placement(session, addresses)
    return {row.address: Node(**_placement_values(row, attested)) for row in rows}


def _seen_since(settings: Settings, now: datetime) -> datetime:
    return now - timedelta(seconds=settings.heartbeat_timeout_seconds)


def _attested(
    session: Session, settings: Settings, addresses: Sequence[str] | Select[str], now: datetime
) -> Mapping[str, datetime]:
    return attested_until(session, NETWORKS[settings.network], addresses, now)


def _placement_values(row: Sequence[Any], attested: Collection[str]) -> dict[str, Any]:
    """Return the fields of a :class:`Node`. Unpacking a row is faster than reading it by name."""
    address, region, environment_class, mflops, reliability, site, asn, owner, round_trip, memory, *_ = row
    return {
        "provider": address,
        "region": region,
        "environment_class": environment_class,
        "gpu_memory_gb": float(memory or 0),
        "measured_mflops": coarse_mflops(mflops or 0),
        "reliability_bps": reliability,
        "attested": address in attested,
        "site": site,
        "asn": asn,
        "owner": owner,
        "round_trip_ms": round_trip,
    }


def gpus_to_attest(session: Session, network: NetworkParameters, address: str) -> int:
    """Return the number of GPUs that an attestation must cover. Raises NotRegistered."""
    provider = require(session, address)
    return network.gpus_to_attest(provider.tier_id, int(str(provider.hardware.get("gpu_count", 0))))


def record_shutdown(session: Session, address: str) -> None:
    """Record that the node is about to stop: it gets no work before its next heartbeat."""
    repository.mark_unseen(session, address)


def working_among(session: Session, settings: Settings, addresses: Collection[str]) -> set[str]:
    """Return the providers that may work: active, undisputed, of an accepted class."""
    return repository.working_among(session, addresses, settings.accepted_classes)


def providers_in_benchmark(session: Session, addresses: Collection[str], now: datetime) -> set[str]:
    """Return the providers in a benchmark or with a benchmark deadline; they get no new work."""
    return repository.in_benchmark_among(session, addresses, now)


def ineligible_providers(session: Session, network: NetworkParameters, addresses: Collection[str]) -> set[str]:
    """Return the providers that are jailed or whose stake is too small for their tier."""
    return {found.address for found in repository.among(session, addresses) if _is_ineligible(session, network, found)}


def _is_ineligible(session: Session, network: NetworkParameters, provider: Provider) -> bool:
    if provider.status in (ProviderStatus.ACTIVE, ProviderStatus.JAILED):
        return provider.status == ProviderStatus.JAILED
    tier_id = provider.tier_id
    return tier_id is None or repository.stake_of(session, provider.address) < minimum_stake(network, provider)


def open_ask_prices(session: Session, addresses: Collection[str]) -> dict[str, tuple[int, datetime]]:
    """Return (wei per GPU-hour net of the fee, time) of the providers' open asks."""
    return repository.open_ask_prices(session, addresses)


def reward_work(session: Session, first_epoch: int, last_epoch: int) -> list[Work]:
    """Return each node's rewarded work in these epochs; constant after their evaluation."""
    return record_repository.work_between(session, first_epoch, last_epoch)


def first_known_epoch(session: Session) -> int | None:
    """Return the oldest epoch with a record."""
    return record_repository.first_epoch(session)


def evaluated_epochs(session: Session) -> tuple[int, int] | None:
    """Return (oldest epoch with a record, newest evaluated epoch); None before the first."""
    first, last = record_repository.first_epoch(session), record_repository.last_evaluated_epoch(session)
    return None if first is None or last is None else (first, last)


def live_verifiers(session: Session, settings: Settings, now: datetime) -> list[VerifierSummary]:
    """Return the recently seen verifiers that may work, by address."""
    rows = repository.working_verifiers(session, settings.accepted_classes, _seen_since(settings, now))
    return [
        VerifierSummary(row.address, stake.stake_wei, stake.raised_at, row.reliability_bps, row.environment_class)
        for row, stake in rows
    ]


def of_same_owner(session: Session, address: str) -> set[str]:
    """Return the node and all others with the same declared owner. Declarations are not proven."""
    return {address, *repository.of_same_owner(session, address)}


def reason_of(settings: Settings, provider: Provider) -> str | None:
    """Return the reason of a node's status; an unaccepted environment class comes first."""
    accepted = settings.accepted_classes
    return provider.reason if accepted is None or provider.environment_class in accepted else NOT_ACCEPTED


def require_accepted(settings: Settings, environment_class: str) -> None:
    """Refuse a class that the operator's list of classes lacks, if there is a list.

    Only verifiers of a class replay its units, and nodes declare their class. An owner of providers and verifiers in
    an invented class would verify its own work (decision 9).

    Raises:
        EnvironmentNotAccepted: the list does not contain the class.
    """
    accepted = settings.accepted_classes
    if accepted is not None and environment_class not in accepted:
        raise EnvironmentNotAccepted(
            f"environment_class is {environment_class}; expected one of the {len(accepted)} accepted classes",
            field="environment_class",
            extra={"accepted": accepted},
        )


def count_of_tier(session: Session, tier_id: int) -> int:
    """Return the number of active nodes of a tier."""
    return repository.count_of_tier(session, tier_id)


def count_of_class(session: Session, addresses: Collection[str], environment_class: str) -> int:
    """Return the number of addresses that are registered with this class, live or not."""
    return sum(found.environment_class == environment_class for found in repository.among(session, addresses))


def verifiers_of_class(
    session: Session, settings: Settings, environment_class: str, besides: str, now: datetime
) -> int:
    """Return the number of live verifiers of an accepted class, without the node ``besides``."""
    accepted, seen_since = settings.accepted_classes, _seen_since(settings, now)
    return repository.count_of_class(session, environment_class, besides, accepted, seen_since)


def record_overruled(
    session: Session, address: str, assigned_at: datetime, at: datetime, *, copied: bool = False
) -> VerifierSanction:
    """Record an outvoted or ``copied`` result and return the sanction.

    A suspension takes effect here; the caller queues a slash.
    """
    record_repository.add(session, address, epoch_of(at.timestamp()), rejected=1)
    verifier = require(session, address, lock=True)
    follows = sanction_for(assigned_at, verifier.warned_at, at, copied=copied)
    if follows is VerifierSanction.SUSPENDED:
        verifier.warned_at = at
        if verifier.status in STAKE_DECIDES:
            advance(session, verifier, ProviderEvent.DEMOTE, reason=OVERRULED)
    return follows


def record_disputed(session: Session, address: str, at: datetime | None) -> None:
    """Set the begin of a dispute with the provider, which gets no work until ``at`` is None."""
    require(session, address, lock=True).disputed_at = at


def disputed_among(session: Session, addresses: Collection[str]) -> set[str]:
    """Return those of the providers that are in a dispute of the market."""
    return {row.address for row in repository.among(session, addresses) if row.disputed_at is not None}


def is_disputed(session: Session, address: str) -> bool:
    return require(session, address).disputed_at is not None


def use_nonce(session: Session, signer: str, nonce: int, used_for: str) -> bool:
    """Record the nonce of a signed order or ask as used; return False if it was used before."""
    return repository.use_nonce(session, signer, nonce, used_for)


def new_nonce(signer: str, nonce: int, used_for: str) -> SignerNonce:
    """Return the row of a used nonce, for a caller that inserts it together with its own."""
    return SignerNonce(signer=signer, nonce=nonce, used_for=used_for)
