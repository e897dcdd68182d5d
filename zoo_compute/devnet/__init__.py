"""The embedded development network: every engine as a local process."""
