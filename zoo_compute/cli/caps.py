"""Options for spending caps, shared by keys and organisations."""

from typing import Annotated, Any

import typer

from zoo_compute.base.amounts import format_zen, parse_zen

PerJob = Annotated[str | None, typer.Option("--per-job", help="Limit one job to so many ZEN; default: no limit.")]
PerDay = Annotated[
    str | None, typer.Option("--per-day", help="Limit the jobs of one day (UTC) to so many ZEN; default: no limit.")
]
Total = Annotated[str | None, typer.Option("--total", help="Limit all jobs to so many ZEN; default: no limit.")]


def caps_body(per_job: str | None, per_day: str | None, total: str | None) -> dict[str, str]:
    """Return the given caps as API fields. Raises ConfigError for a malformed amount."""
    given = {"per_job": per_job, "per_day": per_day, "total": total}
    return {
        f"{name}_wei": str(parse_zen(amount, f"--{name.replace('_', '-')}"))
        for name, amount in given.items()
        if amount is not None
    }


def caps_text(spending: dict[str, Any] | None) -> str:
    """Return caps and their use as text."""
    if spending is None:
        return "none"
    names = {"per_job_wei": "a job", "per_day_wei": "a day", "total_wei": "in all"}
    caps = [f"{format_zen(int(spending[key]))} {name}" for key, name in names.items() if spending[key] is not None]
    used = f"used {format_zen(int(spending['spent_today_wei']))} today, {format_zen(int(spending['spent_total_wei']))}"
    return f"{', '.join(caps) or 'none'} ({used} in all)"
