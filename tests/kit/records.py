"""Rows of a market: builders with defaults, and reads and changes in one transaction each."""

import secrets
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from market.accounts.models import Account
from market.domain.lifecycle import ProviderStatus
from market.domain.network import ZEN
from market.jobs.models import Job
from market.platform.db.base import from_unix, utc_now
from market.platform.db.session import Database
from market.providers.models import AskRow, Provider, Stake
from market.training.units.models import Unit
from zoo_protocol.hashing import sha256, to_hex
from zoo_protocol.messages import JobOrder, struct_hash

ENVIRONMENT = to_hex(sha256(b"environment"))


class Records:
    """A database whose rows a test reads and changes."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def call(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Any:
        """Call ``function`` with the session of a transaction and these arguments."""
        with self.database.transaction() as session:
            return function(session, *arguments, **named)

    def all(self, query: Any) -> list[Any]:
        return self.call(lambda session: list(session.scalars(query)))

    def tuples(self, query: Any) -> list[Any]:
        return self.call(lambda session: session.execute(query).tuples().all())

    def one(self, query: Any) -> Any:
        return self.call(lambda session: session.scalars(query).one())

    def scalar(self, query: Any) -> Any:
        return self.call(lambda session: session.scalar(query))

    def get(self, model: Any, key: Any) -> Any:
        return self.call(lambda session: session.get_one(model, key))

    def execute(self, *statements: Any) -> None:
        with self.database.transaction() as session:
            for statement in statements:
                session.execute(statement)

    def change(self, model: Any, key: Any, **values: Any) -> None:
        with self.database.transaction() as session:
            row = session.get_one(model, key)
            for name, value in values.items():
                setattr(row, name, value)

    def add(self, *rows: Any) -> None:
        """Insert the rows in this order, so that each may refer to those before it."""
        with self.database.transaction() as session:
            for row in rows:
                session.add(row)
                session.flush()


def account(address: str) -> Account:
    return Account(address=address)


def provider(address: str, **values: Any) -> Provider:
    defaults = {
        "kind": "provider",
        "name": "node",
        "region": "eu",
        "hardware": {},
        "environment_class": ENVIRONMENT,
        "status": ProviderStatus.ACTIVE,
        "tier_id": 1,
    }
    return Provider(address=address, **defaults | values)


def verifier(address: str, **values: Any) -> Provider:
    return provider(address, **{"kind": "verifier", "name": "verifier", "tier_id": None} | values)


def stake(address: str, stake_wei: int) -> Stake:
    return Stake(address=address, stake_wei=stake_wei, unbonding_wei=0)


def ask(address: str, price: int = ZEN) -> AskRow:
    return AskRow(
        id=to_hex(secrets.token_bytes(32)),
        provider=address,
        tier_id=1,
        gpus=4,
        min_price_wei=price,
        valid_until=utc_now() + timedelta(hours=1),
        nonce=1,
        signature="0x",
        status="open",
    )


def job(order: JobOrder, **values: Any) -> Job:
    """Build the row of a submitted job with the terms of ``order``."""
    defaults = {
        "id": struct_hash(order),
        "payer": order.payer,
        "status": "submitted",
        "request": {},
        "spec": {},
        "spec_hash": order.specHash,
        "spec_cid": "spec",
        "tier_id": order.tier,
        "segments": order.segments,
        "sampling_bps": order.samplingBps,
        "checkpoint_interval": 1,
        "redundancy": 3,
        "requirements": {},
        "units_ordered": order.units,
        "unit_weight_us": order.unitWeight,
        "budget_wei": order.budget,
        "max_price_wei": order.maxPrice,
        "wait_until": from_unix(order.waitUntil),
        "nonce": order.nonce,
        "order_signature": "0x",
    }
    return Job(**defaults | values)


def unit(job_id: str, round_: int, slot: int, address: str, **values: Any) -> Unit:
    return Unit(
        job_id=job_id, round=round_, slot=slot, provider=address, **{"start_checkpoint_cid": "checkpoint"} | values
    )
