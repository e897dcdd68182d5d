"""The devnet's cheat as a process: an ordinary node, except for how it trains.

Started by the devnet with the arguments of ``zoo-compute node run`` that it needs; nobody else has a use for it.
"""

import argparse
import logging
from pathlib import Path

from zoo_compute.amounts import parse_zen
from zoo_compute.cli.output import log_to_stderr
from zoo_compute.devnet.cheat import KINDS, executor_of
from zoo_compute.devnet.cheat_child import FABRICATE
from zoo_compute.node.config import NodeConfig
from zoo_compute.node.serving import serve


def main() -> None:
    """Run the cheat until it is stopped."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--api-url", "--name", "--min-price"):
        parser.add_argument(name, required=True)
    parser.add_argument("--state-dir", type=Path, required=True)
    parser.add_argument("--claim-seconds", type=float, required=True)
    parser.add_argument("--cheat", choices=KINDS, default=FABRICATE)
    arguments = parser.parse_args()
    log_to_stderr()
    logging.getLogger(__name__).warning("this node cheats: %s", arguments.cheat)
    price = parse_zen(arguments.min_price, "min-price")
    config = NodeConfig(
        api_url=arguments.api_url,
        role="provider",
        state_dir=arguments.state_dir,
        name=arguments.name,
        min_price_wei=price,
        claim_seconds=arguments.claim_seconds,
    )
    serve(config, executor_of(arguments.cheat))


if __name__ == "__main__":
    main()
