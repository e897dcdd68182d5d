"""The command line as a program: exit codes, JSON, errors that teach, and a quick start."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer
from kit.nodes.demo_training import TRAINING

from zoo_compute.audit.unit_record import Place
from zoo_compute.base.errors import ExitCode, Mismatch
from zoo_compute.base.models import Event
from zoo_compute.cli.main import app, main
from zoo_compute.cli.verify import describe_attempt, report_unit
from zoo_compute.demo.run import check_story, topics_dataset
from zoo_compute.replay.check import Attempt, Difference, UnitCheck
from zoo_compute.terminal.efficiency import print_efficiency
from zoo_compute.terminal.output import in_zen
from zoo_compute.terminal.watch import describe

ROOT = Path(__file__).parents[3]


def surroundings(directory: Path) -> dict[str, str]:
    """The environment of a command that finds nothing but what is in a directory."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("ZOO_")}
    return {**clean, "PYTHONPATH": str(ROOT), "XDG_CONFIG_HOME": str(directory / "config")}


def run_process(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "zoo_compute", *arguments],
        cwd=directory,
        env=surroundings(directory),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@dataclass(frozen=True)
class Ended:
    returncode: int
    stdout: str
    stderr: str


Run = Callable[..., Ended]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], own_logs: None) -> Run:
    """Runs the program in this process, in a directory and with the environment of :func:`surroundings`."""

    def run(directory: Path, *arguments: str, **environment: str) -> Ended:
        with monkeypatch.context() as patch:
            for name in set(os.environ) - surroundings(directory).keys():
                patch.delenv(name)
            for name, value in {**surroundings(directory), **environment}.items():
                patch.setenv(name, value)
            patch.chdir(directory)
            patch.setattr(sys, "argv", ["zoo-compute", *arguments])
            with pytest.raises(SystemExit) as ended:
                main()
        shown = capsys.readouterr()
        code = ended.value.code or 0
        assert isinstance(code, int)
        return Ended(code, shown.out, shown.err)

    return run


def test_missing_market_error_names_remedy(tmp_path: Path) -> None:
    done = run_process(tmp_path, "job", "list")
    assert done.returncode == ExitCode.USAGE
    assert done.stdout == ""
    assert "market-unknown" in done.stderr
    assert "--api-url" in done.stderr


def test_unreachable_market_has_own_exit_code(tmp_path: Path, run: Run) -> None:
    done = run(tmp_path, "network", "--json", ZOO_API_URL="nowhere")
    assert done.returncode == ExitCode.USAGE
    assert json.loads(done.stderr)["error"]["code"] == "api-url-malformed"


def test_terminal_user_is_notified_of_silent_market(tmp_path: Path) -> None:
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "zoo_compute", "job", "list", "--api-url", "http://127.0.0.1:1"]
    with subprocess.Popen(command, cwd=tmp_path, env=surroundings(tmp_path), stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        try:
            assert "ConnectError" in (said := os.read(ours, 4096).decode())
            assert "trying again" in said
            assert process.poll() is None, "it is told before the command ends"
        finally:
            process.kill()
            os.close(ours)


def test_errors_are_json_where_json_is_asked_for(tmp_path: Path, run: Run) -> None:
    done = run(tmp_path, "devnet", "info", "--json")
    assert done.returncode == ExitCode.DEVNET
    assert done.stdout == ""
    error = json.loads(done.stderr)["error"]
    assert error["code"] == "devnet-not-running"
    assert "devnet up" in error["remedy"]


def test_terminating_commands_can_answer_in_json(tmp_path: Path, run: Run) -> None:
    def commands(group: Any, path: str = "") -> Iterator[tuple[str, Any]]:
        for name, command in getattr(group, "commands", {}).items():
            yield from commands(command, f"{path} {name}".strip())
        if not hasattr(group, "commands"):
            yield path, command_options(group)

    def command_options(command: Any) -> set[str]:
        return {option for parameter in command.params for option in parameter.opts}

    without = [path for path, options in commands(typer.main.get_command(app)) if "--json" not in options]
    assert without == ["node run"]
    for nothing in (("down",), ("reset", "--directory", "none")):
        assert json.loads(run(tmp_path, "devnet", *nothing, "--json").stdout)


def test_help_says_what_an_option_is_without_it(tmp_path: Path, run: Run) -> None:
    shown = " ".join(run(tmp_path, "devnet", "up", "--help", COLUMNS="200").stdout.split())
    assert "default: 5" in shown  # what stands in brackets is markup, and not shown
    assert "default: fabricate" in shown


def test_a_full_disk_is_no_traceback(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "zoo_compute", "devnet", "down", "--json"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=full, stderr=subprocess.PIPE
        )
    assert done.returncode == ExitCode.FAILED
    assert b"[output-unwritable]" in done.stderr
    assert b"Traceback" not in done.stderr


def test_wrong_usage_and_invalid_key_are_refused(tmp_path: Path, run: Run) -> None:
    assert run(tmp_path, "job", "show").returncode == ExitCode.USAGE
    done = run(tmp_path, "job", "list", ZOO_API_URL="http://127.0.0.1:9", ZOO_PRIVATE_KEY="0xsecret")
    assert done.returncode == ExitCode.USAGE
    assert "private-key-malformed" in done.stderr
    assert "0xsecret" not in done.stderr


def test_a_node_without_a_wallet_does_not_start(tmp_path: Path, run: Run) -> None:
    done = run(tmp_path, "node", "run", "--api-url", "http://127.0.0.1:9", "--state-dir", "node")
    assert done.returncode == ExitCode.USAGE
    assert "wallet-missing" in done.stderr


@pytest.mark.parametrize(
    ("option", "value", "code"),
    [
        ("--profile", "cpu-avx512", "unknown-profile"),
        ("--payout-address", "0x12", "bad-address"),
        ("--state-dir", "file/node", "state-dir-unusable"),
        ("--min-price", "cheap", "amount-malformed"),
        ("--api-url", "http://[::1", "api-url-malformed"),
    ],
)
def test_node_with_impossible_option_reports_it(tmp_path: Path, run: Run, option: str, value: str, code: str) -> None:
    (tmp_path / "file").touch()
    options = {"--api-url": "http://127.0.0.1:9", "--state-dir": "node"} | {option: value}
    given = [word for pair in options.items() for word in pair]
    done = run(tmp_path, "node", "run", *given, ZOO_PRIVATE_KEY="0x" + "11" * 32)
    assert done.returncode == ExitCode.USAGE
    assert f"[{code}]" in done.stderr
    assert "try: " in done.stderr
    assert "Traceback" not in done.stderr


def test_devnet_interrupted_during_start_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from zoo_compute.cli.devnet import up
    from zoo_compute.devnet import control

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    stopped: list[Path] = []
    monkeypatch.setattr(control, "up", interrupted)
    monkeypatch.setattr(control, "down", lambda state: stopped.append(state.root))
    with pytest.raises(KeyboardInterrupt):
        up(tmp_path, None, None, False, None, None, True, False)
    assert stopped == [tmp_path]
    assert "stopping what was started" in capsys.readouterr().err


def test_devnet_requires_writable_directory(tmp_path: Path, run: Run) -> None:
    (tmp_path / "file").touch()
    done = run(tmp_path, "devnet", "up", "--directory", "file/net", "--detach")
    assert done.returncode == ExitCode.DEVNET
    assert "[devnet-directory-unusable]" in done.stderr


def test_interrupted_watch_reports_job_continues(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from zoo_compute.cli import job

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("zoo_compute.terminal.watch.follow", interrupted)
    client: Any = type("Client", (), {"job": lambda self, job_id: job_id})()
    with pytest.raises(KeyboardInterrupt):
        job._watch(client, "0x12", False)
    assert "job cancel 0x12" in capsys.readouterr().err


def test_people_read_amounts_in_zen() -> None:
    facts = {"budget_wei": 25 * 10**17, "clearing_price_wei_per_gpu_hour": "5" + "0" * 18, "fee_wei": None, "nodes": 4}
    assert in_zen(facts) == {"budget": "2.5 ZEN", "clearing_price_per_gpu_hour": "5 ZEN", "fee": None, "nodes": 4}


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


def test_demo_removes_only_its_own_devnet(tmp_path: Path, run: Run) -> None:
    from zoo_compute.devnet.state import State, StateDirectory

    directory = StateDirectory(tmp_path / ".devnet")
    directory.create()
    directory.save(State())
    done = run(tmp_path, "demo")
    assert done.returncode == ExitCode.DEVNET
    assert "devnet-not-a-demo" in done.stderr
    assert directory.load() is not None


def test_help_names_every_webhook_event(tmp_path: Path, run: Run) -> None:
    listed = re.search(r"`events` that you want: (.*?)\. ", (ROOT / "docs" / "api.md").read_text())
    assert listed is not None
    shown = run(tmp_path, "webhook", "create", "--help").stdout
    for event in re.findall("`([a-z]+)`", listed[1]):
        assert event in shown


def test_help_needs_no_heavy_library(tmp_path: Path) -> None:
    probe = "import sys; import zoo_compute.cli.main; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", probe], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not {"torch", "web3", "numpy", "httpx", "eth_account", "pydantic", "rich"} & set(done.stdout.split())


def test_events_are_told_in_sentences() -> None:
    event = Event(id=1, kind="round", data={"round": 2, "rounds": 8, "validation_loss": "3.1"})
    assert describe(event) == "round 2 of 8 done, validation loss 3.1"
    known_later = Event(id=1, kind="round", data={"round": 2, "rounds": 8, "validation_loss": None})
    assert describe(known_later) == "round 2 of 8 done"
    known = Event(id=1, kind="validation", data={"round": 2, "cid": "b", "validation_loss": "3.1"})
    assert describe(known) == "validation loss after round 2: 3.1"
    assert describe(Event(id=2, kind="step", data={"step": 1})) is None
    lost = {"round": 0, "slot": 3, "provider": "0xab", "status": "rejected", "reason": "incorrect_computation"}
    assert describe(Event(id=3, kind="unit", data=lost)) == (
        "unit rejected: round 0, slot 3, 0xab (incorrect_computation)"
    )
    late = {"round": 0, "slot": 3, "segment": 1, "provider": "0xab"}
    told = "provider 0xab is late with a state: round 0, slot 3, segment 1, "
    assert describe(Event(id=4, kind="late", data=late)) == told + "not shown yet"
    assert describe(Event(id=5, kind="late", data=late | {"shown_at": "noon"})) == told + "shown at noon"


def test_dataset_is_built_in_help_with_disjoint_splits() -> None:
    train, validation = topics_dataset()
    assert len(train) > 8 * len(validation) > 100_000
    assert b'The "assert" statement' in train


CHEAT, HONEST = "0x" + "c0" * 20, "0x" + "a0" * 20
CONVICTED = {"provider": CHEAT, "path": "dispute"}


def _receipt() -> dict[str, object]:
    return {
        "budget_wei": "1000",
        "escrowed_wei": "1000",
        "paid_wei": "190",
        "fee_wei": "10",
        "refund_wei": "800",
        "units": [{"provider": HONEST, "round": 0, "slot": 0, "paid_wei": "190"}],
        "slashes": [CONVICTED],
        "story": {"honest": {"slashed": []}},
        "training": TRAINING,
        "checkpoints": [{"pins": ["a", "b", "c"]}] * 9,
        "initial_loss": 5.5,
        "final_loss": 2.5,
        "ledger_reconciled": True,
    }


def test_a_good_receipt_is_believed() -> None:
    check_story(_receipt(), cheat=CHEAT)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"refund_wei": "801"}, "paid \\+ fee \\+ refund"),
        ({"budget_wei": "999"}, "escrowed <= budget"),
        ({"fee_wei": "5", "refund_wei": "805"}, "fee == 5 %"),
        ({"slashes": []}, "exactly the cheat"),
        ({"slashes": [CONVICTED, CONVICTED | {"provider": HONEST}]}, "exactly the cheat"),
        ({"slashes": [CONVICTED | {"path": "operator"}]}, "a committee decided"),
        ({"story": {"honest": {"slashed": [HONEST]}}}, "nobody else ever lost stake"),
        ({"units": [{"provider": CHEAT, "round": 0, "slot": 0, "paid_wei": "190"}]}, "the cheat is not paid"),
        ({"checkpoints": [{"pins": ["a", "a", "b"]}] * 9}, "pinned on 3 nodes"),
        ({"checkpoints": [{"pins": ["a", "b", "c"]}] * 8}, "every round"),
        ({"final_loss": 5.4}, "the loss fell"),
        ({"ledger_reconciled": False}, "the ledger equals the chain"),
        ({"training": TRAINING | {"late": None}}, "came late"),
    ],
)
def test_demo_with_broken_expectation_fails(change: dict[str, object], named: str) -> None:
    with pytest.raises(Mismatch, match=named):
        check_story(_receipt() | change, cheat=CHEAT)


def test_unit_requires_job_round_and_replica(tmp_path: Path, run: Run) -> None:
    done = run(tmp_path, "verify", "unit", "0x12", "--json")
    assert done.returncode == ExitCode.USAGE
    error = json.loads(done.stderr)["error"]
    assert (error["code"], error["remedy"]) == ("unit-malformed", "Give it as JOB:ROUND:SLOT.")


@pytest.mark.parametrize(
    ("difference", "sentence"),
    [
        (None, "0xA (verified): every step is as committed in window 3, trace root 0x1"),
        (
            Difference(),
            "0xA (verified): differs; in which step first is not known without its leaves; no file of it is at hand "
            "that shows in which tensor",
        ),
        (
            Difference(5, 8, "state 2", "parameters.head", 7, 4_096, 0.25),
            "0xA (verified): differs first in one of the steps 5 to 8, between which no state is committed (STEP 1 of "
            "`dispute name`); in state 2 that it served, parameters.head differs in 7 of 4,096 entries, by up to 0.25",
        ),
        (
            Difference(3, 3, "payload", "head", 7, 4_096, 0.25),
            "0xA (verified): differs first in step 3 (STEP 2 of `dispute name`); in the payload, after the last step, "
            "head differs in 7 of 4,096 entries, by up to 0.25",
        ),
        (
            Difference(0, 0),
            "0xA (verified): differs from the start: another checkpoint or slot state (STEP 0 of `dispute name`); no "
            "file of it is at hand that shows in which tensor",
        ),
        (
            Difference(diverges="loss is not finite at step 2"),
            "0xA (verified): false, for training diverges and leads to no state: loss is not finite at step 2 (steps "
            "from 0)",
        ),
    ],
)
def test_what_a_replay_found_is_said_in_words(difference: Difference | None, sentence: str) -> None:
    right = "0x1" if difference is None else "0x2"
    assert describe_attempt(Attempt("0xA", "verified", None, "0x1", right, 3, difference, 0)) == sentence


def test_unit_forfeited_by_dispute_is_marked() -> None:
    struck = Attempt("0xA", "verified", None, "0x1", "0x2", 3, Difference(), 0, struck=True)
    assert describe_attempt(struck).startswith("0xA (verified, struck after a dispute): differs")


def test_unsigned_payload_is_reported() -> None:
    other = Attempt("0xA", "verified", None, "0x1", "0x1", 3, None, 0, other_payload=True)
    assert describe_attempt(other).startswith("0xA (verified): every step is as committed, but the payload")


def test_invalid_profile_is_refused(tmp_path: Path, run: Run) -> None:
    done = run(tmp_path, "verify", "unit", f"0x{'12' * 32}:0:0", "--profile", "abacus", "--json")
    assert json.loads(done.stderr)["error"]["code"] == "unknown-profile"


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


def test_system_refusal_is_reported_without_traceback(tmp_path: Path, run: Run) -> None:
    for name in ("acknowledgements", "traces", "verdicts"):
        (tmp_path / name).touch()
    done = run(tmp_path, "node", "verdicts", "--state-dir", ".", "--json")
    assert (done.returncode, done.stdout) == (ExitCode.FAILED, "")
    assert json.loads(done.stderr)["error"]["code"] == "system-refused"


def test_a_damaged_verdict_is_said_without_a_traceback(tmp_path: Path, run: Run) -> None:
    (tmp_path / "verdicts").mkdir()
    for content in (b"", b"[]", b"\xff", b'{"draw": 1}'):
        (tmp_path / "verdicts" / "1-0.json").write_bytes(content)
        done = run(tmp_path, "node", "verdicts", "--state-dir", ".", "--json")
        assert (done.returncode, done.stdout) == (ExitCode.USAGE, "")
        assert json.loads(done.stderr)["error"]["code"] == "verdict-damaged"


def test_unreadable_login_names_remedy(tmp_path: Path, run: Run) -> None:
    (tmp_path / "config" / "zoo-compute" / "login.json").mkdir(parents=True)
    done = run(tmp_path, "job", "list", "--json")
    assert (done.returncode, done.stdout) == (ExitCode.USAGE, "")
    assert json.loads(done.stderr)["error"]["code"] == "login-damaged"
