"""Data of charts: series over time or rounds for uPlot, step curves as SVG points."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from market.console.reads.market import Step

WIDTH, HEIGHT = 640, 220
Value = int | str | None


def decimal_zen(wei: int | None) -> str | None:
    """Return an amount in ZEN as a plain decimal string, which a chart can read."""
    return None if wei is None else f"{Decimal(wei).scaleb(-18):f}"


def time_series(points: Iterable[tuple[datetime, Sequence[Value]]], names: Sequence[str]) -> dict[str, Any]:
    """Return the series of a chart over time; each point has one value per name."""
    return number_series([(int(at.timestamp()), values) for at, values in points], names)


def number_series(points: Iterable[tuple[int, Sequence[Value]]], names: Sequence[str]) -> dict[str, Any]:
    """Return the series of a chart over a number; each point has one value per name."""
    found = list(points)
    return {
        "x": [x for x, _ in found],
        "y": [[values[at] for _, values in found] for at in range(len(names))],
        "names": list(names),
    }


def step_points(curves: Sequence[Sequence[Step]]) -> list[str]:
    """Return the points of each curve: price to the right, nodes upwards, one scale for all."""
    prices = [step.price_wei for curve in curves for step in curve]
    if not prices:
        return [""] * len(curves)
    low, high = min(prices), max(prices)
    most = max(step.nodes for curve in curves for step in curve)
    return [_points(curve, low, max(1, high - low), most) for curve in curves]


def _points(curve: Sequence[Step], low: int, span: int, most: int) -> str:
    pairs: list[tuple[int, int]] = []
    for step in curve:
        x, y = (step.price_wei - low) * WIDTH // span, HEIGHT - step.nodes * HEIGHT // most
        pairs += [(x, pairs[-1][1] if pairs else HEIGHT), (x, y)]
    return " ".join(f"{x},{y}" for x, y in pairs)
