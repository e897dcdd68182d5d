"""Steps of a node to an open ask: registration, hardware benchmark, stake, ask."""

import logging
import secrets
import tempfile
import threading
import time
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from zoo_compute.base.amounts import format_zen
from zoo_compute.base.errors import ZooError
from zoo_compute.chain.transactions import Chain
from zoo_compute.chain.wallet import Wallet
from zoo_compute.client.http import answer_errors
from zoo_compute.node.config import NodeConfig
from zoo_compute.node.execution import hardware
from zoo_compute.node.execution.executor import Executor, executor_errors
from zoo_compute.node.market.calls import Market
from zoo_protocol.messages import Ask, Domain, Heartbeat, typed_data

log = logging.getLogger(__name__)
_ASK_SECONDS = 30 * 86_400
_RENEW_SECONDS = 3 * 86_400
_MIN_VERIFIERS = 2  # that must agree to refute a unit
_MIN_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 2.0, 600.0  # between failed benchmarks
_PROOF_SECONDS = 3_600.0  # limit of the process; the market's clock decides


class NodeLifecycle:
    """Next step of this node from its status at the market; safe to repeat.

    Attributes:
        environment_class: as registered.
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
                f"tier is {config.tier!r}; expected a tier of {self.network.name}",
                remedy=f"Choose one of: {', '.join(self.network.tiers)}.",
            )
        self.environment_class = ""
        self._prove_at, self._pause = 0.0, _MIN_PAUSE_SECONDS
        self._renew_ask_at = 0.0
        self._verifiers: int | None = None  # live verifiers of this node's class
        self._proof = threading.Thread()

    def close(self) -> None:
        """Wait for a running benchmark, which ends with the executor."""
        if self._proof.is_alive():
            self._proof.join()

    def _prove_again(self) -> None:
        try:
            self._pass_benchmark()
        except ZooError as error:
            log.warning("benchmark_failed error=%s remedy=%s", error, error.remedy or "")
        except OSError as error:  # a full disk
            log.warning("benchmark_failed error=%s", error)

    def register(self, environment_class: str) -> None:
        """Register, or renew the registration."""
        config = self._config
        self.environment_class = environment_class
        self._market.register(
            {
                "name": config.name,
                "kind": config.role,
                "region": config.region,
                "hardware": asdict(hardware.detect()) | self._processes(),
                "environment_class": environment_class,
                "site": config.site,
                "asn": config.asn,
                "owner": config.owner,
            }
        )
        self._renew_ask_at = 0.0  # the market withdraws the ask when the environment class changes
        log.info("registered wallet=%s role=%s name=%r", self._wallet.address, config.role, config.name)

    def _processes(self) -> dict[str, object]:
        return {"processes": self._executor.usable_processes, "network_removed": self._executor.network_removed}

    def sign_challenge(self, challenge: str) -> str:
        """Return this wallet's signature of the market's liveness challenge."""
        domain = Domain(self.network.chain_id, self.network.contracts["JobEscrow"])
        return self._wallet.sign_typed_data(typed_data(domain, Heartbeat(self._wallet.address, challenge)))

    def log_verifier_count(self, live: int) -> None:
        """Log a change between no, one, and enough verifiers of this node's environment class.

        Args:
            live: verifiers of the class that send heartbeats.
        """
        was, self._verifiers = self._verifiers, live
        if was is not None and (was >= _MIN_VERIFIERS) == (live >= _MIN_VERIFIERS) and (was > 0) == (live > 0):
            return
        if live == 0:
            log.warning(
                "no_live_verifier environment_class=%s: sampled units are paid only after a replay by a verifier of "
                "this class, or by tolerance of another one. Choose a profile that verifiers run, or wait for one.",
                self.environment_class,
            )
        elif live < _MIN_VERIFIERS:
            log.warning("only_one_live_verifier environment_class=%s", self.environment_class)
        else:
            log.info("enough_live_verifiers environment_class=%s count=%s", self.environment_class, live)

    def advance(self, status: str, *, must_prove: bool = False) -> None:
        """Take the next step of a node in ``status``, if any.

        Args:
            must_prove: the market requests a new hardware benchmark.

        Raises:
            ApiError, Unreachable: try again later.
            ZooError: the operator has to act first.
        """
        if self._executor.last_class not in ("", self.environment_class):
            self.register(self._executor.last_class)  # a new training process can compute other bits
        is_provider = self._config.role == "provider"
        if is_provider and status == "registered":
            self._pass_benchmark()
        elif is_provider and (must_prove or status == "demoted"):
            if not self._proof.is_alive():
                # It waits for the running unit and takes minutes; heartbeats continue in this thread.
                self._proof = threading.Thread(target=self._prove_again, name="proof")
                self._proof.start()
        elif status == "benchmarked":
            self._stake()
        elif status == "active" and is_provider and time.time() >= self._renew_ask_at:
            self._place_ask()

    def _pass_benchmark(self) -> None:
        """Run the benchmark unless one failed a short while ago; raises as :meth:`_pass_challenge`."""
        if time.monotonic() < self._prove_at:
            return
        try:
            self._pass_challenge()
        except (ZooError, OSError):
            self._prove_at = time.monotonic() + self._pause
            self._pause = min(2 * self._pause, _MAX_PAUSE_SECONDS)
            raise
        self._pause = _MIN_PAUSE_SECONDS

    def _pass_challenge(self) -> None:
        """Pass the tier's benchmark (``training_gym.hardware.challenge``); waits for a running task.

        Raises:
            ApiError, Unreachable: the market refuses or does not answer.
            ZooError: the benchmark was not passed.
        """
        with answer_errors("a proof of hardware"), executor_errors():
            verdict = self._prove()
        if not verdict["passed"]:
            raise ZooError(
                f"benchmark-{verdict['reason']}".replace("_", "-"),
                f"tier is {self._config.tier!r}; benchmark failed: {verdict['reason']}, {verdict['mflops']} MFLOP/s",
                remedy="Offer a lower tier, or give this node a faster device.",
            )
        log.info("benchmark_passed tier=%s mflops=%s", verdict["tier"], verdict["mflops"])

    def _prove(self) -> dict[str, Any]:
        executor, market = self._executor, self._market
        with tempfile.TemporaryDirectory(prefix="proof-", dir=executor.workdir) as directory, executor.reserve():
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
        return market.answer_benchmark(run["id"], market.upload(content))  # training continues in the meantime

    def _stake(self) -> None:
        """Raise the stake to the minimum. The market sees it once it is final."""
        network = self.network
        if self._config.role == "verifier":
            minimum = network.verifier_minimum_stake_wei
        else:
            minimum = network.tiers[self._config.tier].minimum_stake_wei
        chain = Chain(network.rpc_url, network.contracts, self._wallet)
        account = chain.stake_account()
        missing = minimum - account.stake
        if missing > 0 and account.unbonding > 0:
            raise ZooError(
                "stake-unbonding",
                f"stake is {format_zen(account.stake)} ZEN; expected {format_zen(minimum)}. "
                f"The wallet withdraws {format_zen(account.unbonding)} ZEN, which the node does not replace",
                remedy="Keep the node running for open disputes, and stop it before: zoo-compute provider withdraw",
            )
        if missing > 0:
            log.info("staked zen=%s tx=%s", format_zen(missing), chain.stake(missing))

    def _place_ask(self) -> None:
        """Place an ask unless an equal one is open for ``_RENEW_SECONDS`` or longer."""
        now = int(time.time())
        config, network = self._config, self.network
        with answer_errors("GET /v1/asks"):
            open_until = [
                int(datetime.fromisoformat(ask["valid_until"]).timestamp())
                for ask in self._market.open_asks()
                if (ask["tier"], int(ask["min_price_wei"])) == (config.tier, config.min_price_wei)
            ]
        until = max(open_until, default=0)
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
            log.info("ask_placed gpus=%s tier=%s wei_per_gpu_hour=%s", tier.gpus, config.tier, ask.minPrice)
        self._renew_ask_at = until - _RENEW_SECONDS
