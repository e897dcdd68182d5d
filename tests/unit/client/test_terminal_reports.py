"""Texts of the terminal: amounts, efficiency, events and the results of a replay."""

import json
import re
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from kit.errors import raises_code

from zoo_compute.audit.unit_record import Place
from zoo_compute.base.errors import JobUnsuccessful, Mismatch
from zoo_compute.base.models import Event, JobState, Progress
from zoo_compute.cli.verify import describe_attempt, report_unit
from zoo_compute.client.job import require_model
from zoo_compute.replay.check import Attempt, Difference, UnitCheck
from zoo_compute.terminal.job_reports import print_efficiency
from zoo_compute.terminal.output import in_zen, print_table
from zoo_compute.terminal.watch import describe, follow, loss_words
from zoo_protocol.verification.training_faults import DIVERGED_ADVICE

HONEST = "0x" + "a0" * 20


def test_wei_amounts_are_shown_in_zen() -> None:
    facts = {"budget_wei": 25 * 10**17, "clearing_price_wei_per_gpu_hour": "5" + "0" * 18, "fee_wei": None, "nodes": 4}
    assert in_zen(facts) == {"budget": "2.5 ZEN", "clearing_price_per_gpu_hour": "5 ZEN", "fee": None, "nodes": 4}


@pytest.mark.parametrize("width", ["60", "45"])
def test_narrow_terminal_shows_whole_key(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: str
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", width)
    key = "k" * 40
    print_table(("id", "status", "reason"), [(key, "s" * 40, "r" * 40)])
    [row] = [line for line in capsys.readouterr().out.splitlines() if key in line]
    assert row.count("│") == 4  # all columns


def test_efficiency_report_uses_readable_units(capsys: pytest.CaptureFixture[str]) -> None:
    node = {"provider": HONEST, "units": 8, "seconds_compute": 7265.04, "seconds_transfer": 3.25}
    node |= {"bytes_up": 1_234_567, "bytes_down": 0, "up_bytes_per_second": 2_500_000, "down_bytes_per_second": None}
    report: dict[str, Any] = {"seconds": 12.3, "units_delivered": 8, "units_reported": 7, "units_late": 1}
    report |= {"tokens": 196_608, "tokens_per_second": 1234.5, "ideal_tokens_per_second": None, "share_of_ideal": 0.934}
    report |= {"share_compute": 0.5, "share_transfer": 0.1, "share_wait": None, "bytes_up": 1_234_567}
    report |= {"bytes_down": 5_000_000, "bytes_up_measured": 1_000_000, "claims": "bytes_up", "nodes": [node]}
    print_efficiency(report)
    shown = capsys.readouterr().out
    for words in (
        "12.3 s (or to",
        "8 delivered, 1 of them late, 7 with a report",
        "1,234.5",
        "93.4%",
        "1.23 MB; of results 1.00 MB",
        f"{HONEST}\t8\t2:01:05\t3.2 s\t1.23 MB\t0.00 MB\t20.0 Mb/s\t-",
    ):
        assert words in shown
    print_efficiency(report | {"nodes": []})


def test_events_are_described_in_sentences() -> None:
    event = Event(id=1, kind="round", data={"round": 2, "rounds": 8, "validation_loss": "3.1"})
    assert describe(event) == "round 2 of 8 done, validation loss 3.1"
    known_later = Event(id=1, kind="round", data={"round": 2, "rounds": 8, "validation_loss": None})
    assert describe(known_later) == "round 2 of 8 done"
    known = Event(
        id=1, kind="validation", data={"round": 2, "cid": "b", "validation_loss": "3.1", "validation_samples": 256}
    )
    assert describe(known) == "validation loss after round 2: 3.1 (256 samples)"
    known.data["validation_error"] = "0.2"
    assert describe(known) == "validation loss after round 2: 3.1 ± 0.2 (256 samples)"
    assert describe(Event(id=2, kind="step", data={"step": 1})) is None
    ended = describe(Event(id=2, kind="status", data={"status": "failed", "reason": "diverged"}))
    assert ended == f"job is failed (diverged). {DIVERGED_ADVICE}"
    lost = {"round": 0, "slot": 3, "provider": "0xab", "status": "rejected", "reason": "incorrect_computation"}
    assert describe(Event(id=3, kind="unit", data=lost)) == (
        "unit rejected: round 0, slot 3, 0xab (incorrect_computation)"
    )
    late = {"round": 0, "slot": 3, "segment": 1, "provider": "0xab"}
    start = "provider 0xab is late with a state: round 0, slot 3, segment 1, "
    assert describe(Event(id=4, kind="late", data=late)) == start + "not revealed yet"
    assert describe(Event(id=5, kind="late", data=late | {"shown_at": "noon"})) == start + "revealed at noon"


def test_unknown_error_of_loss_is_omitted() -> None:
    assert [loss_words("3.1", "0.2"), loss_words("3.1", None)] == ["3.1 ± 0.2", "3.1"]
    assert loss_words(None, None) == "unknown"


def test_unsuccessful_job_names_its_diagnosis() -> None:
    with raises_code(JobUnsuccessful, "diverged") as ended:
        require_model(JobState.model_construct(id="0x12", status="settled", reason="diverged"))
    assert ended.value.remedy == "See why: zoo-compute job why 0x12"


def status_event(status: str, **data: Any) -> Event:
    return Event(id=1, kind="status", data={"status": status, "reason": None, **data})


@pytest.mark.parametrize("status", ["matching", "running"])
def test_pause_and_resumption_are_described(status: str) -> None:
    assert describe(status_event(status, paused=True)) == f"job is {status}, paused"
    assert describe(status_event(status, paused=False)) == f"job is {status}, resumed"
    assert describe(status_event(status)) == f"job is {status}"


@pytest.mark.parametrize(
    ("events", "shown"),
    [
        ([], "running, paused"),
        ([status_event("running", paused=True)], "running, paused"),
        ([status_event("running", paused=True), status_event("running", paused=False)], "running"),
        ([status_event("running", paused=True), status_event("cancelled")], "cancelled"),
    ],
    ids=["before_events", "paused", "resumed", "ended"],
)
def test_progress_bar_shows_pause(
    events: list[Event], shown: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    done = Progress(round=1, rounds=3, units={}, validation_loss=None)
    paused = JobState.model_construct(status="running", paused_at=datetime.now(UTC), rounds=3, progress=done)
    job: Any = SimpleNamespace(state=lambda: paused, events=lambda: events)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "120")
    follow(job, as_json=False)
    frames = re.findall(r"([a-z]+(?:, paused)?) +━", re.sub(r"\x1b\[[^a-zA-Z]*[a-zA-Z]", "", capsys.readouterr().err))
    assert frames[-1] == shown


@pytest.mark.parametrize(
    ("difference", "sentence"),
    [
        (None, "0xA (verified): every step is as committed in window 3, trace root 0x1"),
        (
            Difference(),
            "0xA (verified): differs; the first wrong step is unknown without its leaves; the first wrong tensor is "
            "unknown without its files",
        ),
        (
            Difference(5, 8, "state 2", "parameters.head", 7, 4_096, 0.25),
            "0xA (verified): differs first in one of the steps 5 to 8, without a committed state between (STEP 1 of "
            "`dispute name`); in the served state 2, parameters.head differs in 7 of 4,096 entries, by up to 0.25",
        ),
        (
            Difference(3, 3, "payload", "head", 7, 4_096, 0.25),
            "0xA (verified): differs first in step 3 (STEP 2 of `dispute name`); in the payload, after the last step, "
            "head differs in 7 of 4,096 entries, by up to 0.25",
        ),
        (
            Difference(0, 0),
            "0xA (verified): differs from the start: another checkpoint or replica state (STEP 0 of `dispute name`); "
            "the first wrong tensor is unknown without its files",
        ),
        (
            Difference(diverges="loss is not finite at step 2"),
            "0xA (verified): false, training diverges: loss is not finite at step 2 (steps from 0)",
        ),
    ],
)
def test_replay_result_is_described(difference: Difference | None, sentence: str) -> None:
    right = "0x1" if difference is None else "0x2"
    assert describe_attempt(Attempt("0xA", "verified", None, "0x1", right, 3, difference, 0)) == sentence


def test_unit_forfeited_by_dispute_is_marked() -> None:
    forfeited = Attempt("0xA", "verified", None, "0x1", "0x2", 3, Difference(), 0, struck=True)
    assert describe_attempt(forfeited).startswith("0xA (verified, forfeited after a dispute): differs")


def test_unsigned_payload_is_reported() -> None:
    other = Attempt("0xA", "verified", None, "0x1", "0x1", 3, None, 0, other_payload=True)
    assert describe_attempt(other).startswith("0xA (verified): every step is as committed, but the payload")


def test_replay_contradicting_market_has_own_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    paid = Attempt("0xA", "verified", None, "0x1", "0x2", 3, Difference(), 86_400)
    caught = Attempt("0xB", "rejected", "incorrect_computation", "0x3", "0x2", 3, Difference(), 0)
    fine = UnitCheck(Place("0x", 0, 0), "0x", [caught], [], [], True)
    report_unit(fine, as_json=True)
    assert json.loads(capsys.readouterr().out)["attempts"][0]["provider"] == "0xB"
    with pytest.raises(Mismatch) as error:
        report_unit(UnitCheck(Place("0x", 0, 0), "0x", [caught, paid], [], [], True), as_json=False)
    assert error.value.code == "unit-misjudged"
    assert "0xA" in error.value.detail
    assert "0xB" not in error.value.detail
    assert "by 1970-01-02T00:00:00+00:00" in (error.value.remedy or "")
