"""Spending limits of the market's hot keys. An intent above one waits for operator or day.

A day is the last 24 hours, per account, so that bonds for disputes do not delay slashes. The limits bound the damage of
a bug or of an attacker that can queue intents. Against a stolen key, only the contracts' rules help.
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
    """Limits in wei: ZEN of one transaction and of a day, native token for the gas of a day."""

    per_transaction: int
    per_day: int
    gas_per_day: int

    @classmethod
    def of(cls, settings: Settings) -> "Limits":
        """Return the limits of the settings, which are in whole tokens."""
        return cls(
            per_transaction=settings.max_zen_per_transaction * ZEN,
            per_day=settings.max_zen_per_day * ZEN,
            gas_per_day=settings.max_ether_per_day * _ETHER,
        )

    def on_amount(self, session: Session, intent: TxIntent) -> tuple[str, str] | None:
        """Return (reason, sentence) if the intent exceeds a limit of ZEN; None otherwise."""
        if intent.amount > self.per_transaction:
            return (
                "limit_per_transaction",
                f"it moves {intent.amount} wei of ZEN; expected at most {self.per_transaction}. "
                "Check it, then raise ZOO_MAX_ZEN_PER_TRANSACTION.",
            )
        if intent.amount == 0:
            return None
        moved = chain_repository.amount_signed_since(session, intent.account, utc_now() - DAY)
        if moved + intent.amount > self.per_day:
            return (
                "limit_per_day",
                f"it moves {intent.amount} wei of ZEN, after {moved} in 24 hours, of at most {self.per_day}. "
                "It waits for a later day. To send it now, raise ZOO_MAX_ZEN_PER_DAY.",
            )
        return None

    def on_gas(self, session: Session, signer: str, cost: int) -> tuple[str, str] | None:
        """Return (reason, sentence) if gas of at most ``cost`` wei exceeds the limit, else None."""
        spent = chain_repository.gas_signed_since(session, signer, utc_now() - DAY)
        if spent + cost <= self.gas_per_day:
            return None
        return (
            "limit_gas_per_day",
            f"its gas may cost {cost} wei, after at most {spent} in 24 hours, of at most {self.gas_per_day}. "
            "It waits for a later day. To send it now, raise ZOO_MAX_ETHER_PER_DAY.",
        )
