"""Background threads of a node: chain deadlines, payouts and disk.

Their tasks can block for minutes. The heartbeat thread does not run them, because the market counts a silent node as
down.

The network's parameters are stored in ``network.json``. A node that starts during an outage of the market, or with a
full disk, still answers its disputes.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache

from zoo_compute.base.amounts import format_zen
from zoo_compute.base.errors import ZooError
from zoo_compute.base.link import Link
from zoo_compute.base.models import Network
from zoo_compute.chain.disputes import DisputeChain
from zoo_compute.chain.omissions import OmissionChain
from zoo_compute.chain.referees import RefereeChain
from zoo_compute.chain.settlements import ChainReader
from zoo_compute.chain.wallet import Wallet
from zoo_compute.client import earnings
from zoo_compute.client.http import Connection, answer_errors
from zoo_compute.content.gateway import GatewayClient
from zoo_compute.node.attestation import AttestationRenewal, GpuSource, QuoteSource, collateral_from
from zoo_compute.node.config import NodeConfig
from zoo_compute.node.disk.files import DISK_REFUSES, read_json, write_json
from zoo_compute.node.disk.finished import FinishedJobs
from zoo_compute.node.disk.traces import Traces
from zoo_compute.node.disk.workspace import Workspace
from zoo_compute.node.disputes.defence import Disputes
from zoo_compute.node.disputes.disclosure import Disclosure
from zoo_compute.node.disputes.omissions import Omissions
from zoo_compute.node.disputes.referee import Referee, Verdicts
from zoo_compute.node.disputes.segment_verdict import ReplayContext
from zoo_compute.node.execution import hardware
from zoo_compute.node.execution.executor import Executor
from zoo_compute.node.market.calls import Market
from zoo_compute.node.work.acknowledgements import Journal

log = logging.getLogger(__name__)
_DISPUTES_SECONDS = 10.0  # response deadlines are hours
_TASKS_SECONDS = 1.0  # each task has an interval of its own
_REPEAT_SECONDS = 300.0

REWARD_SECONDS = 60.0
"""Minimum interval between looks for rewards, which come once a day."""

PeriodicTask = Callable[[], None]
"""Does the work that is due. Each task keeps its own interval."""


class ErrorThrottle:
    """Logger of one condition: new texts at once, repeated ones every ``_REPEAT_SECONDS``."""

    def __init__(self) -> None:
        self._last = ""
        self._again_at = 0.0

    def warn(self, what: str) -> None:
        if what != self._last or time.monotonic() >= self._again_at:
            self._last, self._again_at = what, time.monotonic() + _REPEAT_SECONDS
            log.warning("%s", what)


def run_periodic_task(what: str, task: PeriodicTask, throttle: ErrorThrottle) -> None:
    """Run a task once. Expected errors are logged; the next run tries again."""
    try:
        task()
    except (ZooError, *DISK_REFUSES) as error:
        throttle.warn(f"task_failed task={what!r}: {error} {getattr(error, 'remedy', None) or ''}".rstrip())


@dataclass(eq=False)
class Payouts:
    """Periodic claims. Claims do not expire."""

    config: NodeConfig
    connection: Connection
    network: Network
    wallet: Wallet
    _next_at: float = field(default=0.0, init=False)
    _rewards_at: float = field(default=0.0, init=False)

    def collect(self) -> None:
        """Claim what is due; does nothing within ``claim_seconds`` of the last call.

        Raises:
            ApiError, Unreachable: try again later.
            ZooError: the contract refuses the claim.
        """
        if time.monotonic() < self._next_at:
            return
        self._next_at = time.monotonic() + self.config.claim_seconds
        if self.config.role == "provider":  # verifiers have rewards only
            with answer_errors("GET /v1/claims"):
                claims = earnings.list_claims(self.connection)
            taken, tx = earnings.claim_pay(claims, self.network, self.wallet, self.config.payout_address)
            if taken:
                total = format_zen(sum(claim.amount_wei for claim in taken))
                log.info("pay_claimed zen=%s batches=%s tx=%s", total, len(taken), tx)
        if time.monotonic() < self._rewards_at:
            return
        self._rewards_at = time.monotonic() + REWARD_SECONDS
        with answer_errors("GET /v1/rewards"):
            earned = earnings.list_rewards(self.connection)
        reward, tx = earnings.claim_rewards(earned, self.network, self.wallet, self.config.payout_address)
        if reward is not None:
            log.info("rewards_claimed zen=%s tx=%s", format_zen(reward.amount_wei), tx)


@dataclass(frozen=True, slots=True)
class NodeComponents:
    """Components of a node that its services share."""

    config: NodeConfig
    wallet: Wallet
    workspace: Workspace
    journal: Journal
    connection: Connection
    market: Market
    executor: Executor
    link: Link

    def gateway(self, network: Network) -> GatewayClient:
        """Build a gateway client over the node's store. Raises OSError, sqlite3.Error."""
        gateways = [*self.config.gateways, *network.gateways]
        return GatewayClient(gateways, store=self.workspace.store, link=self.link)

    def omission_chain(self, network: Network) -> Callable[[], OmissionChain]:
        """Return a function that connects to the omission contracts."""
        return lambda: OmissionChain(network.rpc_url, network.contracts, self.wallet)


class BackgroundServices:
    """Threads of periodic tasks, and of a referee's or a disputing provider's duties.

    Args:
        on_defect: called with an unexpected exception, which ends its thread.

    Attributes:
        disputes: a provider's disputes; None until the network is known.
    """

    def __init__(self, parts: NodeComponents, on_defect: Callable[[Exception], None]) -> None:
        self._parts = parts
        self._on_defect = on_defect
        self._network: Network | None = None
        self._duties: dict[str, Mapping[str, PeriodicTask]] = {}
        self._threads: list[threading.Thread] = []
        self._stopping = threading.Event()
        self._duties_due = threading.Event()
        self.disputes: Disputes | None = None

    def resume(self) -> None:
        """Start on the stored network, if one is stored."""
        known = read_json(self._parts.workspace.network, Network.model_validate)
        if known is not None:
            self._start_on(known)

    def use_network(self, network: Network) -> None:
        """Use this network, now and after a restart."""
        if network == self._network:
            return
        try:
            write_json(self._parts.workspace.network, network.model_dump(mode="json"))
        except OSError as error:  # after a restart this node first needs the market
            log.warning("network_not_stored path=%s error=%s", self._parts.workspace.network, error)
        self._start_on(network)

    def run_referee_duties(self) -> None:
        """Run the duties now: a verifier that became active can be listed as a referee."""
        self._duties_due.set()

    def stop(self) -> None:
        """Stop soon. Safe in a signal handler."""
        self._stopping.set()
        self._duties_due.set()

    def join(self) -> None:
        for thread in self._threads:
            thread.join()

    def _start_on(self, network: Network) -> None:
        self._network = network
        self._duties = {"tasks": self._periodic_tasks(network), "duties": self._duties_in_disputes(network)}
        if not self._threads:
            self._start("tasks", lambda: self._stopping.wait(_TASKS_SECONDS))
            if self._duties["duties"]:
                self._start("duties", self._wait_for_duties)

    def _start(self, name: str, wait: Callable[[], object]) -> None:
        throttles: dict[str, ErrorThrottle] = {}

        def repeat() -> None:
            try:
                while not self._stopping.is_set():
                    for what, task in self._duties[name].items():
                        run_periodic_task(what, task, throttles.setdefault(what, ErrorThrottle()))
                    wait()
            except Exception as error:
                self._on_defect(error)

        self._threads.append(threading.Thread(target=repeat, name=name))
        self._threads[-1].start()

    def _wait_for_duties(self) -> None:
        self._duties_due.wait(_DISPUTES_SECONDS)
        self._duties_due.clear()

    def _periodic_tasks(self, network: Network) -> Mapping[str, PeriodicTask]:
        """Return tasks that can block for minutes, the most urgent first."""
        parts, config = self._parts, self._parts.config
        tasks: dict[str, PeriodicTask] = {}
        if config.role == "provider":
            self.disputes = self._disputes(network)
            claim = parts.omission_chain(network)
            traces = Traces(parts.workspace.traces)
            omissions = Omissions(parts.journal, traces, parts.connection, claim, config.claim_seconds)
            tasks |= {"disputes": self.disputes.watch, "omitted commitments": omissions.watch}
        finished = FinishedJobs(
            parts.workspace,
            lambda: DisputeChain(network.rpc_url, network.contracts, parts.wallet, network.start_block),
            lambda: self.disputes is not None and bool(self.disputes.open_disputes()),
        )
        payouts = Payouts(config, parts.connection, network, parts.wallet)
        tasks |= {"pay": payouts.collect, "finished jobs": finished.release, "old blocks": parts.workspace.collect}
        if config.attest:
            gpus = GpuSource() if hardware.detect().gpu_count else None
            collateral = collateral_from(config.pccs_url)
            renewal = AttestationRenewal(parts.market, parts.wallet.address, QuoteSource(), collateral, gpus)
            tasks["attestations"] = renewal.keep
        return tasks

    def _duties_in_disputes(self, network: Network) -> Mapping[str, PeriodicTask]:
        """Return duties in disputes: a provider discloses states, a verifier replays as a referee."""
        if self._parts.config.role == "provider":

            @cache
            def disclosure() -> Disclosure:  # built on first use: the disk can be full
                parts = self._parts
                return Disclosure(
                    self._disputes(network), parts.workspace, parts.market, parts.gateway(network), parts.executor
                )

            return {"disputed states": lambda: disclosure().watch()}
        return {"committees": self._referee(network).watch} if self._parts.config.referee else {}

    def _referee(self, network: Network) -> Referee:
        parts = self._parts
        return Referee(
            Verdicts(parts.workspace.verdicts),
            lambda: RefereeChain(network.rpc_url, network.contracts, parts.wallet, network.start_block),
            lambda: ChainReader(network.rpc_url, network.contracts, network.start_block),
            parts.market,
            lambda: ReplayContext(
                parts.workspace, parts.gateway(network), parts.executor.environment_class, parts.executor.run
            ),
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
