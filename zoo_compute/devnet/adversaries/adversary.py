"""The devnet's adversary as a process: a provider node with a dishonest executor."""

import argparse
import logging
from pathlib import Path

from zoo_compute.base.amounts import parse_zen
from zoo_compute.devnet.adversaries.attacks import KINDS, executor_of
from zoo_compute.devnet.adversaries.child import FABRICATE
from zoo_compute.node.config import NodeConfig
from zoo_compute.node.process import run_node
from zoo_compute.terminal.output import log_to_stderr


def node_arguments(description: str | None) -> argparse.ArgumentParser:
    """Return a parser of the ``zoo-compute node run`` arguments that :func:`node_config` needs."""
    parser = argparse.ArgumentParser(description=description)
    for name in ("--api-url", "--name", "--min-price"):
        parser.add_argument(name, required=True)
    parser.add_argument("--state-dir", type=Path, required=True)
    parser.add_argument("--claim-seconds", type=float, required=True)
    return parser


def node_config(arguments: argparse.Namespace) -> NodeConfig:
    """Return the configuration of a provider node."""
    return NodeConfig(
        api_url=arguments.api_url,
        role="provider",
        state_dir=arguments.state_dir,
        name=arguments.name,
        min_price_wei=parse_zen(arguments.min_price, "min-price"),
        claim_seconds=arguments.claim_seconds,
    )


def main() -> None:
    """Run the adversary until it is stopped."""
    parser = node_arguments(__doc__)
    parser.add_argument("--attack", choices=KINDS, default=FABRICATE)
    arguments = parser.parse_args()
    log_to_stderr()
    logging.getLogger(__name__).warning("adversary_started attack=%s", arguments.attack)
    run_node(node_config(arguments), executor_of(arguments.attack))


if __name__ == "__main__":
    main()
