"""One benchmark's numbers as rows, and the command line that prints them."""

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import psutil
import torch


@dataclass(frozen=True, slots=True)
class Row:
    """``value`` is the median over repetitions or seeds, ``min`` and ``max`` their spread."""

    name: str
    value: float
    unit: str
    min: float
    max: float
    note: str = ""


def row(name: str, values: Sequence[float], unit: str, note: str = "") -> Row:
    """The row of repeated measurements."""
    return Row(name, statistics.median(values), unit, min(values), max(values), note)


def main(benchmark: str, measure: Callable[[bool], list[Row]], seeds: int) -> None:
    """Run ``measure(quick)`` and print one JSON object (``--json``) or a table."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{benchmark}")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output, nothing else")
    parser.add_argument("--quick", action="store_true", help="a small version that shows only that it runs")
    options = parser.parse_args()
    torch.set_num_threads(1)
    start = time.monotonic()
    rows = measure(options.quick)
    machine = {
        "cpu": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 2**30),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }
    seconds = round(time.monotonic() - start, 1)
    if options.json:
        report = {
            "benchmark": benchmark,
            "machine": machine,
            "seeds": 1 if options.quick else seeds,
            "seconds": seconds,
        }
        print(json.dumps({**report, "rows": [asdict(item) for item in rows]}))
        return
    print("| row | value | min | max | unit | note |\n|---|---|---|---|---|---|")
    for item in rows:
        print(f"| {item.name} | {item.value:.4g} | {item.min:.4g} | {item.max:.4g} | {item.unit} | {item.note} |")
