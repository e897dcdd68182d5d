"""How results and errors are shown: JSON for programs, tables for people, plain text where nobody watches."""

import logging
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import typer

from zoo_compute.base.amounts import format_zen
from zoo_compute.base.errors import ApiError, ZooError
from zoo_compute.base.plain_json import to_json

_SILENT_SECONDS = 2  # of pauses before attempts that failed
JsonFlag = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def print_json(value: Any) -> None:
    """One JSON document on standard output. Amounts are decimal strings."""
    print(to_json(value, indent=2), flush=True)


def note(text: str) -> None:
    """A line for people, on standard error."""
    print(text, file=sys.stderr, flush=True)


def done(text: str, facts: Mapping[str, object], *, as_json: bool) -> None:
    """What a command without data of its own has done: a line for people, or its facts as JSON."""
    if as_json:
        print_json(facts)
    else:
        note(text)


def print_facts(facts: Mapping[str, object]) -> None:
    """Names and values, one a line."""
    width = max((len(name) for name in facts), default=0)
    for name, value in facts.items():
        print(f"{name:<{width}}  {'-' if value is None else value}")


def in_zen(facts: Mapping[str, Any]) -> dict[str, object]:
    """The same for people: what is in wei by its name (``budget_wei``) in ZEN, under a name without it."""
    return {
        name.replace("_wei", ""): f"{format_zen(int(value))} ZEN" if "_wei" in name and value is not None else value
        for name, value in facts.items()
    }


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table on standard output: drawn on a terminal, tab-separated elsewhere."""
    cells = [["-" if cell is None else str(cell) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        for row in [list(columns), *cells]:
            print("\t".join(row))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns)
    for row in cells:
        table.add_row(*(Text(cell) for cell in row))  # what others wrote is shown, not interpreted
    Console().print(table)


def report(error: ZooError, *, as_json: bool) -> None:
    """An error on standard error: what is wrong and what to do."""
    if as_json:
        document: dict[str, Any] = {"code": error.code, "detail": error.detail, "remedy": error.remedy}
        if isinstance(error, ApiError):
            document |= {"status": error.status, "field": error.field, **error.extra}
        note(to_json({"error": document}))
        return
    note(f"error: {error.detail}  [{error.code}]")
    if error.remedy:
        note(f"  try: {error.remedy}")


def quiet_retries() -> None:
    """Say nothing of attempts that are repeated: what fails for good is reported, and may not mix with results.

    Who sits before a terminal is told once why nothing happens.
    """
    import stamina.instrumentation

    said = False

    def tell(details: stamina.instrumentation.RetryDetails) -> None:
        nonlocal said
        if not said and details.waited_so_far > _SILENT_SECONDS:
            said = True
            note(f"{details.caused_by}: trying again …")

    stamina.instrumentation.set_on_retry_hooks([tell] if sys.stderr.isatty() else [])


def log_to_stderr(level: str = "INFO") -> None:
    """Let the log of this process go to standard error, without the chatter of libraries."""
    quiet_retries()
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)-7s %(message)s", stream=sys.stderr)
    for library in ("httpx", "httpcore", "urllib3", "web3"):
        logging.getLogger(library).setLevel(logging.WARNING)
