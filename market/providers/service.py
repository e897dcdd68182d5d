"""Providers and verifiers: who they are, whether they may work now, and what their stake is.

A provider becomes active with a passed benchmark and, at finality, the stake of its tier. A verifier earns no tier:
it is trusted with replays, whose results are compared, so its registration stands in for the benchmark and the
verifier's minimum stake makes it active.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from market.domain.auctions.clearing import AskOrder
from market.domain.lifecycle import ProviderEvent, ProviderStatus
from market.domain.network import BPS, NETWORKS, NetworkParameters
from market.domain.nodes import uptime
from market.domain.nodes.placement import Node
from market.domain.nodes.uptime import epoch_of, minute_of
from market.domain.rewards import Work
from market.domain.verification.sampling import VerifierSanction, sanction_for
from market.platform.db.base import utc_now
from market.providers import repository
from market.providers.attestation.chain_events import attested_until
from market.providers.errors import KindFixed, NotRegistered, ProviderNotFound
from market.providers.models import Provider, SignerNonce
from market.providers.record import repository as record_repository
from market.providers.record.reliability import (
    reliability_bps,
)
from market.providers.schemas import RegistrationRequest
from market.providers.standing import STAKE_DECIDES, advance, minimum_stake, review_stake
from market.settings import Settings

OVERRULED = "overruled"
"""Why a verifier is suspended."""
REBENCHMARK_MISSED = "rebenchmark_missed"
"""Why a provider that did not show its hardware again is demoted."""


@dataclass(frozen=True, slots=True)
class Offer(Node):
    """A node that could be placed now. ``min_price_wei``: per GPU-hour, net of the fee."""

    gpus: int
    min_price_wei: int
    stake_wei: int
    placed_at: datetime
    ask_id: str

    def as_order(self) -> AskOrder:
        """The offer as an order of its book."""
        return AskOrder(self.ask_id, self.min_price_wei, self.placed_at)


@dataclass(frozen=True, slots=True)
class VerifierSummary:
    """A verifier that could replay now. Its stake last grew at ``raised_at``, by the chain's clock; None: long ago."""

    address: str
    stake_wei: int
    raised_at: datetime | None
    reliability_bps: int
    environment_class: str

    @property
    def weight(self) -> int:
        """By which it is drawn."""
        return max(1, self.stake_wei * self.reliability_bps // BPS)

    def staked_before(self, then: datetime) -> bool:
        """Whether it had all of its stake at that time of the chain's clock."""
        return self.raised_at is None or self.raised_at <= then


def register(session: Session, network: NetworkParameters, address: str, request: RegistrationRequest) -> Provider:
    """Register a wallet as provider or verifier, or renew what it said of itself.

    A changed environment class withdraws the open ask: replays compare within one class, so the node must offer anew.
    Only its first registration counts as a sign of life, since a session's token is enough for one.

    Raises:
        KindFixed: it is registered in the other role.
    """
    said = request.model_dump(exclude={"kind"})
    new = {"kind": request.kind, "status": ProviderStatus.REGISTERED, "last_seen_at": utc_now()}
    repository.insert_provider(session, address=address, **new, **said)
    provider = require(session, address, lock=True)
    if provider.kind != request.kind:
        raise KindFixed(f"{address} is registered as {provider.kind}", field="kind")
    if provider.environment_class != request.environment_class:
        repository.close_open_ask(session, address, "cancelled")
    for name, value in said.items():
        setattr(provider, name, value)
    if provider.kind == "verifier" and provider.status == ProviderStatus.REGISTERED:
        advance(session, provider, ProviderEvent.BENCHMARK_PASSED, reason="verifier_registered")
    review_stake(session, network, provider)
    return provider


def heartbeat(session: Session, address: str, round_trip_ms: int | None = None) -> Provider:
    """Note that the node is alive, and how long its way to the market is, if it measured that.

    Raises:
        NotRegistered: the wallet has no registration.
    """
    now = utc_now()
    if not repository.touch(session, address, now, round_trip_ms):
        raise NotRegistered(f"{address} has not registered")
    record_repository.mark_minute(session, address, *minute_of(now.timestamp()))
    return require(session, address)


def was_silent(session: Session, start: datetime, end: datetime) -> bool:
    """Whether there was a whole minute meanwhile in which the market heard of no node, as while it is down."""
    seen = record_repository.seen_by_anybody(session, minute_of(start.timestamp())[0])
    return bool(seen) and uptime.was_silent(seen, start.timestamp(), end.timestamp())


def require(session: Session, address: str, *, lock: bool = False) -> Provider:
    """The caller's own registration.

    Raises:
        NotRegistered: there is none.
    """
    provider = repository.lock_provider(session, address) if lock else repository.provider(session, address)
    if provider is None:
        raise NotRegistered(f"{address} has not registered")
    return provider


def kind_of(session: Session, address: str) -> str | None:
    """What a wallet is registered as: provider or verifier; None: neither."""
    provider = repository.provider(session, address)
    return None if provider is None else provider.kind


def get(session: Session, address: str) -> tuple[Provider, int]:
    """A provider and its active stake in wei.

    Raises:
        ProviderNotFound: nobody registered with that address.
    """
    row = repository.with_stake(session, address)
    if row is None:
        raise ProviderNotFound(f"{address} is not registered", field="address")
    return row[0], row[1]


def at_risk(session: Session, address: str) -> int:
    """What a slash can take of the wallet at most, in wei, as the chain said with finality."""
    return repository.at_risk(session, address)


def list_page(session: Session, after: str, limit: int) -> list[tuple[Provider, int]]:
    """Providers with their active stakes in wei, by address, beginning after ``after``."""
    return [(row[0], row[1]) for row in repository.page(session, after, limit)]


def count_by_status(session: Session) -> dict[tuple[str, str], int]:
    """How many providers there are of each (kind, status)."""
    return repository.count_by_status(session)


def open_offers(session: Session, settings: Settings, tier_id: int, now: datetime) -> list[Offer]:
    """The standing offers of a tier, cheapest first, then oldest, then by id.

    Only of providers that may work (:func:`working_among`), were seen lately and need not show their hardware now.
    Those may still hold a slot: the caller leaves busy ones out.
    """
    rows = repository.standing_offers(session, tier_id, settings.accepted_classes, _seen_since(settings, now), now)
    nodes = _nodes(session, settings, [row[0] for row in rows], now)
    return [
        Offer(
            **{field.name: getattr(nodes[provider.address], field.name) for field in fields(Node)},
            gpus=ask.gpus,
            min_price_wei=ask.min_price_wei,
            stake_wei=stake_wei,
            placed_at=ask.created_at,
            ask_id=ask.id,
        )
        for provider, ask, stake_wei in rows
    ]


def nodes_among(session: Session, settings: Settings, addresses: Collection[str], now: datetime) -> dict[str, Node]:
    """What placement knows of these nodes; those that are not registered are left out."""
    return _nodes(session, settings, repository.among(session, addresses), now)


def nodes_of_tier(session: Session, settings: Settings, tier_id: int, now: datetime) -> list[tuple[Node, bool]]:
    """All nodes that earned a tier, whatever became of them: each with whether it was seen lately."""
    found = repository.of_tier(session, tier_id)
    nodes, seen_since = _nodes(session, settings, found, now), _seen_since(settings, now)
    return [(nodes[row.address], row.last_seen_at is not None and row.last_seen_at >= seen_since) for row in found]


def _seen_since(settings: Settings, now: datetime) -> datetime:
    """Since when a node must have been heard of, to get work."""
    return now - timedelta(seconds=settings.heartbeat_timeout_seconds)


def _nodes(session: Session, settings: Settings, rows: Sequence[Provider], now: datetime) -> dict[str, Node]:
    addresses = [row.address for row in rows]
    attested = attested_until(session, NETWORKS[settings.network], addresses, now)
    reliability = reliability_bps(session, addresses)
    return {
        row.address: Node(
            row.address,
            row.region,
            row.environment_class,
            gpu_memory_gb=float(str(row.hardware.get("gpu_memory_gb", 0))),
            reliability_bps=reliability[row.address],
            attested=row.address in attested,
            site=row.site,
            asn=row.asn,
            owner=row.owner,
            round_trip_ms=row.round_trip_ms,
        )
        for row in rows
    }


def gpus_to_attest(session: Session, network: NetworkParameters, address: str) -> int:
    """GPUs that an attestation of a provider must cover.

    Raises:
        NotRegistered: the wallet has no registration.
    """
    provider = require(session, address)
    return network.gpus_to_attest(provider.tier_id, int(str(provider.hardware.get("gpu_count", 0))))


def record_shutdown(session: Session, address: str) -> None:
    """The node said that it is about to stop: it gets no work before it is heard of again."""
    repository.forget_seen(session, address)


def working_among(session: Session, settings: Settings, addresses: Collection[str]) -> set[str]:
    """Those of the providers that may work: active (benchmarked, staked, not jailed), in no dispute, and of an
    environment class that counts."""
    return repository.working_among(session, addresses, settings.accepted_classes)


def providers_in_benchmark(session: Session, addresses: Collection[str], now: datetime) -> set[str]:
    """Those of the providers that have to show their hardware now, or are about it: they get no new work meanwhile."""
    return repository.proving_among(session, addresses, now)


def ineligible_providers(session: Session, network: NetworkParameters, addresses: Collection[str]) -> set[str]:
    """Those of the providers that are jailed, or whose stake does not suffice for their tier any more."""
    return {found.address for found in repository.among(session, addresses) if _is_barred(session, network, found)}


def _is_barred(session: Session, network: NetworkParameters, provider: Provider) -> bool:
    if provider.status in (ProviderStatus.ACTIVE, ProviderStatus.JAILED):
        return provider.status == ProviderStatus.JAILED
    tier_id = provider.tier_id
    return tier_id is None or repository.stake_of(session, provider.address) < minimum_stake(network, provider)


def standing_prices(session: Session, addresses: Collection[str]) -> dict[str, tuple[int, datetime]]:
    """Open asks of these providers: wei per GPU-hour, net of the fee, and when each was placed."""
    return repository.standing_prices(session, addresses)


def reward_work(session: Session, first_epoch: int, last_epoch: int) -> list[Work]:
    """What each node did in these epochs that is rewarded; it never changes once they are judged."""
    return record_repository.work_between(session, first_epoch, last_epoch)


def first_known_epoch(session: Session) -> int | None:
    """The first epoch of which anything is known of any node."""
    return record_repository.first_epoch(session)


def judged_epochs(session: Session) -> tuple[int, int] | None:
    """(the first epoch of which anything is known, the newest whose uptime is judged); None before that."""
    first, last = record_repository.first_epoch(session), record_repository.last_judged(session)
    return None if first is None or last is None else (first, last)


def live_verifiers(session: Session, settings: Settings, now: datetime) -> list[VerifierSummary]:
    """Verifiers that may work (:func:`working_among`) and were seen lately, by address."""
    rows = repository.working_verifiers(session, settings.accepted_classes, _seen_since(settings, now))
    return [
        VerifierSummary(row.address, stake.stake_wei, stake.raised_at, row.reliability_bps, row.environment_class)
        for row, stake in rows
    ]


def of_same_owner(session: Session, address: str) -> set[str]:
    """The node and every other one that declares the same owner. A declaration is not proven; none means alone."""
    return {address, *repository.of_same_owner(session, address)}


def count_of_class(session: Session, addresses: Collection[str], environment_class: str) -> int:
    """How many of the addresses are registered with this class, live or not."""
    return sum(found.environment_class == environment_class for found in repository.among(session, addresses))


def verifiers_of_class(
    session: Session, settings: Settings, environment_class: str, besides: str, now: datetime
) -> int:
    """How many live verifiers of a class could judge the work of the node ``besides``; none, if it does not count."""
    accepted, seen_since = settings.accepted_classes, _seen_since(settings, now)
    return repository.count_of_class(session, environment_class, besides, accepted, seen_since)


def note_overruled(
    session: Session, address: str, assigned_at: datetime, at: datetime, *, copied: bool = False
) -> VerifierSanction:
    """Two other verifiers overruled this one, or it ``copied`` a claim: what follows.

    A first case suspends it here; a slash is the caller's.
    """
    record_repository.add(session, address, epoch_of(at.timestamp()), rejected=1)
    verifier = require(session, address, lock=True)
    follows = sanction_for(assigned_at, verifier.warned_at, at, copied=copied)
    if follows is VerifierSanction.SUSPENDED:
        verifier.warned_at = at
        if verifier.status in STAKE_DECIDES:
            advance(session, verifier, ProviderEvent.DEMOTE, reason=OVERRULED)
    return follows


def note_disputed(session: Session, address: str, at: datetime | None) -> None:
    """The market disputes a unit of the provider's since ``at``, or None: no more. Meanwhile it gets no work."""
    require(session, address, lock=True).disputed_at = at


def is_disputed(session: Session, address: str) -> bool:
    """Whether the market disputes a unit of the provider's now."""
    return require(session, address).disputed_at is not None


def use_nonce(session: Session, signer: str, nonce: int, used_for: str) -> bool:
    """Use up the nonce of a signed order or ask; False if the signer has used it before."""
    return repository.use_nonce(session, signer, nonce, used_for)


def new_nonce(signer: str, nonce: int, used_for: str) -> SignerNonce:
    """The row that uses up a nonce, as :func:`use_nonce` writes it, for a caller that inserts it with its own."""
    return SignerNonce(signer=signer, nonce=nonce, used_for=used_for)
