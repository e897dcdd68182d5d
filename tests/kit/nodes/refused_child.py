"""Training child on a kernel that refuses network namespaces.

Arguments: PROFILE MEMORY_BYTES PROCESSES [no-loopback].
"""

import sys

from zoo_compute.node.execution import child, sandbox


def _refuse(keep_loopback: bool = False) -> bool:
    return False


if __name__ == "__main__":
    sandbox.leave_network = _refuse
    if sys.argv[-1] == "no-loopback":
        sandbox.has_loopback = _refuse
    child.main()
