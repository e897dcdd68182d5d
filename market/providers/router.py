"""Routes of registration, asks and the public list of providers."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Path, Query
from sqlalchemy.orm import Session

from market.accounts.deps import CurrentAccount
from market.accounts.idempotency import IDEMPOTENT_ROUTE, IdempotentRoute
from market.domain.network import NetworkParameters
from market.domain.nodes.uptime import uptime_bps
from market.platform.db.base import utc_now
from market.platform.db.rows import from_row
from market.platform.http.deps import Reads, ServicesDep, Uow
from market.platform.http.errors import InvalidSignature, NonceReplayed, UnknownTier
from market.platform.http.refusals import refusals
from market.platform.http.services import Services
from market.platform.http.types import AddressString, HashString
from market.providers import asks, repository, service
from market.providers.attestation.chain_events import attested_until
from market.providers.errors import (
    AskNotFound,
    EnvironmentNotAccepted,
    InvalidAsk,
    KindFixed,
    NotRegistered,
    ProviderJailed,
    ProviderNotFound,
    TierNotEarned,
    VerifierNeedsNone,
)
from market.providers.models import AskRow, DowntimePenalty, Provider, ProviderEpoch
from market.providers.node_problems import node_problems
from market.providers.record import repository as record_repository
from market.providers.schemas import (
    AskRequest,
    AskView,
    EpochView,
    PenaltyView,
    ProviderPage,
    ProviderView,
    RegistrationRequest,
)
from zoo_protocol.messages import Ask

router = APIRouter(prefix="/v1", tags=["providers"], route_class=IdempotentRoute)
ProviderAddress = Annotated[AddressString, Path(description="The node's wallet.")]
AskId = Annotated[HashString, Path(description="The ask's id: the EIP-712 struct hash.")]


@router.post(
    "/providers",
    status_code=201,
    responses=refusals(KindFixed, EnvironmentNotAccepted),
    dependencies=[IDEMPOTENT_ROUTE],
)
def register_provider(
    body: RegistrationRequest, account: CurrentAccount, services: ServicesDep, session: Uow
) -> ProviderView:
    """Register your wallet as a provider or verifier, or update its registration."""
    service.require_accepted(services.settings, body.environment_class)
    service.register(session, services.network, account.address, body)
    return _provider_views(session, services, [service.get(session, account.address)])[0]


@router.get("/providers")
def list_providers(
    services: ServicesDep,
    session: Reads,
    after: Annotated[AddressString | None, Query(description="Last address of the page before.")] = None,
    limit: Annotated[int, Query(ge=1, le=200, description="Maximum number of items.")] = 50,
) -> ProviderPage:
    """Return all providers and verifiers, by address."""
    found = service.list_page(session, after or "", limit)
    return ProviderPage(
        items=_provider_views(session, services, found),
        next_after=found[-1][0].address if len(found) == limit else None,
    )


@router.get("/providers/{address}", responses=refusals(ProviderNotFound))
def get_provider(address: ProviderAddress, services: ServicesDep, session: Reads) -> ProviderView:
    """Return one provider or verifier."""
    return _provider_views(session, services, [service.get(session, address)])[0]


@router.get("/providers/{address}/epochs", responses=refusals(ProviderNotFound))
def list_epochs(
    address: ProviderAddress,
    session: Reads,
    limit: Annotated[int, Query(ge=1, le=180, description="Maximum number of items.")] = 30,
) -> list[EpochView]:
    """Return a node's newest epochs, the basis of its reliability and rewards."""
    service.get(session, address)
    penalties = {row.epoch: row for row in record_repository.penalties_of(session, address, limit)}
    return [_epoch_view(row, penalties.get(row.epoch)) for row in record_repository.epochs_of(session, address, limit)]


@router.post(
    "/asks",
    status_code=201,
    responses=refusals(
        InvalidSignature,
        InvalidAsk,
        UnknownTier,
        NotRegistered,
        VerifierNeedsNone,
        ProviderJailed,
        TierNotEarned,
        NonceReplayed,
    ),
    dependencies=[IDEMPOTENT_ROUTE],
)
def place_ask(body: AskRequest, account: CurrentAccount, services: ServicesDep, session: Uow) -> AskView:
    """Put your signed ask into the order book. It replaces your earlier one."""
    if body.ask.provider != account.address:
        raise InvalidSignature("ask.provider is not your wallet", field="ask.provider")
    ask = Ask(**body.ask.model_dump(mode="python"))
    row = asks.place_ask(session, services.network, services.domain, ask, body.signature)
    return _ask_view(services.network, row)


@router.get("/asks")
def list_asks(account: CurrentAccount, services: ServicesDep, session: Reads) -> list[AskView]:
    """Return your own asks, newest first. Asks of other providers are sealed."""
    return [_ask_view(services.network, row) for row in repository.asks_of(session, account.address)]


@router.delete("/asks/{ask_id}", status_code=204, responses=refusals(AskNotFound))
def cancel_ask(ask_id: AskId, account: CurrentAccount, session: Uow) -> None:
    """Remove your ask from the order book. Jobs that it won continue."""
    asks.cancel_ask(session, account.address, ask_id)


def tier_name(network: NetworkParameters, tier_id: int | None) -> str | None:
    return next((tier.name for tier in network.tiers if tier.id == tier_id), None)


def _provider_views(session: Session, services: Services, found: Sequence[tuple[Provider, int]]) -> list[ProviderView]:
    until = attested_until(session, services.network, [provider.address for provider, _ in found], utc_now())
    return [_provider_view(services, provider, stake, until.get(provider.address)) for provider, stake in found]


def _provider_view(services: Services, provider: Provider, stake_wei: int, attested: datetime | None) -> ProviderView:
    tier = next((one for one in services.network.tiers if one.id == provider.tier_id), None)
    return from_row(
        ProviderView,
        provider,
        reason=service.reason_of(services.settings, provider),
        tier=None if tier is None else tier.name,
        stake_wei=stake_wei,
        registered_at=provider.created_at,
        attested_until=attested,
        problems=list(node_problems(provider.hardware, tier)),
    )


def _epoch_view(row: ProviderEpoch, penalty: DowntimePenalty | None) -> EpochView:
    return from_row(
        EpochView,
        row,
        uptime_bps=uptime_bps(row.up_minutes, row.counted_minutes),
        penalty=None if penalty is None else from_row(PenaltyView, penalty),
    )


def _ask_view(network: NetworkParameters, ask: AskRow) -> AskView:
    return from_row(AskView, ask, tier=str(tier_name(network, ask.tier_id)), placed_at=ask.created_at)
