"""Status transitions of providers and verifiers, by stake, jail and release."""

from sqlalchemy.orm import Session

from market.chain.contracts.codec import ChainEvent
from market.domain.lifecycle import PROVIDER, ProviderEvent, ProviderStatus
from market.domain.network import NetworkParameters
from market.platform.db.base import from_unix
from market.platform.db.session import enqueue_after_commit
from market.platform.events.service import CHAIN, MARKET, apply_event, record
from market.providers import repository
from market.providers.models import Provider

STAKE_DECIDES = (ProviderStatus.BENCHMARKED, ProviderStatus.ACTIVE)
"""Statuses between which the stake alone decides."""


def jail(session: Session, address: str, reason: str) -> None:
    """Jail a provider and cancel its ask, unless it is unknown or has exited.

    A jailed provider gets the new ``reason``, which decides the penalties that it avoids.
    """
    provider = repository.lock_provider(session, address)
    if provider is None or provider.status == ProviderStatus.EXITED:
        return
    if provider.status == ProviderStatus.JAILED:
        provider.reason = reason
        return
    advance(session, provider, ProviderEvent.JAIL, reason=reason)
    repository.close_open_ask(session, address, "cancelled")


def on_stake_changed(network: NetworkParameters, session: Session, event: ChainEvent) -> None:
    """Handle final staking events: project the stake; jail, release, promote or demote."""
    address = event.args["provider"]
    stake = repository.lock_stake(session, address)
    match event.name:
        case "Staked":
            stake.stake_wei, stake.raised_at = event.args["total"], from_unix(event.timestamp)
        case "UnstakeRequested":
            stake.stake_wei -= event.args["amount"]
            stake.unbonding_wei = event.args["unbonding"]
        case "Withdrawn":
            stake.unbonding_wei = 0
        case "Slashed":
            from_stake = min(event.args["amount"], stake.stake_wei)
            stake.stake_wei -= from_stake
            stake.unbonding_wei -= event.args["amount"] - from_stake
            data: dict[str, object] = {"tx": event.tx_hash, "amount_wei": str(event.args["amount"])}
            record(session, ("provider", address), "slashed", actor=CHAIN, data=data)
    session.flush()
    provider = repository.lock_provider(session, address)
    if provider is None:
        return
    if event.name == "Jailed" and provider.status != ProviderStatus.JAILED:  # otherwise the reason is known
        jail(session, address, "slashed")
    if event.name == "Released" and provider.status == ProviderStatus.JAILED:
        advance(session, provider, ProviderEvent.RELEASE, reason="released")
        if provider.kind == "verifier":
            advance(session, provider, ProviderEvent.BENCHMARK_PASSED, reason="verifier_registered")
    review_stake(session, network, provider)


def review_stake(session: Session, network: NetworkParameters, provider: Provider) -> None:
    """Promote a benchmarked provider with enough stake; demote an active one without it."""
    if provider.status not in STAKE_DECIDES:
        return
    enough = repository.stake_of(session, provider.address) >= minimum_stake(network, provider)
    if enough and provider.status == ProviderStatus.BENCHMARKED:
        advance(session, provider, ProviderEvent.STAKE_SUFFICIENT, reason="stake_sufficient")
        enqueue_after_commit(session, "auctions.clear")
    elif not enough and provider.status == ProviderStatus.ACTIVE:
        advance(session, provider, ProviderEvent.STAKE_INSUFFICIENT, reason="stake_insufficient")


def minimum_stake(network: NetworkParameters, provider: Provider) -> int:
    """Return the minimum stake in wei of a verifier or of a provider's tier."""
    if provider.kind == "verifier":
        return network.verifier_minimum_stake_wei
    return next(tier.minimum_stake_wei for tier in network.tiers if tier.id == provider.tier_id)


def advance(session: Session, provider: Provider, event: ProviderEvent, *, reason: str, actor: str = MARKET) -> None:
    """Apply an event to a locked provider."""
    apply_event(session, provider, PROVIDER, event, subject=("provider", provider.address), reason=reason, actor=actor)
