"""Signed asks of providers."""

from datetime import timedelta

from sqlalchemy.orm import Session

from market.domain.lifecycle import ProviderStatus
from market.domain.network import NetworkParameters, Tier
from market.platform.db.base import from_unix, utc_now
from market.platform.db.session import enqueue_after_commit
from market.platform.http.errors import InvalidSignature, NonceReplayed, UnknownTier
from market.providers import repository, service
from market.providers.errors import AskNotFound, InvalidAsk, ProviderJailed, TierNotEarned, VerifierNeedsNone
from market.providers.models import AskRow
from zoo_protocol.messages import Ask, Domain, recover, struct_hash, typed_data

LONGEST = timedelta(days=90)


def place_ask(session: Session, network: NetworkParameters, domain: Domain, ask: Ask, signature: str) -> AskRow:
    """Put a signed ask into the order book; it replaces the provider's earlier one.

    It is open for any stake, and takes part in clearings while its provider is active.

    Raises:
        InvalidSignature: ``ask.provider`` did not sign exactly this ask for this deployment.
        NotRegistered, VerifierNeedsNone, ProviderJailed, TierNotEarned: the provider may not offer this.
        InvalidAsk: a field is out of range.
        NonceReplayed: the ask, or its nonce, was used before.
    """
    now = utc_now()
    _check_signature(domain, ask, signature)
    tier = _tier(network, ask.tier)
    if ask.gpus != tier.gpus:
        raise InvalidAsk(
            f"ask.gpus is {ask.gpus}; expected {tier.gpus} for tier {tier.name}",
            field="ask.gpus",
            remedy=f"Sign the ask with gpus = {tier.gpus}.",
        )
    if not now.timestamp() < ask.validUntil <= (now + LONGEST).timestamp():
        raise InvalidAsk(
            f"ask.validUntil is {ask.validUntil}; expected a time within the next {LONGEST.days} days",
            field="ask.validUntil",
            remedy="Sign the ask with Unix seconds of a time in that range.",
        )
    provider = service.require(session, ask.provider, lock=True)
    if provider.kind == "verifier":
        raise VerifierNeedsNone("a verifier places no asks")
    if provider.status == ProviderStatus.JAILED:
        raise ProviderJailed(f"{provider.address} is jailed")
    if provider.tier_id != ask.tier:
        raise TierNotEarned(f"{provider.address} has not earned tier {tier.name}", field="ask.tier")
    ask_id = struct_hash(ask)
    if not service.use_nonce(session, ask.provider, ask.nonce, ask_id):
        raise NonceReplayed(f"{ask.provider} has used nonce {ask.nonce} before", field="ask.nonce")
    repository.close_open_ask(session, ask.provider, "replaced")
    row = AskRow(
        id=ask_id,
        provider=ask.provider,
        tier_id=ask.tier,
        gpus=ask.gpus,
        min_price_wei=ask.minPrice,
        valid_until=from_unix(ask.validUntil),
        nonce=ask.nonce,
        signature=signature,
        status="open",
    )
    session.add(row)
    session.flush()
    enqueue_after_commit(session, "auctions.clear")
    return row


def cancel_ask(session: Session, address: str, ask_id: str) -> None:
    """Remove an ask from the order book. Jobs that it won continue.

    Raises:
        AskNotFound: the provider has no open ask with that id.
    """
    if not repository.cancel_ask(session, address, ask_id):
        raise AskNotFound(f"no open ask {ask_id}", field="ask_id")


def _check_signature(domain: Domain, ask: Ask, signature: str) -> None:
    try:
        signer = recover(typed_data(domain, ask), signature)
    except ValueError as error:
        raise InvalidSignature(str(error), field="signature") from error
    if signer != ask.provider:
        raise InvalidSignature(f"the signature is not that of {ask.provider}", field="signature")


def _tier(network: NetworkParameters, tier_id: int) -> Tier:
    for tier in network.tiers:
        if tier.id == tier_id:
            return tier
    raise UnknownTier(f"no tier {tier_id}; expected one of {[tier.id for tier in network.tiers]}", field="ask.tier")
