"""Output for programs is JSON for every computed value."""

import json
import math
from datetime import UTC, datetime

import pytest

from benchmarks.report import Row, print_report
from zoo_compute.base.errors import ApiError
from zoo_compute.terminal.output import print_json, report


def _read(text: str) -> object:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_non_finite_numbers_are_null(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"loss": math.nan, "rows": [math.inf, (1.5, -math.inf)], 3: True, "at": datetime(2026, 1, 1, tzinfo=UTC)}
    print_json(value)
    expected = {"loss": None, "rows": [None, [1.5, None]], "3": True, "at": "2026-01-01 00:00:00+00:00"}
    assert _read(capsys.readouterr().out) == expected


def test_errors_and_benchmarks_are_json_too(capsys: pytest.CaptureFixture[str]) -> None:
    report(ApiError(422, "a-code", "detail", field="x", remedy=None, extra={"found": math.inf}), as_json=True)
    printed = _read(capsys.readouterr().err)
    assert isinstance(printed, dict)
    assert printed["error"]["found"] is None
    print_report("some", [Row("a row", math.inf, "s", 1.0, math.nan)], 1.0, as_json=True)
    printed = _read(capsys.readouterr().out)
    assert isinstance(printed, dict)
    assert [printed["rows"][0][name] for name in ("value", "min", "max")] == [None, 1.0, None]
