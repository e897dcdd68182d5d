"""A job's outer rounds on a virtual clock, decided by the market's own code: for planning beyond one machine.

``scenario``  what is simulated: the work, the nodes and their links, the market
``clock``     virtual time, and processes on it
``link``      one place's link, shared by the flows of many nodes
``work``      what a node does, step by step
``state``     what the market knows of rounds, slots and units
``rounds``    nodes and market acting: ``simulate(scenario)`` gives an :class:`~benchmarks.simulator.rounds.Outcome`
``measured``  sizes and speeds of real payloads, extrapolated to other models
``real_run``  the same as real processes on this machine, to hold the simulator against (``real_market``, ``worker``)
"""
