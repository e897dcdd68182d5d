"""IPFS block store in one process, for development and tests without Kubo.

It serves a part of Kubo's RPC (:mod:`.rpc`) and the IPFS trustless gateway (:mod:`.gateway`) over blocks on disk. It
has no peers.
"""
