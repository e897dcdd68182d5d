"""Claims of rewards for uptime, bandwidth and verification."""

from zoo_compute.base.errors import Mismatch
from zoo_compute.base.models import Network, RewardProof, Rewards
from zoo_compute.chain.transactions import Chain
from zoo_compute.chain.wallet import Wallet
from zoo_compute.client.http import Connection
from zoo_protocol.payments.reward_tree import proves


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
