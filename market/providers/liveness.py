"""Liveness challenges: a heartbeat counts only if the wallet's key signed what the market said moments before.

A challenge is a keyed hash of wallet and period, so nobody foresees it, and no row is written for it. It is good for
the period in which it was told and the next: who recorded heartbeats, or has the session's token only, cannot go on.
"""

import hashlib
import hmac

from zoo_protocol.hashing import to_hex
from zoo_protocol.messages import Domain, Heartbeat, recover, typed_data

LEAST_PERIOD_SECONDS = 60.0


class Liveness:
    """Challenges and their answers.

    Args:
        secret: of this market; its processes share it.
        domain: EIP-712, of the deployment.
        heartbeat_timeout: seconds between two heartbeats at most; a period is no shorter.
    """

    def __init__(self, secret: bytes, domain: Domain, heartbeat_timeout: float) -> None:
        self._secret = secret
        self._domain = domain
        self._period = max(LEAST_PERIOD_SECONDS, heartbeat_timeout)

    def challenge(self, address: str, now: float) -> str:
        """What a wallet's next heartbeat has to sign, 0x hex of 32 bytes; ``now`` in Unix seconds."""
        return self._of(address, int(now // self._period))

    def is_answered(self, address: str, challenge: str, signature: str, now: float) -> bool:
        """Whether the wallet signed a challenge that it was told in this period or the one before."""
        period = int(now // self._period)
        if challenge not in (self._of(address, period), self._of(address, period - 1)):
            return False
        try:
            return recover(typed_data(self._domain, Heartbeat(address, challenge)), signature) == address
        except ValueError:
            return False

    def _of(self, address: str, period: int) -> str:
        told = b"zoo-liveness-1" + bytes.fromhex(address[2:]) + period.to_bytes(8, "big")
        return to_hex(hmac.new(self._secret, told, hashlib.sha256).digest())
