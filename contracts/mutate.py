"""Mutation tests of the contracts: break one rule at a time and see whether a test notices.

    python contracts/mutate.py                       all contracts; writes contracts/MUTATIONS.md
    python contracts/mutate.py --only JobEscrow      one file; prints, writes nothing
    python contracts/mutate.py --list                the mutants, without running them

Each mutant removes a `require` or a modifier, or changes a condition, an operator, a rounding or a flag. It is killed
if a test fails. All mutants are compiled once, into one build in which the block's `prevrandao` chooses the one that
lives (mutant schemata, Untch et al. 1993); the contracts do not read it. Gas tests are left out, since the choice
costs gas. Mutants that no test can tell from the original are in EQUIVALENT below, each with its reason.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue

import build
from mutants import Mutant, find_mutants, instrument

RESULTS = build.CONTRACTS_DIR / "MUTATIONS.md"
TEST_SECONDS = 300
BUILD_SECONDS = 3_600  # all sources with all mutants, and every test once
NONE = 2**32  # chooses no mutant, and shows that a choice alone breaks no test

# Fewer cases than the suite runs with: what only the thousandth case tells from the original is hardly tested.
QUICK = {"FOUNDRY_FUZZ_RUNS": "64", "FOUNDRY_INVARIANT_RUNS": "16", "FOUNDRY_INVARIANT_DEPTH": "40"}

# The optimizer takes most of a build's time and changes no rule; without it contracts exceed the limit of EIP-170.
UNOPTIMIZED = {"FOUNDRY_OPTIMIZER": "false", "FOUNDRY_CODE_SIZE_LIMIT": "1000000"}

# Where OpenZeppelin's modifiers stand: a copy of each that one mutant can switch off goes next to it.
MODIFIER_FILES = {
    "onlyRole": "access/AccessControl.sol",
    "nonReentrant": "utils/ReentrancyGuardTransient.sol",
    "whenNotPaused": "utils/Pausable.sol",
}

EQUIVALENT: dict[tuple[str, str, str], str] = {
    (
        "Disputes.sol",
        "if (leftOver > 0) token.burn(leftOver);",
        "if (leftOver >= 0) token.burn(leftOver);",
    ): "Burning nothing changes no balance.",
    (
        "JobEscrow.sol",
        "if (net + fee == 0) return 0;",
        "if (net - fee == 0) return 0;",
    ): "The fee is at most a tenth of the gross amount, so net equals fee only where both are 0.",
    (
        "JobEscrow.sol",
        "if (refunded > 0) token.safeTransfer(job.payer, refunded);",
        "if (refunded >= 0) token.safeTransfer(job.payer, refunded);",
    ): "A transfer of nothing changes no balance.",
    (
        "base/Challenges.sol",
        "if (end > unit.disputableUntil) unit.disputableUntil = end;",
        "if (end >= unit.disputableUntil) unit.disputableUntil = end;",
    ): "What is equal is set to what it is.",
    (
        "ProviderStaking.sol",
        "if (share > 0) token.safeTransfer(msg.sender, share);",
        "if (share >= 0) token.safeTransfer(msg.sender, share);",
    ): "A transfer of nothing changes no balance.",
}
"""(file, original code, mutated code) -> why no test can tell them apart."""


class Workspace:
    """A copy of the contracts with every mutant in it, compiled."""

    def __init__(self, folder: Path) -> None:
        self.contracts = folder / "contracts"

    @classmethod
    def create(cls, folder: Path, mutants: Iterable[tuple[int, Mutant]]) -> "Workspace":
        """Writes the instrumented sources and compiles them with the tests.

        Raises:
            BuildError: the tests do not pass while no mutant is chosen.
        """
        workspace = cls(folder)
        contracts = workspace.contracts
        for name in ("src", "test", "node_modules/@openzeppelin"):
            shutil.copytree(build.CONTRACTS_DIR / name, contracts / name, ignore=shutil.ignore_patterns("Gas.t.sol"))
        for name in ("foundry.toml", "solc.js"):
            shutil.copy2(build.CONTRACTS_DIR / name, contracts / name)
        for package in (build.CONTRACTS_DIR / "node_modules").iterdir():
            if package.name != "@openzeppelin":
                (contracts / "node_modules" / package.name).symlink_to(package)
        shutil.copytree(build.ROOT / "tests" / "vectors", folder / "tests" / "vectors")

        by_file: dict[str, list[tuple[int, Mutant]]] = defaultdict(list)
        for number, mutant in mutants:
            by_file[mutant.file].append((number, mutant))
        for file, chosen in by_file.items():
            path = contracts / "src" / file
            path.write_bytes(instrument(path.read_bytes(), chosen))
        for modifier, file in MODIFIER_FILES.items():
            _add_switchable(contracts / "node_modules" / "@openzeppelin" / "contracts" / file, modifier)
        # reading the choice makes a pure function a view
        for path in (*(contracts / "src").rglob("*.sol"), *(contracts / "test").rglob("*.sol")):
            path.write_text(re.sub(r"\bpure\b", "view", path.read_text(encoding="utf-8")), encoding="utf-8")
        status, output = workspace.test(NONE, "*", BUILD_SECONDS)
        if status != 0:
            raise build.BuildError(f"the tests fail without any mutation:\n{output[-3000:]}")
        return workspace

    def copy(self, folder: Path) -> "Workspace":
        """The same, compiled already: two runs of forge in one folder would share their found counterexamples."""
        shutil.copytree(self.contracts.parent, folder, symlinks=True)
        return Workspace(folder)

    def kills(self, number: int, mutant: Mutant) -> bool:
        """Whether a test notices the mutant: those of its contract go first, the rest sees what they let live."""
        own = Path(mutant.file).stem
        named = any((self.contracts / "test").glob(f"{own}.*"))
        return (named and self.test(number, own)[0] != 0) or self.test(number, "*")[0] != 0

    def test(self, number: int, name: str, seconds: int = TEST_SECONDS) -> tuple[int, str]:
        """(exit status, output) of the tests of that ``name`` with a mutant; a run beyond its time has failed."""
        environment = build.environment() | QUICK | UNOPTIMIZED | {"FOUNDRY_DENY": "never"}
        command = [build.forge_path(), "test", "--fail-fast", "--threads", "1", "--match-path", f"test/{name}.*"]
        command += ["--block-prevrandao", f"{number:#066x}"]
        shutil.rmtree(self.contracts / "cache" / "invariant", ignore_errors=True)  # another mutant's failure
        shutil.rmtree(self.contracts / "cache" / "fuzz", ignore_errors=True)
        try:
            done = subprocess.run(
                command, cwd=self.contracts, env=environment, text=True, capture_output=True, timeout=seconds
            )
        except subprocess.TimeoutExpired:
            return 1, "timed out"
        return done.returncode, done.stdout + done.stderr


def _add_switchable(path: Path, modifier: str) -> None:
    """Writes ``<modifier>Unless(mutant, …)`` behind a modifier: the same, but it does nothing for that mutant."""
    source = path.read_text(encoding="utf-8")
    found = re.search(rf"    modifier {modifier}\((.*?)\) \{{\n(.*?)\n    \}}\n", source, re.DOTALL)
    if found is None:
        raise build.BuildError(f"no modifier {modifier} in {path.name}")
    body = re.sub(r"^(\s+)(?=\w)(?!_;)", r"\1if (block.prevrandao != mutant) ", found[2], flags=re.MULTILINE)
    parameters = ", ".join(filter(None, ("uint256 mutant", found[1])))
    added = f"\n    modifier {modifier}Unless({parameters}) {{\n{body}\n    }}\n"
    path.write_text(source[: found.end()] + added + source[found.end() :], encoding="utf-8")


def run(chosen: list[tuple[int, Mutant]], jobs: int) -> list[tuple[Mutant, bool]]:
    """Whether each mutant is killed, ``jobs`` at a time; progress goes to standard error.

    Raises:
        BuildError: the tests do not pass without any mutation.
    """
    with tempfile.TemporaryDirectory() as folder:
        print(f"compiling {len(chosen)} mutants", file=sys.stderr)
        first = Workspace.create(Path(folder) / "0", chosen)
        idle: Queue[Workspace] = Queue()
        for workspace in (first, *(first.copy(Path(folder) / str(number)) for number in range(1, jobs))):
            idle.put(workspace)

        def killed(numbered: tuple[int, Mutant]) -> bool:
            workspace = idle.get()
            try:
                return workspace.kills(*numbered)
            finally:
                idle.put(workspace)

        results = []
        with ThreadPoolExecutor(jobs) as pool:
            for count, ((_, mutant), dead) in enumerate(zip(chosen, pool.map(killed, chosen), strict=True), 1):
                mark = "" if dead else f"  SURVIVED {mutant.original} -> {mutant.mutated}"
                print(f"{count}/{len(chosen)} {mutant.file}:{mutant.line} {mutant.kind}{mark}", file=sys.stderr)
                results.append((mutant, dead))
        return results


def verdict(mutant: Mutant, killed: bool) -> str:
    if killed:
        return "killed"
    return "equivalent" if mutant.key in EQUIVALENT else "survived"


def table(results: list[tuple[Mutant, bool]]) -> str:
    """The results as the page that is kept."""
    lines = [
        "# Mutation tests",
        "",
        "Command: `python contracts/mutate.py`. Each row counts mutants and how many of them the tests detect.",
        "",
    ]
    for by in ("file", "kind"):
        counts = Counter((getattr(mutant, by), verdict(mutant, killed)) for mutant, killed in results)
        lines += [
            f"These are the mutants by {by}.",
            "",
            f"| {by} | mutants | killed | equivalent | survived |",
            "|---|---:|---:|---:|---:|",
        ]
        for name in sorted({name for name, _ in counts}):
            killed, same, alive = (counts[name, what] for what in ("killed", "equivalent", "survived"))
            lines.append(f"| {name} | {killed + same + alive} | {killed} | {same} | {alive} |")
        lines.append("")
    total = Counter(verdict(mutant, killed) for mutant, killed in results)
    lines.append(
        f"In all {len(results)}: " + ", ".join(f"{count} {what}" for what, count in sorted(total.items())) + "."
    )
    for title in ("Equivalent", "Survived"):
        rows = [mutant for mutant, killed in results if verdict(mutant, killed) == title.lower()]
        if rows:
            lines += ["", f"## {title}", ""]
            lines += [
                f"- {mutant.file}: `{mutant.original}` -> `{mutant.mutated}`. {EQUIVALENT.get(mutant.key, '')}".rstrip()
                for mutant in rows
            ]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description="Break one rule of the contracts at a time.")
    parser.add_argument("--only", help="name of one source file, without .sol")
    parser.add_argument("--list", action="store_true", help="print the mutants and stop")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many at a time")
    options = parser.parse_args()
    try:
        build.install()
        found = find_mutants(build.syntax_trees())
        chosen = [each for each in enumerate(found, 1) if options.only in (None, Path(each[1].file).stem)]
        if options.list:
            for _, mutant in chosen:
                print(f"{mutant.file}:{mutant.line} {mutant.kind}: {mutant.original} -> {mutant.mutated}")
            return 0
        results = run(chosen, options.jobs)
    except build.BuildError as error:
        print(f"contracts/mutate.py: {error}", file=sys.stderr)
        return 1
    page = table(results)
    if options.only is None:
        RESULTS.write_text(page, encoding="utf-8")
    print(page)
    return int(any(verdict(mutant, killed) == "survived" for mutant, killed in results))


if __name__ == "__main__":
    sys.exit(main())
