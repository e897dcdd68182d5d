"""Node process: one per state directory, with the wallet of the environment."""

import signal
from contextlib import ExitStack

from zoo_compute.base.errors import ConfigError
from zoo_compute.chain.wallet import Wallet
from zoo_compute.node.agent import MakeExecutor, MakeWorker, NodeAgent
from zoo_compute.node.config import NodeConfig
from zoo_compute.node.disk.files import DISK_REFUSES, lock_state_directory
from zoo_compute.node.execution.executor import Executor, executor_errors
from zoo_compute.node.work.worker import Worker


def run_node(config: NodeConfig, make_executor: MakeExecutor = Executor, make_worker: MakeWorker = Worker) -> None:
    """Run a node with the wallet of the environment until SIGTERM or SIGINT.

    Raises:
        ConfigError: the wallet is missing, or a setting is invalid.
        ZooError: the node cannot join or continue.
    """
    wallet = Wallet.from_environment()
    if wallet is None:
        raise ConfigError("wallet-missing", "no wallet is configured", remedy="Set ZOO_PRIVATE_KEY or ZOO_KEYSTORE.")
    with ExitStack() as stack:
        try:
            stack.enter_context(lock_state_directory(config.state_dir))
            agent = NodeAgent(config, wallet, make_executor, make_worker)
        except DISK_REFUSES as error:
            remedy = "Set --state-dir to a writable directory on a disk with free space."
            raise ConfigError("state-dir-unusable", f"{config.state_dir}: {error}", remedy=remedy) from error
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: agent.stop())
        with executor_errors():
            agent.run()
