"""Typed reads of the contracts at a block (number, hash or tag); default: the latest."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from market.chain.contracts.bindings import Attestations, JobEscrow, ProviderStaking, Rewards, Treasury, ZenToken
from market.chain.contracts.codec import Deployment, Result, View, decode_result, encode_call
from market.chain.rpc.client import BlockTag, ChainClient
from market.domain.network import NETWORKS
from market.settings import Settings

_REQUEST_SECONDS, _TASK_SECONDS = 4.0, 10.0  # time limits of a read
_MAX_PAYERS = 10_000  # entries of the cache of funds


class JobState(IntEnum):
    """State of a job in the escrow contract."""

    NONE = 0
    OPEN = 1
    SETTLED = 2
    REFUNDED = 3


@dataclass(frozen=True, slots=True)
class Funds:
    """Free balance of a payer in the escrow, and all that its orders drew from it so far."""

    free_wei: int
    drawn_wei: int

    @property
    def covered_wei(self) -> int:
        """Return the deposits minus the withdrawals, which bound the budgets of all orders."""
        return self.free_wei + self.drawn_wei


@dataclass(frozen=True, slots=True)
class TreasuryShare:
    """Destination of the treasury's funds."""

    destination: str
    share_bps: int
    available_wei: int
    spent_wei: int


@dataclass(frozen=True, slots=True)
class TreasuryState:
    """Treasury at one block. ``received_wei`` is cumulative."""

    block: int
    balance_wei: int
    received_wei: int
    shares: tuple[TreasuryShare, ...]


@dataclass(frozen=True, slots=True)
class RewardsState:
    """Rewards contract at one block. Times in Unix seconds.

    ``total_wei`` (posted) is cumulative. ``post_bound_wei`` bounds all rewards of the next post. ``root`` is the
    current one.
    """

    root: str
    total_wei: int
    next_post_at: int
    is_pending: bool
    post_bound_wei: int
    base_bound_wei: int
    apy_bps: int
    time: int


class ChainViews:
    """Typed reads of one deployment. All raise ``ChainError`` if the node fails."""

    def __init__(self, client: ChainClient, deployment: Deployment) -> None:
        self.client = client
        self.deployment = deployment
        self._funds: dict[str, tuple[float, Funds]] = {}

    @classmethod
    def connect(cls, settings: Settings, deployment: Deployment, *, for_requests: bool = False) -> "ChainViews":
        """Return views of the node, without a request. ``for_requests``: reads fail fast."""
        client = ChainClient(
            settings.rpc_url,
            deployment.chain_id,
            confirmations=settings.confirmations,
            timeout_seconds=_REQUEST_SECONDS if for_requests else _TASK_SECONDS,
            fails_fast=for_requests,
        )
        return cls(client, deployment)

    def head_number(self) -> int:
        return self.client.head().number

    def head_timestamp(self) -> int:
        return self.client.head().timestamp

    def block_hash(self, number: int) -> str | None:
        found = self.client.block(number)
        return None if found is None else found.hash

    def balance_of(self, address: str, block: BlockTag = "latest") -> int:
        return self._view(ZenToken.balanceOf(address), block)

    def total_supply(self, block: BlockTag = "latest") -> int:
        return self._view(ZenToken.totalSupply(), block)

    def funds(self, address: str, max_age_seconds: float = 0.0) -> Funds:
        """Return the payer's balance in the escrow, possibly up to ``max_age_seconds`` old."""
        known = self._funds.get(address)
        now = time.monotonic()
        if known is not None and now - known[0] < max_age_seconds:
            return known[1]
        balance = self._view(JobEscrow.balances(address), "latest")
        found = Funds(balance["free"], balance["drawn"])
        if len(self._funds) >= _MAX_PAYERS:
            self._funds.clear()
        self._funds[address] = (now, found)
        return found

    def wallet(self, address: str) -> tuple[int, int]:
        """Return the ZEN of an address, and the nonce of its next permit."""
        balance, nonce = self.many([ZenToken.balanceOf(address), ZenToken.nonces(address)], "latest")
        return balance, nonce

    def stake_of(self, address: str, block: BlockTag = "latest") -> int:
        return self._view(ProviderStaking.stakeOf(address), block)

    def at_risk(self, address: str, block: BlockTag = "latest") -> int:
        """Return the slashable balance in wei: stake plus unbonding."""
        return self._view(ProviderStaking.atRisk(address), block)

    def is_jailed(self, address: str, block: BlockTag = "latest") -> bool:
        return self._view(ProviderStaking.isJailed(address), block)

    def qualifies(self, address: str, tier: int, block: BlockTag = "latest") -> bool:
        """Return True if the address is not jailed and has the minimum stake (tier 0: verifier)."""
        return self._view(ProviderStaking.qualifies(address, tier), block)

    def accepts_measurement(self, measurement: str) -> bool:
        """Return True if attestations of this software are accepted."""
        return self._view(Attestations.isAccepted(measurement), "latest")

    def all_qualify(self, addresses: Sequence[str], tier: int = 0) -> list[bool]:
        """Return :meth:`qualifies` of each address, at the latest block."""
        return self.many([ProviderStaking.qualifies(address, tier) for address in addresses], "latest")

    def treasury(self) -> TreasuryState:
        """Return the treasury and its destinations at the latest block."""
        block = self.head_number()
        shares = []
        for index, (destination, share_bps) in enumerate(NETWORKS[self.deployment.network].treasury_split_bps):
            available = self._view(Treasury.available(index), block)
            spent = self._view(Treasury.spent(index), block)
            shares.append(TreasuryShare(destination, share_bps, available, spent))
        return TreasuryState(
            block=block,
            balance_wei=self.balance_of(self.deployment.address("Treasury"), block),
            received_wei=self._view(Treasury.received(), block),
            shares=tuple(shares),
        )

    def rewards(self) -> RewardsState:
        """Return the bounds of the next epoch of rewards at the latest block."""
        head = self.client.head()
        current, pending = self._view(Rewards.currentEpoch(), head.hash), self._view(Rewards.pendingEpoch(), head.hash)
        numbers: list[View[int]] = [Rewards.minEpoch(), Rewards.postBound(), Rewards.baseBound(), Rewards.apyBps()]
        least, post_bound, base_bound, apy_bps = self.many(numbers, head.hash)
        return RewardsState(
            root=str(current["root"]),
            total_wei=current["total"],
            next_post_at=current["postedAt"] + least,
            is_pending=pending["epoch"]["number"] != 0,
            post_bound_wei=post_bound,
            base_bound_wei=base_bound,
            apy_bps=apy_bps,
            time=head.timestamp,
        )

    def many(self, views: Sequence[View[Result]], block: BlockTag) -> list[Result]:
        """Return the results of several views at one block, from batched requests."""
        asked = [(self.deployment.address(view.contract), _data(view)) for view in views]
        results = self.client.call_many(asked, block)
        return [decode_result(view.contract, view.function, data) for view, data in zip(views, results, strict=True)]

    def _view(self, view: View[Result], block: BlockTag) -> Result:
        data = self.client.call(self.deployment.address(view.contract), _data(view), block=block)
        result: Result = decode_result(view.contract, view.function, data)
        return result


def _data(view: View[Result]) -> bytes:
    return encode_call(view.contract, view.function, view.arguments)
