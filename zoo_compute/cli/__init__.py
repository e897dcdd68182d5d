"""The command line: results on standard output, messages on standard error.

Exit codes are :class:`zoo_compute.base.errors.ExitCode`. Commands import heavy modules themselves, to keep
``zoo-compute --help`` fast.
"""
