"""One node at a time for a wallet: two would do its work twice, each without what the other has to show.

Each process of a node names itself by a random id in its heartbeats, and its predecessors in the same directory. The
one that was heard of last within the longest silence has the wallet; only itself and who names it as a predecessor are
taken then. So a node that is started again goes on at once, a stranger is refused while the node lives, and of two
copies of one directory the later one has it, while the earlier one is refused for good. Redis holds this for as long
as it counts. Where Redis does not answer, all are taken (fail open): it guards an operator against a mistake.
"""

from collections.abc import Sequence

import structlog
from redis import Redis
from redis.exceptions import RedisError

_log = structlog.get_logger(__name__)


def acquire_wallet_lock(redis: Redis, address: str, session: str, predecessors: Sequence[str], seconds: float) -> bool:
    """Let the process ``session`` have the wallet for ``seconds`` from now on; False if another one has it."""
    key = f"zoo:node:{address}"
    try:
        holder = redis.get(key)
        if isinstance(holder, bytes) and holder.decode() not in (session, *predecessors):
            return False
        redis.set(key, session, px=round(1000 * seconds))
    except RedisError as error:
        _log.warning("sessions_not_checked", error=str(error))
    return True
