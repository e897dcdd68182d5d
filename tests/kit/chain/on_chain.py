"""A market's rows next to its chain: what is queued is sent, what is mined becomes final."""

from kit.chain.deployed_chain import Chain
from kit.records import Records
from kit.waiting import drain
from market.chain.transactions.sender import Sender
from market.domain.network import DEVNET
from worker.chain_handlers import INTENT_HANDLERS, event_handlers


class OnChain(Records):
    """A market without nodes, with the real sender and indexer."""

    chain: Chain

    def sender(self) -> Sender:
        return self.chain.sender(self.database, INTENT_HANDLERS)

    def send(self) -> None:
        """Send and mine the queued transactions."""
        drain(self.sender())

    def index(self) -> None:
        self.chain.anvil.mine(3)
        self.chain.index(self.database, event_handlers(DEVNET, self.chain.deployment))

    def finalise(self) -> None:
        """Make queued transactions final and process their events."""
        self.send()
        self.chain.anvil.mine(3)
        self.send()
        self.index()
