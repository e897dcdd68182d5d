"""What the market, the nodes and the users must agree on byte for byte.

Canonical JSON, content identifiers, EIP-712 messages, Merkle trees, unit traces and the public
random draws. No network, no database, no torch: every function here is a pure rule that an outsider
can recompute.
"""
