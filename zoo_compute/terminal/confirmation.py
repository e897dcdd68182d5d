"""Question before a command moves money."""

import sys
from collections.abc import Mapping
from typing import Annotated

import typer

from zoo_compute.base.errors import ConfigError, ZooError
from zoo_compute.terminal.output import print_note

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Send without a question.")]


def confirm(plan: Mapping[str, object], question: str, *, yes: bool) -> None:
    """Show what a command does on standard error and ask for consent.

    Args:
        plan: names and values, such as the cost.
        question: without its choices.
        yes: consent given by an option: no output, no question.

    Raises:
        ConfigError: standard input is not a terminal.
        ZooError: the answer is not yes.
    """
    if yes:
        return
    width = max(map(len, plan), default=0)
    for name, value in plan.items():
        print_note(f"{name:<{width}}  {value}")
    if not sys.stdin.isatty():
        remedy = "Check the lines above, and repeat the command with --yes."
        raise ConfigError(
            "confirmation-missing", "standard input is not a terminal, so nothing was sent", remedy=remedy
        )
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise ZooError("not-confirmed", "nothing was sent")
