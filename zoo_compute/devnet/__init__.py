"""Development stack: engines, market and nodes on one machine.

Addresses, intervals and hardware thresholds differ. ``control`` serves the command line, ``supervisor`` runs the parts,
``stack`` defines them.
"""
