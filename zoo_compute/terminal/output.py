"""Output of results and errors, and the question before a command moves money."""

import logging
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any

import typer

from zoo_compute.base.errors import ApiError, ConfigError, ZooError
from zoo_compute.base.plain_json import to_json
from zoo_protocol.amounts import short_zen

_SILENT_SECONDS = 2  # waited for retries before the first message
_LIMITS = ("budget_wei", "escrowed_wei", "max_price_wei", "price_cap_wei")
"""Amounts of a job that its cost never exceeds."""
JsonFlag = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Send without a question.")]
JsonOfSent = Annotated[bool, typer.Option("--json", help="Send without a question, and print the result as JSON.")]
"""``--json`` of commands with :data:`Yes`: standard output is one document, and a script cannot answer."""


def print_json(value: Any) -> None:
    """Print one JSON document on standard output. Amounts are decimal strings."""
    print(to_json(value, indent=2), flush=True)


def print_note(text: str) -> None:
    """Print a message on standard error."""
    print(text, file=sys.stderr, flush=True)


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


def report_done(text: str, facts: Mapping[str, object], *, as_json: bool) -> None:
    """Report a command without a result: a message, or its facts as JSON."""
    if as_json:
        print_json(facts)
    else:
        print_note(text)


def print_facts(facts: Mapping[str, object]) -> None:
    """Print names and values, one per line; a list as words."""
    width = max((len(name) for name in facts), default=0)
    for name, value in facts.items():
        words = " ".join(map(str, value)) if isinstance(value, list) else value
        print(f"{name:<{width}}  {'-' if words is None else words}")


def print_result(found: Any, show: Callable[[Any], None] = print_facts, *, as_json: bool) -> None:
    """Print a result as JSON, or by ``show``."""
    (print_json if as_json else show)(found)


def in_zen(facts: Mapping[str, Any]) -> dict[str, object]:
    """Return the facts with rounded ZEN instead of wei; ``budget_wei`` becomes ``budget``."""
    return {
        name.replace("_wei", ""): zen_words(value, is_limit=name in _LIMITS)
        if "_wei" in name and value is not None
        else value
        for name, value in facts.items()
    }


def zen_words(wei: str | int, *, is_limit: bool = False) -> str:
    """Return an amount in ZEN with its unit, rounded down, a limit up."""
    return f"{short_zen(int(wei), is_limit=is_limit)} ZEN"


def short_id(job_id: str) -> str:
    """Return the start of an id on a terminal, which commands take instead of the id."""
    return job_id[:10] if sys.stdout.isatty() else job_id


def status_words(status: str, *, is_paused: bool) -> str:
    """Return a job's status, with its pause."""
    return f"{status}, paused" if is_paused else status


def zen(wei: str | int | None) -> str | None:
    """Return an amount in rounded ZEN without the unit, or None."""
    return None if wei is None else short_zen(int(wei))


def print_rows(found: Any, columns: Sequence[str], rows: Iterable[Sequence[object]], *, as_json: bool) -> None:
    """Print a result as JSON, or its rows as a table."""
    if as_json:
        print_json(found)
    else:
        print_table(columns, rows)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table: on a terminal with borders and the whole first column, else with tabs."""
    cells = [["-" if cell is None else str(cell) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        for row in [list(columns), *cells]:
            print("\t".join(row))
        return
    from rich.console import Console
    from rich.table import Column, Table
    from rich.text import Text

    key = Column(columns[0], min_width=max(len(row[0]) for row in [[*columns], *cells]))
    table = Table(key, *columns[1:])
    for row in cells:
        table.add_row(*(Text(cell) for cell in row))  # untrusted text: no markup
    Console().print(table, crop=False)  # a narrow terminal breaks lines, but shows all columns


def print_records(names: Sequence[str], records: Iterable[Mapping[str, object]]) -> None:
    """Print these fields of records as a table."""
    print_table(names, [[record[name] for name in names] for record in records])


def report(error: ZooError, *, as_json: bool) -> None:
    """Print an error and its remedy on standard error."""
    if as_json:
        document: dict[str, Any] = {"code": error.code, "detail": error.detail, "remedy": error.remedy}
        if isinstance(error, ApiError):
            document |= {"status": error.status, "field": error.field, **error.extra}
        print_note(to_json({"error": document}))
        return
    print_note(f"error: {error.detail}  [{error.code}]")
    if error.remedy:
        print_note(f"  try: {error.remedy}")


def quiet_retries() -> None:
    """Print one message for all retries on a terminal, and none elsewhere."""
    import stamina.instrumentation

    has_reported = False

    def report_once(details: stamina.instrumentation.RetryDetails) -> None:
        nonlocal has_reported
        if not has_reported and details.waited_so_far > _SILENT_SECONDS:
            has_reported = True
            print_note(f"{details.caused_by}: trying again …")

    stamina.instrumentation.set_on_retry_hooks([report_once] if sys.stderr.isatty() else [])


def log_to_stderr(level: str = "INFO") -> None:
    """Send this process's log to standard error, libraries' from level ``WARNING``."""
    quiet_retries()
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)-7s %(message)s", stream=sys.stderr)
    for library in ("httpx", "httpcore", "urllib3", "web3"):
        logging.getLogger(library).setLevel(logging.WARNING)
