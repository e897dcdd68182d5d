"""The documented codes are those of the code."""

import re
from itertools import chain
from pathlib import Path
from typing import Any

from typer.main import get_command

from market.api.problem_pages import known_problems, problems_page
from zoo_compute.cli.main import app

PAGE = Path(__file__).parents[3] / "docs/problems.md"


def test_problems_page_is_current() -> None:
    assert PAGE.read_text() == problems_page(), "run: python -m market.api.problem_pages > docs/problems.md"


def test_remedies_name_existing_commands() -> None:
    named = {
        code: re.findall("zoo-compute ([a-z]+)(?: ([a-z-]+))?", problem.default_remedy or "")
        for code, problem in known_problems().items()
    }
    for code in ("job-not-found", "order-fixed", "organisation-not-found", "webhook-not-found", "dataset-not-found"):
        assert named[code]
    groups: dict[str, Any] = vars(get_command(app))["commands"]
    for group, command in chain.from_iterable(named.values()):
        assert group in groups
        assert not command or command in groups[group].commands


def test_codes_are_unique_described_kebab_case() -> None:
    for code, problem in known_problems().items():
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", code)
        assert 400 <= problem.status < 600
        assert problem.title[0].isupper()
    documented = re.findall(r"^\| `([a-z0-9-]+)` \|", PAGE.read_text(), flags=re.MULTILINE)
    assert documented == sorted(known_problems())
