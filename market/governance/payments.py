"""Payments of the treasury, by final events."""

from sqlalchemy.orm import Session

from market.chain.service import final_events_named
from market.governance.schemas import PaymentView
from market.platform.db.base import from_unix
from zoo_protocol.acts.table import FUNDS

_GRANTS = (2, "community grants")


def payments(session: Session) -> list[PaymentView]:
    """Return all payments of the treasury, newest first. Grants have their number."""
    names = dict((*FUNDS, _GRANTS))
    granted = {
        (event.tx_hash, event.args["recipient"], event.args["amount"]): event.args["grantId"]
        for event in final_events_named(session, "Treasury", "Granted")
    }
    return [
        PaymentView(
            fund=names[event.args["destination"]],
            recipient=event.args["to"],
            amount_wei=event.args["amount"],
            purpose=event.args["purpose"],
            grant_id=granted.get((event.tx_hash, event.args["to"], event.args["amount"])),
            at=from_unix(event.timestamp),
            tx_hash=event.tx_hash,
        )
        for event in reversed(final_events_named(session, "Treasury", "Spent"))
    ]
