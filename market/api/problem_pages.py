"""The page behind every problem's ``type``: what the code means and what to do."""

import importlib
import pkgutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from fastapi import APIRouter
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, select_autoescape

import market
from market.platform.http.errors import NotFound
from market.platform.http.problem import MarketError

router = APIRouter(include_in_schema=False)
_templates = Environment(loader=FileSystemLoader(Path(__file__).parent / "templates"), autoescape=select_autoescape())
_SAYS_ITSELF = "The problem document's `remedy` says what to do."
_PAGE_HEAD = """# Problem codes

Every refusal is a problem document (RFC 9457, `application/problem+json`) with the members `type`, `title`, `status`,
`detail`, `code`, `field`, `remedy` and `instance`. Codes are stable: within `/v1` none is renamed or given another
meaning. Every running market serves this page at `/problems`. It is made by `python -m market.api.problem_pages`.

| code | status | what it says | what to do |
|---|---|---|---|"""
_HEADERS = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"}


@router.get("/problems")
def list_problems() -> HTMLResponse:
    """All codes."""
    return _page(sorted(known_problems().values(), key=lambda problem: problem.code))


@router.get("/problems/{code}")
def get_problem(code: str) -> HTMLResponse:
    """One code."""
    problem = known_problems().get(code)
    if problem is None:
        raise NotFound(f"no problem has the code {code[:80]!r}", remedy="All codes are at /problems.")
    return _page([problem])


@cache
def known_problems() -> dict[str, type[MarketError]]:
    """Every problem of the market by its code."""
    for module in pkgutil.walk_packages(market.__path__, "market."):
        if module.name.endswith(".errors"):
            importlib.import_module(module.name)
    return {
        error.code: error
        for error in _descendants(MarketError)
        if hasattr(error, "code") and error.__module__.startswith("market.")
    }


def problems_page() -> str:
    """Return the Markdown of ``docs/problems.md`` (``python -m market.api.problem_pages``)."""
    rows = [
        f"| `{problem.code}` | {problem.status} | {problem.title} | {problem.default_remedy or _SAYS_ITSELF} |"
        for problem in sorted(known_problems().values(), key=lambda problem: problem.code)
    ]
    return "\n".join([_PAGE_HEAD, *rows, ""])


def _descendants(error: type[MarketError]) -> Iterator[type[MarketError]]:
    for child in error.__subclasses__():
        yield child
        yield from _descendants(child)


def _page(problems: list[type[MarketError]]) -> HTMLResponse:
    return HTMLResponse(_templates.get_template("problems.html").render(problems=problems), headers=_HEADERS)


if __name__ == "__main__":
    from market.api.problem_pages import (
        problems_page as page,  # this module under its own name, which the features import
    )

    print(page(), end="")
