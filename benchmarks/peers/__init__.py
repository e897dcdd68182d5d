"""Programs for a peer's own environment (``make bench-peers``); nothing here is imported."""
