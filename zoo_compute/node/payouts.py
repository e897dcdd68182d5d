"""How a node's pay and rewards come into its wallet."""

import logging
import time

from zoo_compute.base.amounts import format_zen
from zoo_compute.base.models import Network
from zoo_compute.chain.wallet import Wallet
from zoo_compute.client import earnings, rewards
from zoo_compute.client.http import Connection, understood
from zoo_compute.node.config import NodeConfig

log = logging.getLogger(__name__)

REWARD_SECONDS = 60.0
"""Rewards come once a day, so they are looked for no more often than this."""


class Payouts:
    """Claims what can be claimed, now and then. Nothing is lost by not claiming: a claim never expires."""

    def __init__(self, config: NodeConfig, connection: Connection, network: Network, wallet: Wallet) -> None:
        self._connection = connection
        self._network = network
        self._wallet = wallet
        self._to = config.payout_address
        self._is_paid = config.role == "provider"  # verifiers have rewards only
        self._interval = config.claim_seconds
        self._next_at = self._rewards_at = 0.0

    def collect(self) -> None:
        """Take what can be taken, unless that was looked at a short while ago.

        Raises:
            ApiError, Unreachable: it did not work; try again later.
            ZooError: the contract refuses the claim.
        """
        if time.monotonic() < self._next_at:
            return
        self._next_at = time.monotonic() + self._interval
        if self._is_paid:
            with understood("GET /v1/claims"):
                claims = earnings.list_claims(self._connection)
            taken, tx = earnings.claim_pay(claims, self._network, self._wallet, self._to)
            if taken:
                log.info(
                    "claimed %s ZEN from %s batches: %s", format_zen(sum(c.amount_wei for c in taken)), len(taken), tx
                )
        if time.monotonic() < self._rewards_at:
            return
        self._rewards_at = time.monotonic() + REWARD_SECONDS
        with understood("GET /v1/rewards"):
            earned = rewards.list_rewards(self._connection)
        reward, tx = rewards.claim_rewards(earned, self._network, self._wallet, self._to)
        if reward is not None:
            log.info("claimed %s ZEN in rewards: %s", format_zen(reward.amount_wei), tx)
