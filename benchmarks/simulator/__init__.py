"""Simulation of a job's outer rounds on a virtual clock with the market's own code.

- ``scenario``: input (the work, the nodes and their links, the market) and outcome;
- ``clock``: virtual time and actions on it;
- ``link``: one place's link, shared by the flows of many nodes;
- ``work``: steps of a node;
- ``state``: the market's view of rounds, slots and units;
- ``rounds``: nodes and market: ``simulate(scenario)`` returns an :class:`~benchmarks.simulator.scenario.Outcome`;
- ``measured``: sizes and speeds of real payloads, extrapolated to other models;
- ``real_run``: the same as real processes on this machine, for comparison (``real_market``, ``worker``).
"""
