"""Byte-exact rules that the market, the nodes and the users share.

Canonical JSON, content identifiers, EIP-712 messages, Merkle trees, unit traces and public random draws. All functions
are pure rules without network, database or torch, so any outsider can recompute them.
"""
