"""The command line as a program: exit codes, JSON, errors that teach, and a quick start."""

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import pytest
import typer
from kit.errors import raising

from market.webhooks.router import EventKind
from zoo_compute.base.errors import ExitCode
from zoo_compute.cli.main import app, main
from zoo_compute.terminal.output import in_zen, print_facts

ROOT = Path(__file__).parents[3]
OTHER_PROFILE = f"verify unit 0x{'12' * 32}:0:0 --profile abacus"


def surroundings(directory: Path) -> dict[str, str]:
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


def refusal(done: Ended, status: ExitCode) -> Any:
    """Return the error of a command with ``--json``."""
    assert (done.returncode, done.stdout) == (status, "")
    return json.loads(done.stderr)["error"]


@pytest.mark.parametrize(
    ("arguments", "variables", "status", "code", "remedy"),
    [
        ("network", {"ZOO_API_URL": "nowhere"}, ExitCode.USAGE, "api-url-malformed", "Give the base URL of a market."),
        ("devnet info", {}, ExitCode.DEVNET, "devnet-not-running", "Start one with: zoo-compute devnet up --detach"),
        ("verify unit 0x12", {}, ExitCode.USAGE, "unit-malformed", "Give it as JOB:ROUND:SLOT."),
        ("verify round 0x12:x", {}, ExitCode.USAGE, "round-malformed", "Give it as JOB:ROUND; rounds count from 0."),
        (OTHER_PROFILE, {}, ExitCode.USAGE, "unknown-profile", "Remove --profile, or choose one."),
    ],
)
def test_errors_are_json_when_requested(
    tmp_path: Path, run: Run, arguments: str, variables: dict[str, str], status: ExitCode, code: str, remedy: str
) -> None:
    error = refusal(run(tmp_path, *arguments.split(), "--json", **variables), status)
    assert (error["code"], error["remedy"]) == (code, remedy)


def test_missing_market_error_names_remedy(tmp_path: Path) -> None:
    done = run_process(tmp_path, "job", "list")
    assert done.returncode == ExitCode.USAGE
    assert done.stdout == ""
    assert "market-unknown" in done.stderr
    assert "--api-url" in done.stderr


def test_terminal_user_is_notified_of_silent_market(tmp_path: Path) -> None:
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "zoo_compute", "job", "list", "--api-url", "http://127.0.0.1:1"]
    with subprocess.Popen(command, cwd=tmp_path, env=surroundings(tmp_path), stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        try:
            assert "ConnectError" in (output := os.read(ours, 4096).decode())
            assert "trying again" in output
            assert process.poll() is None, "it is told before the command ends"
        finally:
            process.kill()
            os.close(ours)


def command_options(group: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each command's path, and its parameters by option."""
    for name, command in getattr(group, "commands", {}).items():
        yield from command_options(command, f"{path} {name}".strip())
    if not hasattr(group, "commands"):
        yield path, {option: parameter for parameter in group.params for option in parameter.opts}


def test_terminating_commands_can_answer_in_json(tmp_path: Path, run: Run) -> None:
    without = [path for path, options in command_options(typer.main.get_command(app)) if "--json" not in options]
    assert without == ["node run"]
    for nothing in (("down",), ("reset", "--directory", "none")):
        assert json.loads(run(tmp_path, "devnet", *nothing, "--json").stdout)


def test_json_help_names_missing_question() -> None:
    found = dict(command_options(typer.main.get_command(app)))
    asking = {path for path, options in found.items() if "--yes" in options and path != "node run"}
    assert {"job submit", "balance withdraw", "dispute open", "provider unstake", "node commit"} <= asking
    silent = {path for path, one in found.items() if "--json" in one and "without a question" in one["--json"].help}
    assert silent == asking


def test_help_shows_option_defaults(tmp_path: Path, run: Run) -> None:
    shown = " ".join(run(tmp_path, "devnet", "up", "--help", COLUMNS="200").stdout.split())
    assert "default: 5" in shown  # brackets are markup, and not printed
    assert "default: fabricate" in shown


def test_full_disk_gives_error_without_traceback(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "zoo_compute", "devnet", "down", "--json"]
    with open("/dev/full", "w") as full:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, cwd=tmp_path, env=environment, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == ExitCode.FAILED
    assert b"[output-unwritable]" in done.stderr
    assert b"Traceback" not in done.stderr


def test_wrong_usage_and_invalid_key_are_refused(tmp_path: Path, run: Run) -> None:
    assert run(tmp_path, "job", "show").returncode == ExitCode.USAGE
    done = run(tmp_path, "job", "list", ZOO_API_URL="http://127.0.0.1:9", ZOO_PRIVATE_KEY="0xsecret")
    assert done.returncode == ExitCode.USAGE
    assert "private-key-malformed" in done.stderr
    assert "0xsecret" not in done.stderr


def test_node_without_wallet_does_not_start(tmp_path: Path, run: Run) -> None:
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

    stopped: list[Path] = []
    monkeypatch.setattr(control, "up", raising(KeyboardInterrupt))
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
    from zoo_compute.client.job import Job

    monkeypatch.setattr("zoo_compute.terminal.watch.follow", raising(KeyboardInterrupt))
    client: Any = type("Client", (), {"find_job": lambda self, text: Job(self, "0x12")})()
    with pytest.raises(KeyboardInterrupt):
        job._watch(client, "0x12", False)
    assert "job cancel 0x12" in capsys.readouterr().err


def test_demo_removes_only_its_own_devnet(tmp_path: Path, run: Run) -> None:
    from zoo_compute.devnet.state import State, StateDirectory

    directory = StateDirectory(tmp_path / ".devnet")
    directory.create()
    directory.save(State())
    done = run(tmp_path, "demo")
    assert done.returncode == ExitCode.DEVNET
    assert "devnet-not-a-demo" in done.stderr
    assert directory.load() is not None


def test_documents_name_every_webhook_event(tmp_path: Path, run: Run) -> None:
    listed = re.search(r"`events` that you want: (.*?)\. ", (ROOT / "docs" / "api.md").read_text())
    assert listed is not None
    events = re.findall("`([a-z]+)`", listed[1])
    assert sorted(events) == sorted(get_args(EventKind))
    shown = run(tmp_path, "webhook", "create", "--help").stdout
    for event in events:
        assert event in shown


def test_help_needs_no_heavy_library() -> None:
    probe = "import sys; import zoo_compute.cli.main; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", probe], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not {"torch", "web3", "numpy", "httpx", "eth_account", "pydantic", "rich"} & set(done.stdout.split())


def test_system_refusal_is_reported_without_traceback(tmp_path: Path, run: Run) -> None:
    for name in ("acknowledgements", "traces", "verdicts"):
        (tmp_path / name).touch()
    done = run(tmp_path, "node", "verdicts", "--state-dir", ".", "--json")
    assert refusal(done, ExitCode.FAILED)["code"] == "system-refused"


def test_damaged_verdict_is_reported_without_traceback(tmp_path: Path, run: Run) -> None:
    (tmp_path / "verdicts").mkdir()
    for content in (b"", b"[]", b"\xff", b'{"draw": 1}'):
        (tmp_path / "verdicts" / "1-0.json").write_bytes(content)
        done = run(tmp_path, "node", "verdicts", "--state-dir", ".", "--json")
        assert refusal(done, ExitCode.USAGE)["code"] == "verdict-damaged"


def test_unreadable_login_names_remedy(tmp_path: Path, run: Run) -> None:
    (tmp_path / "config" / "zoo-compute" / "login.json").mkdir(parents=True)
    done = run(tmp_path, "job", "list", "--json")
    assert refusal(done, ExitCode.USAGE)["code"] == "login-damaged"


@pytest.mark.parametrize("encoding", ["cp1252", "ascii"])
def test_rounded_amount_is_printed_in_any_encoding(monkeypatch: pytest.MonkeyPatch, encoding: str) -> None:
    printed = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(printed, encoding))
    monkeypatch.setattr("zoo_compute.cli.main.app", lambda: print_facts(in_zen({"balance_wei": 10**18 + 1})))
    main()
    sys.stdout.flush()
    assert printed.getvalue().startswith(b"balance  ?")
    assert printed.getvalue().endswith(b"1 ZEN\n")
