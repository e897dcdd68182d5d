"""Problems of a node that its operator can solve, by its declared hardware. Pure."""

from collections.abc import Iterator, Mapping

from market.domain.network import Tier
from market.providers.schemas import NodeProblem


def node_problems(hardware: Mapping[str, object], tier: Tier | None) -> Iterator[NodeProblem]:
    """Yield the problems of a node; ``tier`` is the one that it has earned."""
    processes = int(str(hardware.get("processes", 1)))
    if not hardware.get("network_removed", True):
        meeting = " They meet on the machine's loopback." if processes > 1 else ""
        yield NodeProblem(
            code="network_not_removed",
            detail=f"The kernel refuses the training processes a network namespace.{meeting}",
            remedy="Allow user namespaces: set kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu) or "
            "kernel.unprivileged_userns_clone=1 (Debian). In a container, allow unshare in its seccomp profile. Then "
            "restart the node.",
        )
    if tier is not None and tier.needs_gpus and processes < tier.gpus:
        yield NodeProblem(
            code="few_processes",
            detail=f"A unit uses at most {processes} of the node's GPUs. Prices of {tier.name} count on {tier.gpus}.",
            remedy=f"Run the node without --processes, or with --processes {tier.gpus}.",
        )
