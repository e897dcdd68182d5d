"""A provider's pay: listed by the market, claimed by proof in a transaction of the provider's own."""

from collections.abc import Sequence
from itertools import islice

from zoo_compute.base.models import Claim, Network
from zoo_compute.chain.transactions import Chain
from zoo_compute.chain.wallet import Wallet
from zoo_compute.client.http import Connection

_MOST_BATCHES = 100  # in a transaction: about 1.5 million gas


def list_claims(connection: Connection, *, claimed: bool = False) -> list[Claim]:
    """What the connection's account earned in settled batches, the oldest first.

    Args:
        claimed: what it took already, instead of what it did not.
    """
    found: list[Claim] = []
    after = 0
    while True:
        page = connection.get("/v1/claims", {"claimed": str(claimed).lower(), "after": str(after)})
        found += [Claim.model_validate(item) for item in page["items"]]
        if page["next_after"] is None:
            return found
        after = page["next_after"]


def claimable(claims: Sequence[Claim], chain: Chain) -> list[Claim]:
    """The claims that the contract pays now, as many as one call may take.

    Their challenge period is over by the chain's clock. One whose pay is all withheld by disputes, or was struck, would
    have the contract refuse the whole call; so would one that was taken already, which the market lists until the block
    of that is final.
    """
    now = chain.time()
    over = (claim for claim in claims if claim.claimable_at.timestamp() <= now)
    due = (claim for claim in over if not chain.has_claimed(claim.batch_id))
    return list(islice((claim for claim in due if claim.amount_wei > chain.withheld(claim.batch_id)), _MOST_BATCHES))


def take(claims: Sequence[Claim], network: Network, wallet: Wallet, to: str | None) -> tuple[list[Claim], str | None]:
    """Claim what can be claimed now; which claims that were, and the transaction's hash (None: nothing was due).

    Args:
        to: who receives it (default: the wallet's own address).

    Raises:
        ZooError: the contract refuses the claim.
        Unreachable: the chain does not answer.
    """
    if not claims:
        return [], None
    chain = Chain(network.rpc_url, network.contracts, wallet)
    due = claimable(claims, chain)
    return due, chain.claim(due, to) if due else None
