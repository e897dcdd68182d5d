"""``python -m zoo_compute``: the command line."""

from zoo_compute.cli.main import main

main()
