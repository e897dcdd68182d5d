"""The devnet's cheat as a process: an ordinary node, except for how it trains.

Started by the devnet with the arguments of ``zoo-compute node run`` that it needs; nobody else has a use for it.
"""

import logging

from zoo_compute.devnet.cheats.arguments import config_of, node_arguments
from zoo_compute.devnet.cheats.cheat import KINDS, executor_of
from zoo_compute.devnet.cheats.child import FABRICATE
from zoo_compute.node.serving import serve
from zoo_compute.terminal.output import log_to_stderr


def main() -> None:
    """Run the cheat until it is stopped."""
    parser = node_arguments(__doc__)
    parser.add_argument("--cheat", choices=KINDS, default=FABRICATE)
    arguments = parser.parse_args()
    log_to_stderr()
    logging.getLogger(__name__).warning("this node cheats: %s", arguments.cheat)
    serve(config_of(arguments), executor_of(arguments.cheat))


if __name__ == "__main__":
    main()
