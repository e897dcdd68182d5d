"""The arguments with which the devnet starts a provider's node that has something of its own: a cheat, say."""

import argparse
from pathlib import Path

from zoo_compute.base.amounts import parse_zen
from zoo_compute.node.config import NodeConfig


def node_arguments(description: str | None) -> argparse.ArgumentParser:
    """A parser of those arguments of ``zoo-compute node run`` that :func:`config_of` needs."""
    parser = argparse.ArgumentParser(description=description)
    for name in ("--api-url", "--name", "--min-price"):
        parser.add_argument(name, required=True)
    parser.add_argument("--state-dir", type=Path, required=True)
    parser.add_argument("--claim-seconds", type=float, required=True)
    return parser


def config_of(arguments: argparse.Namespace) -> NodeConfig:
    """The node that these arguments describe."""
    return NodeConfig(
        api_url=arguments.api_url,
        role="provider",
        state_dir=arguments.state_dir,
        name=arguments.name,
        min_price_wei=parse_zen(arguments.min_price, "min-price"),
        claim_seconds=arguments.claim_seconds,
    )
