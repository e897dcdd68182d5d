"""Liveness challenges: a heartbeat counts if the wallet's key signed a recent one.

A challenge is a keyed hash of wallet and period, so it is unpredictable and needs no row. It is valid in its period and
the next one. Recorded heartbeats or a session token alone do not suffice.
"""

import hashlib
import hmac

from zoo_protocol.hashing import to_hex
from zoo_protocol.messages import Domain, Heartbeat, recover, typed_data

MIN_PERIOD_SECONDS = 60.0


class Liveness:
    """Challenges and their checks.

    Args:
        secret: secret shared by the market's processes.
        domain: EIP-712 domain of the deployment.
        heartbeat_timeout: longest time between two heartbeats in seconds; a period is at least as long.
    """

    def __init__(self, secret: bytes, domain: Domain, heartbeat_timeout: float) -> None:
        self._secret = secret
        self._domain = domain
        self._period = max(MIN_PERIOD_SECONDS, heartbeat_timeout)

    def challenge(self, address: str, now: float) -> str:
        """Return the challenge for a wallet's next heartbeat (0x hex); ``now`` in Unix seconds."""
        return self._of(address, int(now // self._period))

    def is_answered(self, address: str, challenge: str, signature: str, now: float) -> bool:
        """Return True if the wallet signed its challenge of this period or the one before."""
        period = int(now // self._period)
        if challenge not in (self._of(address, period), self._of(address, period - 1)):
            return False
        try:
            return recover(typed_data(self._domain, Heartbeat(address, challenge)), signature) == address
        except ValueError:
            return False

    def _of(self, address: str, period: int) -> str:
        message = b"zoo-liveness-1" + bytes.fromhex(address[2:]) + period.to_bytes(8, "big")
        return to_hex(hmac.new(self._secret, message, hashlib.sha256).digest())
