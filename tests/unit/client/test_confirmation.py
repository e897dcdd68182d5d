"""The question before money moves."""

import io
import sys

import pytest
from kit.errors import raises_code

from zoo_compute.base.errors import ConfigError, ZooError
from zoo_compute.base.models import JobState, Quote
from zoo_compute.terminal.job_reports import approval, approval_to_continue
from zoo_compute.terminal.output import confirm

PLAN = {"bond": "100 ZEN"}


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


def test_diverged_job_warns_without_question(capsys: pytest.CaptureFixture[str]) -> None:
    data = {"dataset": "d", "replicas": 8, "start_checkpoint": "c", "start_round": 2}
    found = Quote.model_construct(spec={"data_config": data, "training_config": {"rounds": 7}})
    keys = "data_config:\n    start_checkpoint: c\n    start_round: 2\n"
    for reason, is_warned in (("diverged", True), ("completed", False)):
        state = JobState.model_construct(id="0x01", reason=reason)
        approval_to_continue(state, approval(yes=True))(found, 1)
        shown = capsys.readouterr()
        assert (shown.out, keys in shown.err, "set rounds to 7 and nodes to 8" in shown.err) == (
            "",
            is_warned,
            is_warned,
        )
