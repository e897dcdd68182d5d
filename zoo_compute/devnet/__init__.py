"""Development stack: engines, market and nodes on one machine, with production's engines and code.

Addresses, intervals and hardware thresholds differ. ``control`` serves the command line, ``supervisor`` runs the parts,
``stack`` defines them.
"""
