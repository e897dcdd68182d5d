"""Comparison of the probes by which a job's nodes show how they compute its shapes."""

from collections import Counter
from collections.abc import Mapping


def dissenting_nodes(probes: Mapping[str, str], *, is_complete: bool) -> set[str]:
    """Return the nodes whose digest is not the most frequent one.

    Args:
        probes: digests by node, those of earlier units first. Nodes that were left out before count too, so that a
            majority can form against the first node of a job.
        is_complete: no node of the job has yet to report. Only then the first of several most frequent ones counts.
    """
    counts = Counter(probes.values())
    most = max(counts.values(), default=0)
    usual = [digest for digest, count in counts.items() if count == most]
    accepted = usual[:1] if is_complete else usual
    return {node for node, digest in probes.items() if digest not in accepted}
