"""The embedded stack: every engine, the market and its nodes on one machine, from one command.

The same engines and the same code as in production; only the addresses, the intervals and the hardware thresholds are
a laptop's. ``control`` is what the command line calls, ``supervisor`` runs the parts, ``stack`` says what they are.
"""
