"""An IPFS block store in one process, for development and tests where no Kubo runs.

It answers the part of Kubo's RPC that the market uses (:mod:`.rpc`) and the IPFS trustless gateway
(:mod:`.gateway`), over blocks on disk. It has no peers: what it does not hold, it reports as absent at once.
"""
