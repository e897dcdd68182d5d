"""Nodes that are all sold, at one price, go to the jobs that bought them. Pure."""

from collections.abc import Mapping, Sequence
from itertools import combinations

from market.domain.nodes.placement import EPSILON, Candidate, Node, gang_cost
from market.domain.nodes.pool import Pool

_MAX_EXCHANGES = 5_000  # tried at most: gangs are dealt under the market's lock


def assign_nodes(
    sizes: Mapping[str, int], nodes: Sequence[Node], missing: Mapping[str, Mapping[str, float]]
) -> dict[str, list[str]]:
    """Deal sold nodes, each of which suits each of the jobs.

    Args:
        sizes: how many nodes each job gets; together, as many as there are nodes.
        nodes: the nodes.
        missing: by job and provider, what share of the job's data the node does not hold; who is not named, all of it.

    Returns:
        The nodes' addresses by job. Jobs choose in turn, then nodes change places between two jobs as long as that
        lowers the sum of both costs. Price and scarcity are left out: all nodes are taken, whoever gets which.
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
