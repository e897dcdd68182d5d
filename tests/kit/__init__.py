"""Real engines for tests, and what tests of several pieces share."""
