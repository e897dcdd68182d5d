"""Pages behind every problem's ``type``, with the meaning of the code and a remedy."""

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
_OWN_REMEDY = "See the problem document's `remedy`."
_PAGE_HEAD = """# Problem codes

Every refusal is a problem document (RFC 9457, `application/problem+json`) with the members `type`, `title`, `status`,
`detail`, `code`, `field`, `remedy` and `instance`. Codes are stable: within `/v1` no code is renamed or changes its
meaning. Every running market serves this page at `/problems`. `python -m market.api.problem_pages` generates it.

| code | status | title | remedy |
|---|---|---|---|"""
_HEADERS = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"}


@router.get("/problems")
def list_problems() -> HTMLResponse:
    return _page(sorted(known_problems().values(), key=lambda problem: problem.code))


@router.get("/problems/{code}")
def get_problem(code: str) -> HTMLResponse:
    problem = known_problems().get(code)
    if problem is None:
        raise NotFound(f"no problem has the code {code[:80]!r}", remedy="See /problems for all codes.")
    return _page([problem])


@cache
def known_problems() -> dict[str, type[MarketError]]:
    """Return every problem of the market by its code."""
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
        f"| `{problem.code}` | {problem.status} | {problem.title} | {problem.default_remedy or _OWN_REMEDY} |"
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
    print(problems_page(), end="")
