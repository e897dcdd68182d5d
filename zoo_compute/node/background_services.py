"""What a node looks after beside its work, in threads of their own: what has deadlines on chain, its pay, its disk.

It needs the market only to know which chain that is, and remembers it (``network.json``): a node that starts while the
market is away, or with no room left for work, answers its disputes all the same.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from zoo_compute.base.link import Link
from zoo_compute.base.models import Network
from zoo_compute.chain.disputes import DisputeChain
from zoo_compute.chain.jobs import JobChain
from zoo_compute.chain.omissions import OmissionChain
from zoo_compute.chain.referees import RefereeChain
from zoo_compute.chain.settlements import ChainReader
from zoo_compute.chain.wallet import Wallet
from zoo_compute.client.http import Connection
from zoo_compute.content.gateway import GatewayClient
from zoo_compute.node.config import NodeConfig
from zoo_compute.node.disk.corruption import read_json
from zoo_compute.node.disk.durable_files import write_json
from zoo_compute.node.disk.finished import FinishedJobs
from zoo_compute.node.disk.traces import Traces
from zoo_compute.node.disk.workspace import Workspace
from zoo_compute.node.disputes.defence import Disputes
from zoo_compute.node.disputes.disclosure import Disclosure
from zoo_compute.node.disputes.judging import ReplayContext
from zoo_compute.node.disputes.omissions import Omissions
from zoo_compute.node.disputes.referee import Referee, Sources, Verdicts
from zoo_compute.node.execution.executor import Executor
from zoo_compute.node.market.calls import Market
from zoo_compute.node.payouts import Payouts
from zoo_compute.node.periodic_tasks import Chore, ErrorThrottle, attesting_of, chores_of, run_periodic_task
from zoo_compute.node.work.acknowledgements import Journal
from zoo_compute.node.work.worker import TASK_TIMEOUT_SECONDS

log = logging.getLogger(__name__)


_DISPUTES_SECONDS = 10.0  # a turn lasts hours


_CHORES_SECONDS = 1.0  # each chore knows itself how often it is due


@dataclass(frozen=True, slots=True)
class Parts:
    """What a node is made of."""

    config: NodeConfig
    wallet: Wallet
    workspace: Workspace
    journal: Journal
    connection: Connection
    market: Market
    executor: Executor
    link: Link

    def gateway(self, network: Network) -> GatewayClient:
        """What fetches content, through this node's store. Raises OSError, sqlite3.Error: the disk refuses."""
        gateways = [*self.config.gateways, *network.gateways]
        return GatewayClient(gateways, store=self.workspace.store, link=self.link)

    def omission_chain(self, network: Network) -> Callable[[], OmissionChain]:
        """What connects to the contracts that hold the market to its promises."""
        return lambda: OmissionChain(network.rpc_url, network.contracts, self.wallet)


class BackgroundServices:
    """The chores and, for who has to do with disputes otherwise than by answers, the court.

    Args:
        on_defect: hears of what must not happen, which ends the thread that it happened in.

    Attributes:
        disputes: a provider's; None before it is known on which chain they are.
    """

    def __init__(self, parts: Parts, on_defect: Callable[[Exception], None]) -> None:
        self._parts = parts
        self._on_defect = on_defect
        self._network: Network | None = None
        self._duties: dict[str, Mapping[str, Chore]] = {}
        self._threads: list[threading.Thread] = []
        self._stopping = threading.Event()
        self._court_due = threading.Event()
        self.disputes: Disputes | None = None

    def resume(self) -> None:
        """Look after things on the network of which the market told last, if it ever did."""
        known = read_json(self._parts.workspace.network, Network.model_validate)
        if known is not None:
            self._follow(known)

    def follow(self, network: Network) -> None:
        """Look after things on this network from now on, and after a restart."""
        if network == self._network:
            return
        try:
            write_json(self._parts.workspace.network, network.model_dump(mode="json"))
        except OSError as error:  # started again, this node waits for the market before it looks after anything
            log.warning("%s cannot be written: %s", self._parts.workspace.network, error)
        self._follow(network)

    def run_referee_duties(self) -> None:
        """Look now: a verifier that just became active can be listed as a referee."""
        self._court_due.set()

    def stop(self) -> None:
        """End soon. May be called from a signal handler."""
        self._stopping.set()
        self._court_due.set()

    def join(self) -> None:
        """Wait until all has ended."""
        for thread in self._threads:
            thread.join()

    def _follow(self, network: Network) -> None:
        self._network = network
        self._duties = {"chores": self._chores(network), "court": self._court(network)}
        if not self._threads:
            self._start("chores", lambda: self._stopping.wait(_CHORES_SECONDS))
            if self._duties["court"]:
                self._start("court", self._wait_for_court)

    def _start(self, name: str, wait: Callable[[], object]) -> None:
        troubles: dict[str, ErrorThrottle] = {}

        def repeat() -> None:
            try:
                while not self._stopping.is_set():
                    for what, chore in self._duties[name].items():
                        run_periodic_task(what, chore, troubles.setdefault(what, ErrorThrottle()))
                    wait()
            except Exception as error:
                self._on_defect(error)

        self._threads.append(threading.Thread(target=repeat, name=name))
        self._threads[-1].start()

    def _wait_for_court(self) -> None:
        self._court_due.wait(_DISPUTES_SECONDS)
        self._court_due.clear()

    def _chores(self, network: Network) -> Mapping[str, Chore]:
        """What may wait long, for the chain or for a server: heartbeats must not wait for it."""
        parts, config = self._parts, self._parts.config
        is_provider = config.role == "provider"
        watched = self.disputes = self._disputes(network) if is_provider else None
        claim = parts.omission_chain(network)
        return chores_of(
            Payouts(config, parts.connection, network, parts.wallet),
            parts.workspace,
            FinishedJobs(
                parts.workspace,
                lambda: JobChain(network.rpc_url, network.contracts, parts.wallet, network.start_block),
                lambda: watched is not None and bool(watched.noted()),
            ),
            disputes=watched,
            omissions=Omissions(parts.journal, parts.connection, claim, config.claim_seconds) if is_provider else None,
            attesting=attesting_of(config, parts.market, parts.wallet.address) if config.attest else None,
        )

    def _court(self, network: Network) -> Mapping[str, Chore]:
        """What disputes ask of this node beside answers: of a provider a state, of a verifier a judgement."""
        if self._parts.config.role == "provider":

            @cache
            def disclosure() -> Disclosure:  # made when it is looked at: the disk may be full
                parts = self._parts
                return Disclosure(
                    self._disputes(network), parts.workspace, parts.market, parts.gateway(network), parts.executor
                )

            return {"disputed states": lambda: disclosure().watch()}
        return {"committees": self._referee(network).watch} if self._parts.config.referee else {}

    def _referee(self, network: Network) -> Referee:
        parts = self._parts

        def run(task: dict[str, Any]) -> dict[str, Any]:
            return parts.executor.run(task, TASK_TIMEOUT_SECONDS)

        return Referee(
            Verdicts(parts.workspace.verdicts),
            Sources(
                lambda: RefereeChain(network.rpc_url, network.contracts, parts.wallet, network.start_block),
                lambda: ChainReader(network.rpc_url, network.contracts, network.start_block),
                parts.market,
            ),
            lambda: ReplayContext(parts.workspace, parts.gateway(network), parts.executor.environment_class, run),
            parts.wallet,
            parts.config.owner,
        )

    def _disputes(self, network: Network) -> Disputes:
        parts = self._parts
        return Disputes(
            parts.workspace.disputes,
            Traces(parts.workspace.traces),
            lambda: DisputeChain(network.rpc_url, network.contracts, parts.wallet, network.start_block),
            _DISPUTES_SECONDS,
        )
