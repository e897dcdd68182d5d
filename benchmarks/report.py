"""Report format of all benchmarks.

A benchmark is a module with ``measure(quick) -> list[Row]`` that ends in ``run("name", measure)``. ``python -m
benchmarks.NAME --json`` prints one JSON object on standard output; without ``--json`` it prints a Markdown table.
Progress goes to standard error. ``--quick`` runs a small version that only proves that the benchmark works.
"""

import argparse
import importlib.metadata
import json
import math
import os
import platform
import signal
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import psutil
import structlog

from zoo_compute.base.plain_json import to_json

Z99 = statistics.NormalDist().inv_cdf(0.995)
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Row:
    """One figure: the median over repetitions or seeds, and its spread."""

    name: str
    value: float
    unit: str
    min: float
    max: float
    note: str = ""
    repetitions: int = 1


def row(name: str, unit: str, values: Sequence[float], note: str = "") -> Row:
    """Return the row of repeated measurements. Raises ValueError: ``values`` is empty."""
    if not values:
        raise ValueError(f"values of {name} is empty; expected at least one measurement")
    return Row(name, statistics.median(values), unit, min(values), max(values), note, len(values))


def wilson(found: int, of: int) -> tuple[float, float]:
    """Return Wilson's 99 % bounds of the share ``found / of``."""
    share, z = found / of, Z99
    middle = (share + z * z / (2 * of)) / (1 + z * z / of)
    spread = z / (1 + z * z / of) * math.sqrt(share * (1 - share) / of + z * z / (4 * of * of))
    # Exact bounds for shares of 0 and 1, which rounding would miss.
    return middle - spread if found else 0.0, middle + spread if found < of else 1.0


def timed(
    work: Callable[[], _T], repetitions: int = 1, clock: Callable[[], float] = time.perf_counter
) -> tuple[_T, float]:
    """Return the result, and the seconds of the fastest run: that of an idle processor."""
    seconds = []
    for _ in range(repetitions):
        started = clock()
        result = work()
        seconds.append(clock() - started)
    return result, min(seconds)


def progress(text: str) -> None:
    """Print a progress line on standard error."""
    print(text, file=sys.stderr, flush=True)


def machine() -> dict[str, Any]:
    """Return the properties of the machine on which the figures depend."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(pages / 2**30),
        "python": platform.python_version(),
        "torch": importlib.metadata.version("torch"),
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
        needs: checks requirements outside Python before any measurement. FileNotFoundError: one is missing; the
            message gives the remedy.
        lacks: returns, after the report, the missing rows and their remedy; empty if complete.
    """
    options = report_options(name).parse_args(arguments)
    try:
        if needs is not None:
            needs()
    except FileNotFoundError as error:
        sys.exit(f"python -m benchmarks.{name}: {error}")
    started = time.perf_counter()
    rows = measure(options.quick)
    print_report(name, rows, time.perf_counter() - started, options.json)
    end(name, lacks() if lacks and not options.quick else "")


def end(name: str, lacking: str) -> None:
    """Fail if the report lacks rows; ``lacking`` names them and the remedy."""
    if lacking:
        sys.exit(f"python -m benchmarks.{name}: {lacking}")


def _stop(number: int, _frame: object) -> NoReturn:
    """End all children, since no caller knows a process whose start the signal interrupts."""
    for child in psutil.Process().children():
        with suppress(psutil.NoSuchProcess):
            child.terminate()
    sys.exit(128 + number)


def report_options(name: str) -> argparse.ArgumentParser:
    """Return the common command line of all benchmarks.

    Logs go to standard error, and signals end all processes.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _stop)
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument(
        "--quick", action="store_true", help="run a small version that only proves that the benchmark works"
    )
    return parser


def count(text: str) -> int:
    """Return the number of an option; an ``ArgumentTypeError`` names the expected ones."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"is {text}; expected a whole number from 1 on")
    return int(text)


def json_lines(path: Path) -> list[Any]:
    """Return the values of JSON lines, none without a file. A broken line ends the program."""
    found = []
    for number, line in enumerate(path.read_text().splitlines() if path.exists() else [], 1):
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:
            sys.exit(
                f"{path}:{number} is no JSON, as after an interruption. Remove the line; its run is measured again"
            )
    return found


def print_report(name: str, rows: Sequence[Row], seconds: float, as_json: bool) -> None:
    """Print the report on standard output: one JSON object, or a table."""
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
    except OSError:  # not Linux
        return platform.processor() or platform.machine()
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.machine())
