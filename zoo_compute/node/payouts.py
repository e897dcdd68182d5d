"""Automatic claims of a node's pay and rewards."""

import logging
import time

from zoo_compute.base.amounts import format_zen
from zoo_compute.base.models import Network
from zoo_compute.chain.wallet import Wallet
from zoo_compute.client import earnings
from zoo_compute.client.http import Connection, answer_errors
from zoo_compute.node.config import NodeConfig

log = logging.getLogger(__name__)

REWARD_SECONDS = 60.0
"""Minimum interval between looks for rewards, which come once a day."""


class Payouts:
    """Periodic claims. Claims do not expire."""

    def __init__(self, config: NodeConfig, connection: Connection, network: Network, wallet: Wallet) -> None:
        self._connection = connection
        self._network = network
        self._wallet = wallet
        self._to = config.payout_address
        self._is_paid = config.role == "provider"  # verifiers have rewards only
        self._interval = config.claim_seconds
        self._next_at = self._rewards_at = 0.0

    def collect(self) -> None:
        """Claim what is due; does nothing within ``claim_seconds`` of the last call.

        Raises:
            ApiError, Unreachable: try again later.
            ZooError: the contract refuses the claim.
        """
        if time.monotonic() < self._next_at:
            return
        self._next_at = time.monotonic() + self._interval
        if self._is_paid:
            with answer_errors("GET /v1/claims"):
                claims = earnings.list_claims(self._connection)
            taken, tx = earnings.claim_pay(claims, self._network, self._wallet, self._to)
            if taken:
                total = format_zen(sum(claim.amount_wei for claim in taken))
                log.info("pay_claimed zen=%s batches=%s tx=%s", total, len(taken), tx)
        if time.monotonic() < self._rewards_at:
            return
        self._rewards_at = time.monotonic() + REWARD_SECONDS
        with answer_errors("GET /v1/rewards"):
            earned = earnings.list_rewards(self._connection)
        reward, tx = earnings.claim_rewards(earned, self._network, self._wallet, self._to)
        if reward is not None:
            log.info("rewards_claimed zen=%s tx=%s", format_zen(reward.amount_wei), tx)
