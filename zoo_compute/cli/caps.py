"""Spending caps as options, shared by keys and organisations."""

from typing import Annotated, Any

import typer

from zoo_compute.base.amounts import format_zen, parse_zen

PerJob = Annotated[str | None, typer.Option("--per-job", help="Most ZEN that one job may commit.")]
PerDay = Annotated[str | None, typer.Option("--per-day", help="Most ZEN that the jobs of one day (UTC) may commit.")]
Total = Annotated[str | None, typer.Option("--total", help="Most ZEN that all jobs together may commit.")]


def caps_body(per_job: str | None, per_day: str | None, total: str | None) -> dict[str, str]:
    """The caps that were given, as the API takes them. Raises ConfigError for what is no amount."""
    given = {"per_job": per_job, "per_day": per_day, "total": total}
    return {
        f"{name}_wei": str(parse_zen(amount, f"--{name.replace('_', '-')}"))
        for name, amount in given.items()
        if amount is not None
    }


def caps_text(spending: dict[str, Any] | None) -> str:
    """Caps and what counts against them, for people."""
    if spending is None:
        return "none"
    names = {"per_job_wei": "a job", "per_day_wei": "a day", "total_wei": "in all"}
    caps = [f"{format_zen(int(spending[key]))} {name}" for key, name in names.items() if spending[key] is not None]
    used = f"used {format_zen(int(spending['spent_today_wei']))} today, {format_zen(int(spending['spent_total_wei']))}"
    return f"{', '.join(caps) or 'none'} ({used} in all)"
