"""Facts that only the chain has, read after responses, so that no page waits for the chain.

The sign-in page of a devnet is the exception: it reads the accounts of the node at most every 15 seconds. After a
failure it asks again after five.
"""

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from eth_utils.address import to_checksum_address
from sqlalchemy import select

from market.chain.contracts.bindings import Omissions
from market.chain.errors import ChainError
from market.chain.models import TxAttempt
from market.chain.rpc.transport import Endpoint
from market.chain.views import ChainViews
from market.console.sessions.roles import read_roles
from market.platform.db.base import utc_now
from market.platform.http.services import Services
from market.settings import split_list

_EVERY_SECONDS = 15.0
_RETRY_SECONDS = 5.0
_RPC_SECONDS = 4.0
_SIGNERS_OF = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class ChainFacts:
    """Chain as of ``read_at``. ``gas_wei``: native token of each address that signed lately."""

    head: int
    bond_wei: int
    gas_wei: dict[str, int]
    read_at: datetime


class ChainFactsReader:
    """Last facts of a process. Thread-safe."""

    def __init__(self) -> None:
        self.latest: ChainFacts | None = None
        self._read, self._asking = threading.Lock(), threading.Lock()
        self._next = 0.0
        self._accounts: tuple[float, Mapping[str, frozenset[str]]] = (0.0, {})

    def refresh(self, services: Services) -> None:
        """Read the chain, unless it was read lately. A failure keeps the last facts."""
        if time.monotonic() < self._next or not self._read.acquire(blocking=False):
            return
        try:
            self._next = time.monotonic() + _EVERY_SECONDS
            self.latest = _facts(services)
        except ChainError:
            pass
        finally:
            self._read.release()

    def devnet_accounts(self, services: Services) -> Mapping[str, frozenset[str]]:
        """Return the accounts of the devnet's node with their roles, read lately.

        Raises:
            ChainError: the node does not answer. Requests of the next seconds get the last accounts without a wait.
        """
        with self._asking:
            until, found = self._accounts
            if time.monotonic() < until:
                return found
            self._accounts = time.monotonic() + _RETRY_SECONDS, found
            addresses = [str(to_checksum_address(one)) for one in _node(services).ask("eth_accounts")]
            found = read_roles(services.part(ChainViews), addresses)
            self._accounts = time.monotonic() + _EVERY_SECONDS, found
            return found


def _node(services: Services) -> Endpoint:
    return Endpoint(split_list(services.settings.rpc_url)[0], _RPC_SECONDS)


def _facts(services: Services) -> ChainFacts:
    views = services.part(ChainViews)
    with services.database.reading() as session:
        recent = TxAttempt.created_at > utc_now() - _SIGNERS_OF
        signers = list(session.scalars(select(TxAttempt.signer).where(recent).distinct()))
    node = _node(services)
    gas = {signer: int(node.ask("eth_getBalance", signer, "latest"), 16) for signer in signers}
    (bond,) = views.many([Omissions.bond()], "latest")
    return ChainFacts(views.head_number(), bond, gas, utc_now())
