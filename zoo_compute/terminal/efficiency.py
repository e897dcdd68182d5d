"""Output of a job's efficiency report."""

from datetime import timedelta
from typing import Any

from zoo_compute.terminal.output import print_facts, print_table

_COLUMNS = ("node", "units", "compute", "transfer", "sent", "fetched", "last rate up", "last rate down")


def print_efficiency(found: dict[str, Any]) -> None:
    """Print the report of ``GET /v1/jobs/{id}/efficiency`` and a table of its nodes."""
    units = "{units_delivered} delivered, {units_late} of them late, {units_reported} with a report".format(**found)
    print_facts(
        {
            "from the match to the end of training": f"{_time(found['seconds'])} (or to the last unit so far)",
            "work units": units,
            "tokens": f"{found['tokens']:,}",
            "tokens per second": _rate(found["tokens_per_second"]),
            "the same nodes in one place": _rate(found["ideal_tokens_per_second"]),
            "share of that": _share(found["share_of_ideal"]),
            **{
                f"of the nodes' time, {part}": _share(found[f"share_{part}"])
                for part in ("compute", "transfer", "wait")
            },
            "sent": f"{_size(found['bytes_up'])}; of results {_size(found['bytes_up_measured'])}, as the market read",
            "fetched": _size(found["bytes_down"]),
            "not verified": "reports of nodes: compute, transfer, wait, one place, sent, fetched, the table",
        }
    )
    if found["nodes"]:
        print_table(_COLUMNS, [_row(node) for node in found["nodes"]])


def _row(node: dict[str, Any]) -> list[object]:
    return [
        node["provider"],
        node["units"],
        *(_time(node[f"seconds_{part}"]) for part in ("compute", "transfer")),
        *(_size(node[f"bytes_{way}"]) for way in ("up", "down")),
        *(_mbps(node[f"{way}_bytes_per_second"]) for way in ("up", "down")),
    ]


def _time(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 60 else str(timedelta(seconds=round(seconds)))


def _rate(tokens: float | None) -> str | None:
    return None if tokens is None else f"{tokens:,.1f}"


def _share(share: float | None) -> str | None:
    return None if share is None else f"{share:.1%}"


def _size(size: int) -> str:
    return f"{size / 1e6:,.2f} MB"


def _mbps(rate: int | None) -> str | None:
    return None if rate is None else f"{rate * 8 / 1e6:,.1f} Mb/s"
