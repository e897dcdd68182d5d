"""How a node comes to be offered work: registered, benchmarked, staked, with an ask in the book."""

import logging
import secrets
import tempfile
import threading
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from zoo_compute.base.amounts import format_zen
from zoo_compute.base.errors import ZooError
from zoo_compute.chain.transactions import Chain
from zoo_compute.chain.wallet import Wallet
from zoo_compute.client.http import understood
from zoo_compute.node.config import NodeConfig
from zoo_compute.node.execution import hardware
from zoo_compute.node.execution.executor import Executor, ExecutorError
from zoo_compute.node.market.calls import Market
from zoo_protocol.messages import Ask, Domain, Heartbeat, typed_data

log = logging.getLogger(__name__)


_ASK_SECONDS = 30 * 86_400


_RENEW_SECONDS = 3 * 86_400


_LEAST_VERIFIERS = 2  # that must agree before a unit is refuted


_SHORTEST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 2.0, 600.0  # between benchmarks that fail one after another


_PROOF_SECONDS = 3_600.0  # bounds the process; the market's clock is what counts


class NodeLifecycle:
    """Moves this node on from whatever status the market says it has. Each step may be taken again after a crash.

    ``environment_class``: as it was registered.
    """

    def __init__(self, config: NodeConfig, market: Market, wallet: Wallet, executor: Executor) -> None:
        self._config = config
        self._executor = executor
        self._market = market
        self._wallet = wallet
        self.network = market.network()
        if config.tier not in self.network.tiers:
            raise ZooError(
                "unknown-tier",
                f"{config.tier!r} is no tier of {self.network.name}",
                remedy=f"Choose one of: {', '.join(self.network.tiers)}.",
            )
        self.environment_class = ""
        self._prove_at, self._pause = 0.0, _SHORTEST_PAUSE_SECONDS
        self._renew_ask_at = 0.0
        self._verifiers: int | None = None  # live ones of this node's class, as last told
        self._proof = threading.Thread()

    def close(self) -> None:
        """Wait for a proof at hand, which ends with the executor."""
        if self._proof.is_alive():
            self._proof.join()

    def _prove_again(self) -> None:
        try:
            self._pass_benchmark()
        except ZooError as error:
            log.warning("hardware not shown again: %s %s", error, error.remedy or "")
        except OSError as error:  # a full disk
            log.warning("hardware not shown again: %s", error)

    def register(self, environment_class: str) -> None:
        """Register, or renew what the market knows of this node."""
        config = self._config
        self.environment_class = environment_class
        self._market.register(
            {
                "name": config.name,
                "kind": config.role,
                "region": config.region,
                "hardware": hardware.detect().as_dict(),
                "environment_class": environment_class,
                "site": config.site,
                "asn": config.asn,
                "owner": config.owner,
            }
        )
        self._renew_ask_at = 0.0  # another environment class withdraws the ask
        log.info("registered %s as %s %r", self._wallet.address, config.role, config.name)

    def sign_challenge(self, challenge: str) -> str:
        """This wallet's signature of the market's liveness challenge."""
        domain = Domain(self.network.chain_id, self.network.contracts["JobEscrow"])
        return self._wallet.sign_typed_data(typed_data(domain, Heartbeat(self._wallet.address, challenge)))

    def note_verifiers(self, live: int) -> None:
        """Tell the operator when too few verifiers are of this node's environment class for its work to be judged.

        Args:
            live: verifiers of the class that the market hears of now.
        """
        was, self._verifiers = self._verifiers, live
        if was is not None and (was >= _LEAST_VERIFIERS) == (live >= _LEAST_VERIFIERS) and (was > 0) == (live > 0):
            return
        if live == 0:
            log.warning(
                "no live verifier is of this node's environment class %s: what is drawn of its units is paid only once "
                "one is there, or one of another class passes it by tolerance, and a dispute of them may end without a "
                "verdict, unpaid. Choose a profile that others run, or wait for verifiers of yours.",
                self.environment_class,
            )
        elif live < _LEAST_VERIFIERS:
            log.warning(
                "only one live verifier is of this node's environment class %s: while it is away, what is drawn of "
                "this node's units waits for its pay",
                self.environment_class,
            )
        else:
            log.info("%s live verifiers are of this node's environment class", live)

    def advance(self, status: str, *, must_prove: bool = False) -> None:
        """Do what a node of ``status`` has to do next, if anything.

        Args:
            must_prove: the market asks for its hardware to be shown again.

        Raises:
            ApiError, Unreachable: it did not work; try again later.
            ZooError: the operator has to do something first.
        """
        if self._executor.last_class not in ("", self.environment_class):
            self.register(self._executor.last_class)  # a new training process computes otherwise than the one before
        is_provider = self._config.role == "provider"
        if is_provider and status == "registered":
            self._pass_benchmark()
        elif is_provider and (must_prove or status == "demoted"):
            if not self._proof.is_alive():
                # It may wait for a unit to end, and its pools take long: a promise to be up holds meanwhile.
                self._proof = threading.Thread(target=self._prove_again, name="proof")
                self._proof.start()
        elif status == "benchmarked":
            self._stake()
        elif status == "active" and is_provider and time.time() >= self._renew_ask_at:
            self._place_ask()

    def _pass_benchmark(self) -> None:
        """Show this node's hardware, unless that failed a short while ago; raises as :meth:`_show_hardware`."""
        if time.monotonic() < self._prove_at:
            return
        try:
            self._show_hardware()
        except (ZooError, OSError):
            self._prove_at = time.monotonic() + self._pause
            self._pause = min(2 * self._pause, _LONGEST_PAUSE_SECONDS)
            raise
        self._pause = _SHORTEST_PAUSE_SECONDS

    def _show_hardware(self) -> None:
        """Pass the tier's benchmark (``training_gym.hardware.challenge``); waits for the training task at hand.

        Raises:
            ApiError, Unreachable: the market refused, or is away.
            ZooError: the hardware did not do.
        """
        try:
            with understood("a proof of hardware"):
                verdict = self._prove()
        except ExecutorError as error:
            raise ZooError(f"executor-{error.code.replace('_', '-')}", str(error)) from error
        if not verdict["passed"]:
            raise ZooError(
                f"benchmark-{verdict['reason']}".replace("_", "-"),
                f"the benchmark of tier {self._config.tier} was not passed: {verdict['reason']}, "
                f"{verdict['mflops']} MFLOP/s",
                remedy="Offer a lower tier, or give this node a faster device.",
            )
        log.info("benchmark of tier %s passed with %s MFLOP/s", verdict["tier"], verdict["mflops"])

    def _prove(self) -> dict[str, Any]:
        """The market's verdict on a fresh challenge."""
        executor, market = self._executor, self._market
        with tempfile.TemporaryDirectory(prefix="proof-", dir=executor.workdir) as directory, executor.exclusively():
            run = market.start_benchmark(self._config.tier)
            ready = {"kind": "prove_ready", "work": run["work"], "seed": run["seed"]}
            executor.run(ready, _PROOF_SECONDS)
            begun = market.begin_benchmark(run["id"])
            done = executor.run({"kind": "prove_work", "nonce": begun["nonce"]}, _PROOF_SECONDS)
            openings = market.commit_benchmark(run["id"], done["commitment"])
            if not openings["in_time"]:
                return {"passed": False, "reason": "too_slow", "tier": run["tier"], "mflops": openings["mflops"]}
            answer = Path(directory) / "answer"
            task = {"kind": "prove_open", "secret": openings["secret"], "output": str(answer)}
            executor.run(task, _PROOF_SECONDS)
            content = answer.read_bytes()
        return market.answer_benchmark(run["id"], market.upload(content))  # training goes on meanwhile

    def _stake(self) -> None:
        """Bring the stake to the minimum; the market sees it once it is final."""
        network = self.network
        if self._config.role == "verifier":
            minimum = network.verifier_minimum_stake_wei
        else:
            minimum = network.tiers[self._config.tier].minimum_stake_wei
        chain = Chain(network.rpc_url, network.contracts, self._wallet)
        missing = minimum - chain.staked()
        if missing > 0:
            log.info("staking %s ZEN: %s", format_zen(missing), chain.stake(missing))

    def _place_ask(self) -> None:
        """Offer this node, unless the same offer stands for a while yet."""
        now = int(time.time())
        config, network = self._config, self.network
        with understood("GET /v1/asks"):
            standing = [
                int(datetime.fromisoformat(ask["valid_until"]).timestamp())
                for ask in self._market.open_asks()
                if (ask["tier"], int(ask["min_price_wei"])) == (config.tier, config.min_price_wei)
            ]
        until = max(standing, default=0)
        if until < now + _RENEW_SECONDS:
            tier = network.tiers[config.tier]
            until = now + _ASK_SECONDS
            ask = Ask(
                provider=self._wallet.address,
                tier=tier.id,
                gpus=tier.gpus,
                minPrice=config.min_price_wei,
                validUntil=until,
                nonce=secrets.randbits(128),
            )
            domain = Domain(network.chain_id, network.contracts["JobEscrow"])
            self._market.place_ask(ask, self._wallet.sign_typed_data(typed_data(domain, ask)))
            log.info("offering %s GPUs of tier %s at %s wei per GPU-hour", tier.gpus, config.tier, ask.minPrice)
        self._renew_ask_at = until - _RENEW_SECONDS
