"""Lock of a wallet for one node process; two would each lack the other's states.

Heartbeats contain a random id of the process and the ids of its predecessors in the same directory. The process of the
last heartbeat has the wallet for the heartbeat timeout:

- A successor in the same directory takes the wallet at once.
- Another process waits until the timeout.
- Of two copies of a directory, the later process keeps the wallet.

Redis stores the lock. While Redis does not answer, every process passes (fail open), since the lock only prevents
operating errors.
"""

from collections.abc import Sequence

from redis import Redis
from redis.exceptions import RedisError


def acquire_wallet_lock(redis: Redis, address: str, session: str, predecessors: Sequence[str], seconds: float) -> bool:
    """Lock the wallet for process ``session`` and ``seconds``; False if another one has it."""
    key = f"zoo:node:{address}"
    try:
        holder = redis.get(key)
        if isinstance(holder, bytes) and holder.decode() not in (session, *predecessors):
            return False
        redis.set(key, session, px=round(1000 * seconds))
    except RedisError:
        pass
    return True
