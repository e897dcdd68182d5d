"""The documented codes are those of the code."""

import re
from pathlib import Path

from market.api.problem_pages import known_problems, problems_page

PAGE = Path(__file__).parents[3] / "docs/problems.md"


def test_problems_page_is_current() -> None:
    assert PAGE.read_text() == problems_page(), "run: python -m market.api.problem_pages > docs/problems.md"


def test_codes_are_unique_described_kebab_case() -> None:
    for code, problem in known_problems().items():
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", code)
        assert 400 <= problem.status < 600
        assert problem.title[0].isupper()
    documented = re.findall(r"^\| `([a-z0-9-]+)` \|", PAGE.read_text(), flags=re.MULTILINE)
    assert documented == sorted(known_problems())
