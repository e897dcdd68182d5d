"""Programs that run a peer's code in the peers' environment (``make bench-peers``). Nothing here is imported by us."""
