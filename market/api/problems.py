"""The page behind every problem's ``type``: what the code means and what to do."""

from collections.abc import Iterator
from pathlib import Path

from fastapi import APIRouter
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, select_autoescape

from market.api.errors import NotFound
from market.api.problem import MarketError

router = APIRouter(include_in_schema=False)

_templates = Environment(loader=FileSystemLoader(Path(__file__).parent / "templates"), autoescape=select_autoescape())
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


def known_problems() -> dict[str, type[MarketError]]:
    """Every problem by its code."""
    return {error.code: error for error in _descendants(MarketError) if hasattr(error, "code")}


def _descendants(error: type[MarketError]) -> Iterator[type[MarketError]]:
    for child in error.__subclasses__():
        yield child
        yield from _descendants(child)


def _page(problems: list[type[MarketError]]) -> HTMLResponse:
    return HTMLResponse(_templates.get_template("problems.html").render(problems=problems), headers=_HEADERS)
