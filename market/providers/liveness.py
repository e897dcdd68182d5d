"""Heartbeats, and the lock of a wallet. A heartbeat has a signed recent challenge.

A challenge is a keyed hash of wallet and period, so it is unpredictable and needs no row. It is valid in its period and
the next one. Recorded heartbeats or a session token alone do not suffice.
"""

import hashlib
import hmac
from collections.abc import Sequence

from redis import Redis
from redis.exceptions import RedisError

from market.platform.db.base import utc_now
from market.platform.http.services import Services
from market.providers import service as providers
from market.providers.benchmarks.service import Workload, benchmark_deadline
from market.providers.errors import WalletInUse
from market.providers.router import tier_name
from market.providers.schemas import HeartbeatRequest, NodeStateView
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


def acquire_wallet_lock(redis: Redis, address: str, session: str, predecessors: Sequence[str], seconds: float) -> bool:
    """Lock the wallet for process ``session`` and ``seconds``; False if another one has it.

    Two processes would each lack the other's states. Heartbeats contain a random id of the process and the ids of its
    predecessors in the same directory. The process of the last heartbeat has the wallet for the heartbeat timeout:

    - A successor in the same directory takes the wallet at once.
    - Another process waits until the timeout.
    - Of two copies of a directory, the later process keeps the wallet.

    While Redis does not answer, every process passes (fail open): the lock only prevents operating errors.
    """
    key = f"zoo:node:{address}"
    try:
        holder = redis.get(key)
        if isinstance(holder, bytes) and holder.decode() not in (session, *predecessors):
            return False
        redis.set(key, session, px=round(1000 * seconds))
    except RedisError:
        pass
    return True


def receive(services: Services, address: str, body: HeartbeatRequest) -> NodeStateView:
    """Record a heartbeat if it answers a recent challenge.

    Raises:
        NotRegistered, WalletInUse: the node cannot work.
    """
    at, timeout, challenges = utc_now(), services.settings.heartbeat_timeout_seconds, services.part(Liveness)
    counted = challenges.is_answered(address, body.challenge, body.signature, at.timestamp())
    named = counted and bool(body.session)
    if named and not acquire_wallet_lock(services.redis, address, body.session, body.predecessors, timeout):
        raise WalletInUse(f"another node with the wallet {address} sent a heartbeat within the last {timeout:g} s")
    with services.database.transaction() as session:
        rtt = body.round_trip_ms
        provider = providers.heartbeat(session, address, rtt) if counted else providers.require(session, address)
        benchmark_by = provider.rebenchmark_by
        if counted:  # only a signed heartbeat starts the time of a benchmark; a session token does not suffice
            is_at_work = services.part(Workload).is_at_work
            benchmark_by = benchmark_deadline(session, services.network, provider, at, is_at_work)
        return NodeStateView(
            status=provider.status,
            reason=providers.reason_of(services.settings, provider),
            tier=tier_name(services.network, provider.tier_id),
            benchmark_by=benchmark_by,
            counted=counted,
            challenge=challenges.challenge(address, at.timestamp()),
            next_within_seconds=timeout,
            verifiers_of_class=providers.verifiers_of_class(
                session, services.settings, provider.environment_class, address, at
            ),
        )
