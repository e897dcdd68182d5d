"""Benchmarks: ``python -m benchmarks.NAME [--json] [--quick]``. See :mod:`benchmarks.report` for the output."""
