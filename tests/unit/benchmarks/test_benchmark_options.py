"""Options of benchmarks, and their files of kept runs, explain what is wrong with them."""

import sys
from pathlib import Path

import pytest
import torch

from benchmarks import byzantine, communication
from benchmarks.realistic.outcomes import Outcomes
from benchmarks.robustness.kept import KeptRuns

REALISTIC = ("--kept", "--part", "realistic")


@pytest.mark.usefixtures("own_logs")
@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("communication", (*REALISTIC, "--seeds", "0"), "is 0; expected a whole number from 1 on"),
        ("communication", (*REALISTIC, "--only", "typo"), "--only is 'typo'; expected one of 'dense', 'ours'"),
        ("communication", (*REALISTIC, "--size", "half"), "leave out --kept to measure them"),
        ("communication", (*REALISTIC, "--steps", "30"), "--steps is for the small part"),
        ("communication", ("--part", "realistic", "--size", "gpu"), "--size gpu needs a CUDA device; with --kept"),
        ("byzantine", ("--kept", "--seeds", "-1"), "is -1; expected a whole number from 1 on"),
        ("byzantine", ("--kept", "--part", "short"), "leave out --quick and --part short"),
    ],
)
def test_option_without_result_is_explained(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    options: tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(sys, "argv", [name, *options])
    with pytest.raises(SystemExit) as ended:
        {"communication": communication, "byzantine": byzantine}[name].main()
    assert message in f"{ended.value.code}{capsys.readouterr().err}"


@pytest.mark.usefixtures("own_logs")
def test_trial_with_comma_is_selected(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    trial = "rounds of 15, averaged momentum"
    options = ["communication", *REALISTIC, "--size", "proxy", "--tune", "--only", trial]
    monkeypatch.setattr(sys, "argv", options)
    communication.main()
    assert [line.split(" | ")[0] for line in capsys.readouterr().out.splitlines() if "nats" in line] == [f"| {trial}"]


def test_broken_line_of_kept_runs_is_named(tmp_path: Path) -> None:
    path = tmp_path / "kept.jsonl"
    path.write_text('{"run": {}, "loss": 1.0}\n{"run": {}, "lo')
    for read in (Outcomes, communication.OutcomeCache, lambda path: KeptRuns(path, tmp_path)):
        with pytest.raises(SystemExit, match=r"kept\.jsonl:2 is no JSON"):
            read(path)
