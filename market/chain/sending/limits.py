"""What a hot key of the market's may pay or burn: an intent above a limit waits for an operator, or for a day to pass.

A day is the last 24 hours, of each account by itself: bonds for disputes must not hold slashes up. The limits bound
what a fault in the market, or somebody who can queue intents, can do with the key; against a stolen key only the
contracts' own rules help.
"""

from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy.orm import Session

from market.chain import repository as chain_repository
from market.chain.models import TxIntent
from market.domain.network import ZEN
from market.platform.db.base import utc_now
from market.settings import Settings

DAY = timedelta(days=1)


_ETHER = 10**18


@dataclass(frozen=True, slots=True)
class Limits:
    """In wei: ZEN that one transaction, or those of a day, pay out or may burn; the chain's coin for a day's gas."""

    per_transaction: int
    per_day: int
    gas_per_day: int

    @classmethod
    def of(cls, settings: Settings) -> "Limits":
        """The limits that the settings name in whole coins."""
        return cls(
            per_transaction=settings.max_zen_per_transaction * ZEN,
            per_day=settings.max_zen_per_day * ZEN,
            gas_per_day=settings.max_ether_per_day * _ETHER,
        )

    def on_amount(self, session: Session, intent: TxIntent) -> tuple[str, str] | None:
        """(reason, sentence) if the intent moves more ZEN than it may now; None if it may be sent."""
        if intent.amount > self.per_transaction:
            return (
                "limit_per_transaction",
                f"it moves {intent.amount} wei of ZEN, more than {self.per_transaction}. "
                "Check it; if it is right, raise ZOO_MAX_ZEN_PER_TRANSACTION.",
            )
        if intent.amount == 0:
            return None
        moved = chain_repository.amount_signed_since(session, intent.account, utc_now() - DAY)
        if moved + intent.amount > self.per_day:
            return (
                "limit_per_day",
                f"it moves {intent.amount} wei of ZEN, after {moved} in 24 hours, of at most {self.per_day}. "
                "It is sent when these are over; if it cannot wait, raise ZOO_MAX_ZEN_PER_DAY.",
            )
        return None

    def on_gas(self, session: Session, signer: str, cost: int) -> tuple[str, str] | None:
        """The same for a transaction whose gas costs at most ``cost`` wei."""
        spent = chain_repository.gas_signed_since(session, signer, utc_now() - DAY)
        if spent + cost <= self.gas_per_day:
            return None
        return (
            "limit_gas_per_day",
            f"its gas may cost {cost} wei, after at most {spent} in 24 hours, of at most {self.gas_per_day}. "
            "It is sent when these are over; if it cannot wait, raise ZOO_MAX_ETHER_PER_DAY.",
        )
