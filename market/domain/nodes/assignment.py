"""Assignment of sold nodes to the jobs that bought them at one price. Pure."""

from collections.abc import Mapping, Sequence
from itertools import combinations

from market.domain.nodes.placement import EPSILON, Candidate, Node, gang_cost
from market.domain.nodes.pool import Pool

_MAX_EXCHANGES = 5_000  # the caller holds the market's lock


def assign_nodes(
    sizes: Mapping[str, int], nodes: Sequence[Node], missing: Mapping[str, Mapping[str, float]]
) -> dict[str, list[str]]:
    """Return the nodes' addresses by job. Every job accepts every node.

    Jobs choose in turn. Then two jobs exchange nodes as long as the sum of their costs falls. Price and scarcity do not
    count, because all nodes are sold.

    Args:
        sizes: number of nodes by job; the sum is the number of nodes.
        missing: by job and provider, the share of the job's data that the node lacks; default 1.
    """
    pool, gangs = Pool(map(Candidate, nodes), kind=lambda _: None), dict[str, list[Node]]()
    for job, size in sizes.items():
        gangs[job] = [one.node for one in pool.choose(size, missing=missing[job])]
        for node in gangs[job]:
            pool.remove(node.provider)
    _exchange(gangs, missing)
    return {job: [node.provider for node in gang] for job, gang in gangs.items()}


def _exchange(gangs: Mapping[str, list[Node]], missing: Mapping[str, Mapping[str, float]]) -> None:
    def cost(job: str) -> float:
        return gang_cost([Candidate(node, missing=missing[job].get(node.provider, 1.0)) for node in gangs[job]])

    tried, improved = 0, True
    while improved:
        improved = False
        for (one, mine), (other, theirs) in combinations(gangs.items(), 2):
            before = cost(one) + cost(other)
            for here in range(len(mine)):
                for there in range(len(theirs)):
                    tried += 1
                    if tried > _MAX_EXCHANGES:
                        return
                    mine[here], theirs[there] = theirs[there], mine[here]
                    after = cost(one) + cost(other)
                    if after < before - EPSILON:
                        before, improved = after, True
                    else:
                        mine[here], theirs[there] = theirs[there], mine[here]
