"""The one form in which every benchmark says what it measured.

A benchmark is a module with ``measure(quick) -> list[Row]`` that ends in ``run("name", measure)``. Then
``python -m benchmarks.NAME --json`` prints one JSON object and nothing else on standard output, without ``--json`` a
table in Markdown; progress goes to standard error. ``--quick`` runs a small version which shows only that it runs.
"""

import argparse
import importlib.metadata
import math
import os
import platform
import signal
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

import structlog

from zoo_compute.base.plain_json import to_json

_Z99 = statistics.NormalDist().inv_cdf(0.995)


@dataclass(frozen=True, slots=True)
class Row:
    """One figure: the median over repetitions or seeds, and how far they spread."""

    name: str
    value: float
    unit: str
    min: float
    max: float
    note: str = ""
    repetitions: int = 1


def row(name: str, unit: str, values: Sequence[float], note: str = "") -> Row:
    """The row of several repetitions of one measurement.

    Raises:
        ValueError: there are none.
    """
    if not values:
        raise ValueError(f"{name}: nothing was measured")
    return Row(name, statistics.median(values), unit, min(values), max(values), note, len(values))


def wilson(found: int, of: int) -> tuple[float, float]:
    """Wilson's 99 % bounds of the share ``found / of``."""
    share, z = found / of, _Z99
    middle = (share + z * z / (2 * of)) / (1 + z * z / of)
    spread = z / (1 + z * z / of) * math.sqrt(share * (1 - share) / of + z * z / (4 * of * of))
    # Exact where the share is 0 or 1, which rounding would miss.
    return middle - spread if found else 0.0, middle + spread if found < of else 1.0


def progress(text: str) -> None:
    """A line on standard error about what is being done."""
    print(text, file=sys.stderr, flush=True)


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(pages / 2**30),
        "python": platform.python_version(),
        "torch": _version("torch"),
        "load": [round(load, 1) for load in os.getloadavg()],
    }


def run(
    name: str,
    measure: Callable[[bool], Sequence[Row]],
    arguments: Sequence[str] | None = None,
    needs: Callable[[], object] | None = None,
    lacks: Callable[[], str] | None = None,
) -> None:
    """Measure, and print the report on standard output.

    Args:
        needs: looks for what is not installed with Python, before anything is measured. FileNotFoundError: it is not
            there; the message tells how to get it.
        lacks: asked after the report for what it had to leave out, and how to get that; empty if nothing.
    """
    options = report_options(name).parse_args(arguments)
    try:
        if needs is not None:
            needs()
    except FileNotFoundError as error:
        sys.exit(f"python -m benchmarks.{name}: {error}")
    for number in (signal.SIGTERM, signal.SIGHUP):  # so that whatever was started is ended, as after an interrupt
        signal.signal(number, _stop)
    started = time.perf_counter()
    rows = measure(options.quick)
    print_report(name, rows, time.perf_counter() - started, options.json)
    end(name, lacks() if lacks and not options.quick else "")


def end(name: str, lacking: str) -> None:
    """End with a failure if the report lacks rows; ``lacking`` says which, and how to get them."""
    if lacking:
        sys.exit(f"python -m benchmarks.{name}: {lacking}")


def _stop(number: int, _frame: object) -> NoReturn:
    sys.exit(128 + number)


def report_options(name: str) -> argparse.ArgumentParser:
    """What every benchmark's command line takes. From here on logs go to standard error: the report is alone on the
    other."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument("--quick", action="store_true", help="a small version that shows only that it runs")
    return parser


def print_report(name: str, rows: Sequence[Row], seconds: float, as_json: bool) -> None:
    """The report on standard output: one JSON object, or a table."""
    seconds = round(seconds, 1)
    seeds = max((found.repetitions for found in rows), default=0)
    if as_json:
        listed = [{key: value for key, value in asdict(found).items() if key != "repetitions"} for found in rows]
        print(to_json({"benchmark": name, "machine": machine(), "seeds": seeds, "seconds": seconds, "rows": listed}))
        return
    where = machine()
    print(
        f"Machine: {where['cores']} cores ({where['cpu']}), {where['memory_gb']} GB memory, Python {where['python']}, "
        f"torch {where['torch']}, load {where['load'][1]}. "
        f"{seeds} repetitions, {seconds} s. Command: `python -m benchmarks.{name}`.\n"
    )
    print("| row | median | min | max | unit | note |\n|---|---|---|---|---|---|")
    for found in rows:
        amounts = " | ".join(_number(amount) for amount in (found.value, found.min, found.max))
        print(f"| {found.name} | {amounts} | {found.unit} | {found.note} |")


def _number(amount: float) -> str:
    return f"{amount:,}" if isinstance(amount, int) or amount.is_integer() else f"{amount:,.4g}"


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:  # no Linux
        return platform.processor() or platform.machine()
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.machine())


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
