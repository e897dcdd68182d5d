"""The devnet's adversary as a process: a provider node with a dishonest executor."""

import logging

from zoo_compute.devnet.adversaries.arguments import node_arguments, node_config
from zoo_compute.devnet.adversaries.attacks import KINDS, executor_of
from zoo_compute.devnet.adversaries.child import FABRICATE
from zoo_compute.node.process import run_node
from zoo_compute.terminal.output import log_to_stderr


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
