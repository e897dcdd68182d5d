"""Payments of the treasury, by final events."""

from sqlalchemy.orm import Session

from market.chain.service import newest_final_events
from market.governance.schemas import PaymentView
from market.platform.db.base import from_unix
from zoo_protocol.acts.table import FUNDS

_GRANTS = (2, "community grants")


def payments(session: Session, limit: int) -> list[PaymentView]:
    """Return the newest payments of the treasury, newest first. Grants have their number."""
    names = dict((*FUNDS, _GRANTS))
    spent = newest_final_events(session, "Treasury", "Spent", limit)
    # A grant's event is the one before its payment, also if one transaction makes several equal grants.
    granted = {
        (event.tx_hash, event.log_index + 1): event.args["grantId"]
        for event in newest_final_events(session, "Treasury", "Granted", limit)
    }
    return [
        PaymentView(
            fund=names[event.args["destination"]],
            recipient=event.args["to"],
            amount_wei=event.args["amount"],
            purpose=event.args["purpose"],
            grant_id=granted.get((event.tx_hash, event.log_index)),
            at=from_unix(event.timestamp),
            tx_hash=event.tx_hash,
        )
        for event in spent
    ]
