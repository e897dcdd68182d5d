"""Inner optimisers, and data parallelism per inner step."""
