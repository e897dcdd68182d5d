"""The question before money moves."""

import io
import re
import sys

import pytest
from kit.errors import raises_code

from zoo_compute.base.errors import ConfigError, ZooError
from zoo_compute.base.models import Quote
from zoo_compute.terminal.job_reports import approval, print_quote
from zoo_compute.terminal.output import confirm

PLAN = {"bond": "100 ZEN"}
ZEN = 10**18


class Terminal(io.StringIO):
    """Standard input of a person."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("answer", ["y\n", "YES\n"])
def test_consent_shows_plan_and_continues(
    answer: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    confirm(PLAN, "Open?", yes=False)
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", "bond  100 ZEN\nOpen? [y/N] ")


@pytest.mark.parametrize("answer", ["n\n", "\n", "", "yet\n"])
def test_other_answers_end_the_command(answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    with raises_code(ZooError, "not-confirmed"):
        confirm(PLAN, "Open?", yes=False)


def test_script_needs_option(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    with raises_code(ConfigError, "confirmation-missing") as ended:
        confirm(PLAN, "Open?", yes=False)
    assert "--yes" in str(ended.value.remedy)
    capsys.readouterr()
    confirm(PLAN, "Open?", yes=True)
    assert capsys.readouterr().err == ""


def test_advice_is_shown_without_question(capsys: pytest.CaptureFixture[str]) -> None:
    point = {"code": "diverged_rates", "detail": "It diverged.", "remedy": "Lower them."}
    approval(yes=True)(Quote.model_construct(advice=[point]), 1)
    shown = capsys.readouterr()
    assert (shown.out, shown.err.strip()) == ("", "It diverged. Lower them.  [diverged_rates]")


def test_quote_and_consent_round_maximum_up(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    amounts = dict.fromkeys(("cost_at_reserve_wei", "balance_wei", "deposit_needed_wei"), ZEN + 1)
    limits = dict.fromkeys(("cost_at_max_price_wei", "highest_payable_price_wei"), ZEN + 1)
    settings = {"batch_size": 8, "rounds": 2, "optimizer": "adamw", "learning_rate": 0.001, "precision": "float32"}
    rest = {"units": 2, "fee_bps": 500, "detection_probability": 0.25, "least_detection_probability": 0.02}
    found = Quote.model_construct(spec={"training_config": settings}, **amounts, **limits, **rest)
    print_quote(found)
    quoted = capsys.readouterr().out
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    approval(yes=False)(found, ZEN)
    consent = capsys.readouterr().err
    for shown in (quoted, consent):
        assert re.search(r"maximum cost +≈\s1\.00001 ZEN\n", shown)
        assert re.search(r"optimiser +adamw, peak rate 0\.001\n", shown)
    assert re.search(r"highest price it trades at +≈\s1\.00001 ZEN per GPU-hour\n", quoted)
    assert re.search(r"expected cost +≈\s1 ZEN\n", consent)
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    approval(yes=False)(found.model_copy(update={"cost_at_last_price_wei": 3 * ZEN}), ZEN)
    assert re.search(r"expected cost +≈\s1 ZEN\n", capsys.readouterr().err)
