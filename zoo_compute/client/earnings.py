"""Claims of pay and rewards: the market lists them, the account's transaction proves them."""

from collections.abc import Sequence
from itertools import islice

from zoo_compute.base.errors import Mismatch
from zoo_compute.base.models import Claim, Network, RewardProof, Rewards
from zoo_compute.chain.transactions import Chain
from zoo_compute.chain.wallet import Wallet
from zoo_compute.client.http import Connection
from zoo_protocol.payments.reward_tree import proves

_MAX_BATCHES = 100  # in a transaction: about 1.5 million gas


def list_claims(connection: Connection, *, claimed: bool = False) -> list[Claim]:
    """Return the account's unclaimed (or ``claimed``) pay, oldest batch first."""
    pages = connection.pages("/v1/claims", "items", "next_after", {"claimed": str(claimed).lower()})
    return [Claim.model_validate(item) for item in pages]


def claimable(claims: Sequence[Claim], chain: Chain) -> list[Claim]:
    """Return the claims that the contract pays now, at most ``_MAX_BATCHES``.

    Their challenge period is over by the chain's clock. The contract reverts the whole call for a claim without pay:
    one already claimed (the market lists it until finality), or one with all pay held or forfeited.
    """
    now = chain.time()
    over = (claim for claim in claims if claim.claimable_at.timestamp() <= now)
    due = (claim for claim in over if not chain.has_claimed(claim.batch_id))
    return list(islice((claim for claim in due if claim.amount_wei > chain.withheld(claim.batch_id)), _MAX_BATCHES))


def claim_pay(
    claims: Sequence[Claim], network: Network, wallet: Wallet, to: str | None
) -> tuple[list[Claim], str | None]:
    """Claim all claimable pay; return claims and transaction's hash (None: no claim).

    Args:
        to: recipient; None: the wallet's address.

    Raises:
        ZooError: the contract refuses the claim.
        Unreachable: the chain does not answer.
    """
    if not claims:
        return [], None
    chain = Chain(network.rpc_url, network.contracts, wallet)
    due = claimable(claims, chain)
    return due, chain.claim(due, to) if due else None


def list_rewards(connection: Connection) -> Rewards:
    """Return the rewards of the connection's account, newest first."""
    found = Rewards.model_validate(connection.get("/v1/rewards"))
    earnings, after = list(found.earnings), found.next_after
    while after is not None:
        page = Rewards.model_validate(connection.get("/v1/rewards", {"after": str(after)}))
        earnings += page.earnings
        after = page.next_after
    return found.model_copy(update={"earnings": earnings, "next_after": None})


def claim_rewards(
    rewards: Rewards, network: Network, wallet: Wallet, to: str | None
) -> tuple[RewardProof | None, str | None]:
    """Claim all claimable rewards; return proof and transaction's hash (None: no claim).

    Args:
        to: recipient; None: the wallet's address.

    Raises:
        Mismatch: the market's proof does not lead to its root; nothing was sent.
        ZooError: the contract refuses the claim.
        Unreachable: the chain does not answer.
    """
    due = rewards.claimable
    if due is None:
        return None, None
    if not proves(due.root, wallet.address, due.cumulative_wei, due.proof):
        raise Mismatch("reward-proof-mismatch", f"the proof of {due.cumulative_wei} wei does not lead to {due.root}")
    chain = Chain(network.rpc_url, network.contracts, wallet)
    if chain.time() < due.claimable_at.timestamp() or chain.rewards_claimed() >= due.cumulative_wei:
        return None, None  # the chain's clock is behind, or a claim is not final yet
    return due, chain.claim_rewards(due.cumulative_wei, due.proof, to)
