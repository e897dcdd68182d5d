"""What services read from the contracts. Every view takes a block (number, hash or tag); the latest by default."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from market.chain.contracts.bindings import Attestations, JobEscrow, ProviderStaking, Rewards, Treasury, ZenToken
from market.chain.contracts.codec import Deployment, Result, View, decode_result, encode_call
from market.chain.rpc.client import BlockTag, ChainClient
from market.domain.network import NETWORKS
from market.settings import Settings

_MOST_PAYERS = 10_000  # whose funds are remembered


class JobState(IntEnum):
    """State of a job in the escrow contract."""

    NONE = 0
    OPEN = 1
    SETTLED = 2
    REFUNDED = 3


@dataclass(frozen=True, slots=True)
class OnChainJob:
    """A job as the escrow holds it. Times in Unix seconds, weights in reference GPU-microseconds."""

    payer: str
    escrowed_wei: int
    max_price_wei: int
    unit_weight_us: int
    units_left: int
    next_round: int
    settle_by: int
    fee_bps: int
    state: JobState


@dataclass(frozen=True, slots=True)
class Funds:
    """What a payer's next deposit depends on: its ZEN in wei, and the nonce that its next permit must carry."""

    balance_wei: int
    permit_nonce: int


@dataclass(frozen=True, slots=True)
class TreasuryShare:
    """One destination of the treasury's money."""

    destination: str
    share_bps: int
    available_wei: int
    spent_wei: int


@dataclass(frozen=True, slots=True)
class TreasuryState:
    """The treasury at one block. ``received_wei``: all that ever arrived."""

    block: int
    balance_wei: int
    received_wei: int
    shares: tuple[TreasuryShare, ...]


@dataclass(frozen=True, slots=True)
class RewardsState:
    """The rewards contract at one block. Amounts in wei, times in Unix seconds.

    ``total_wei``: everything posted, ``funded_wei``: everything that ever arrived. ``root`` is the one in force.
    """

    root: str
    total_wei: int
    next_post_at: int
    is_pending: bool
    funded_wei: int
    base_bound_wei: int
    apy_bps: int
    time: int


class ChainViews:
    """Typed reads of one deployment. Raises ``ChainError`` where the node gives no good answer."""

    def __init__(self, client: ChainClient, deployment: Deployment) -> None:
        self.client = client
        self.deployment = deployment
        self._funds: dict[str, tuple[float, Funds]] = {}

    @classmethod
    def connect(cls, settings: Settings, deployment: Deployment) -> "ChainViews":
        """Views over the settings' node. Nothing is asked yet."""
        client = ChainClient(settings.rpc_url, deployment.chain_id, confirmations=settings.confirmations)
        return cls(client, deployment)

    def head_number(self) -> int:
        """Number of the latest block."""
        return self.client.head().number

    def head_timestamp(self) -> int:
        """Unix time of the latest block."""
        return self.client.head().timestamp

    def block_hash(self, number: int) -> str | None:
        """Hash of the block of that number; None where there is none yet."""
        found = self.client.block(number)
        return None if found is None else found.hash

    def balance_of(self, address: str, block: BlockTag = "latest") -> int:
        """ZEN of an address, in wei."""
        return self._view(ZenToken.balanceOf(address), block)

    def total_supply(self, block: BlockTag = "latest") -> int:
        """All ZEN in existence, in wei."""
        return self._view(ZenToken.totalSupply(), block)

    def funds(self, address: str, max_age_seconds: float = 0.0) -> Funds:
        """Balance and permit nonce, read in one request; or as they were read at most so long ago."""
        known = self._funds.get(address)
        now = time.monotonic()
        if known is not None and now - known[0] < max_age_seconds:
            return known[1]
        balance, nonce = self.many([ZenToken.balanceOf(address), ZenToken.nonces(address)], "latest")
        found = Funds(balance, nonce)
        if len(self._funds) >= _MOST_PAYERS:
            self._funds.clear()
        self._funds[address] = (now, found)
        return found

    def job(self, job_id: str, block: BlockTag = "latest") -> OnChainJob | None:
        """The job in escrow; None if it was never opened."""
        found = self._view(JobEscrow.jobs(job_id), block)
        state = JobState(found["state"])
        if state is JobState.NONE:
            return None
        return OnChainJob(
            payer=found["payer"],
            escrowed_wei=found["escrowed"],
            max_price_wei=found["maxPrice"],
            unit_weight_us=found["unitWeight"],
            units_left=found["unitsLeft"],
            next_round=found["nextRound"],
            settle_by=found["settleBy"],
            fee_bps=found["feeBps"],
            state=state,
        )

    def stake_of(self, address: str, block: BlockTag = "latest") -> int:
        """Stake that counts towards a tier, in wei."""
        return self._view(ProviderStaking.stakeOf(address), block)

    def at_risk(self, address: str, block: BlockTag = "latest") -> int:
        """Stake and everything not yet withdrawn, in wei."""
        return self._view(ProviderStaking.atRisk(address), block)

    def is_jailed(self, address: str, block: BlockTag = "latest") -> bool:
        """Whether the address is barred from work."""
        return self._view(ProviderStaking.isJailed(address), block)

    def qualifies(self, address: str, tier: int, block: BlockTag = "latest") -> bool:
        """Whether the address is not jailed and has the tier's minimum stake (tier 0: verifier)."""
        return self._view(ProviderStaking.qualifies(address, tier), block)

    def accepts_measurement(self, measurement: str) -> bool:
        """Whether environments of this software can be attested."""
        return self._view(Attestations.isAccepted(measurement), "latest")

    def all_qualify(self, addresses: Sequence[str], tier: int = 0) -> list[bool]:
        """:meth:`qualifies` of each of these addresses, at the latest block."""
        return self.many([ProviderStaking.qualifies(address, tier) for address in addresses], "latest")

    def treasury(self) -> TreasuryState:
        """The treasury and its destinations, all at the latest block."""
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
        """What bounds the next epoch of rewards, all at the latest block."""
        head = self.client.head()
        current, pending = self._view(Rewards.currentEpoch(), head.hash), self._view(Rewards.pendingEpoch(), head.hash)
        numbers: list[View[int]] = [Rewards.minEpoch(), Rewards.funded(), Rewards.baseBound(), Rewards.apyBps()]
        least, funded, bound, apy_bps = self.many(numbers, head.hash)
        return RewardsState(
            root=str(current["root"]),
            total_wei=current["total"],
            next_post_at=current["postedAt"] + least,
            is_pending=pending["epoch"]["number"] != 0,
            funded_wei=funded,
            base_bound_wei=bound,
            apy_bps=apy_bps,
            time=head.timestamp,
        )

    def many(self, views: Sequence[View[Result]], block: BlockTag) -> list[Result]:
        """Results of several views at one block, asked for at once."""
        asked = [(self.deployment.address(view.contract), _data(view)) for view in views]
        results = self.client.call_many(asked, block)
        return [decode_result(view.contract, view.function, data) for view, data in zip(views, results, strict=True)]

    def _view(self, view: View[Result], block: BlockTag) -> Result:
        data = self.client.call(self.deployment.address(view.contract), _data(view), block=block)
        result: Result = decode_result(view.contract, view.function, data)
        return result


def _data(view: View[Result]) -> bytes:
    return encode_call(view.contract, view.function, view.arguments)
