"""The command line. Results go to standard output, everything else to standard error.

Exit codes are :class:`zoo_compute.base.errors.ExitCode`. Modules are imported by the command that needs them, so that
``zoo-compute --help`` answers at once.
"""
