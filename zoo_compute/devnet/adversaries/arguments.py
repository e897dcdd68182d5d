"""Command line of the devnet's special provider nodes."""

import argparse
from pathlib import Path

from zoo_compute.base.amounts import parse_zen
from zoo_compute.node.config import NodeConfig


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
