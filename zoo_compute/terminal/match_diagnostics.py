"""Output of match diagnostics."""

from datetime import UTC, datetime
from typing import Any

from zoo_compute.base.amounts import short_zen
from zoo_compute.terminal.output import print_table, zen


def print_diagnostics(why: dict[str, Any]) -> None:
    """Print findings, nodes left after each constraint, order books, and changes that help."""
    for finding in why["findings"]:
        print(f"{finding['sentence']}  [{finding['code']}]")
    if why["constraints"]:
        print(f"\nOf {why['nodes_total']} nodes of the tier; {why['nodes']} are wanted:")
        rows = [(step["code"], step["removes"], step["left"], step["sentence"]) for step in why["constraints"]]
        print_table(("constraint", "removes", "left", "which"), rows)
    if why["books"]:
        limit = short_zen(int(why["limit_price_wei_per_gpu_hour"]))
        print(f"\nIts limit is {limit} ZEN per GPU-hour:")
        print_table(
            ("book", "class", "suitable", "affordable", "free", "price now", "last price", "next round", "expected"),
            [
                (
                    book["book"],
                    book["environment_class"][:10],
                    *(book[count] for count in ("suitable", "affordable", "free")),
                    *(zen(book[f"{which}_wei_per_gpu_hour"]) for which in ("price_now", "last_price")),
                    _next(book["next_round_at"]),
                    book["expected_at"],
                )
                for book in why["books"]
            ],
        )
    if why["changes"]:
        print("\nChanges that help (cancel the job for a full refund, then submit it again):")
        for change in why["changes"]:
            print(f"  {change['field']}: {change['sentence']}")


def _next(at: str | None) -> str | None:
    return "once it trades" if at is not None and datetime.fromisoformat(at) <= datetime.now(UTC) else at
