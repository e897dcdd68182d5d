"""Mutation tests of the contracts: change one rule at a time and check that a test fails.

- `python contracts/mutate.py`: all mutants; writes contracts/MUTATIONS.md.
- `python contracts/mutate.py --only JobEscrow`: mutants of one file; prints the result only.
- `python contracts/mutate.py --sample 40 --seed 7`: 40 random mutants; prints the seed and the result only.
- `python contracts/mutate.py --list`: list the mutants without running them.

A mutant removes a `require` or a modifier, or changes a condition, an operator, a rounding or a flag. It is killed if a
test fails. All mutants are compiled into one build, in which the block's `prevrandao` selects the active one (mutant
schemata, Untch et al. 1993). The contracts do not read `prevrandao`. Gas tests are excluded, since the selection costs
gas. EQUIVALENT lists the mutants that behave like the original, each with its reason.
"""

import argparse
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from operator import itemgetter
from pathlib import Path
from queue import Queue

import build
from mutants import Mutant, find_mutants, instrument

RESULTS = build.CONTRACTS_DIR / "MUTATIONS.md"
TEST_SECONDS = 300
BUILD_SECONDS = 3_600  # all sources with all mutants, and every test once
NO_MUTANT = 2**32  # selects no mutant

# Fewer cases than in the suite: a mutant that only the thousandth case kills is hardly tested.
QUICK = {
    "FOUNDRY_PROFILE": "default",
    "FOUNDRY_FUZZ_RUNS": "64",
    "FOUNDRY_INVARIANT_RUNS": "16",
    "FOUNDRY_INVARIANT_DEPTH": "40",
}

# The optimizer takes most of the build time and changes no rule. Without it contracts exceed the limit of EIP-170.
UNOPTIMIZED = {"FOUNDRY_OPTIMIZER": "false", "FOUNDRY_CODE_SIZE_LIMIT": "1000000"}

# Files of OpenZeppelin's modifiers. Each gets a copy that one mutant can switch off.
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
    ): "Burning 0 wei changes no balance.",
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
        "JobEscrow.sol",
        "if (settleBy > job.settleBy) job.settleBy = settleBy;",
        "if (settleBy >= job.settleBy) job.settleBy = settleBy;",
    ): "An equal value is assigned again.",
    (
        "base/Challenges.sol",
        "if (unit.disputableUntil == 0 || end < unit.disputableUntil) unit.disputableUntil = end;",
        "if (unit.disputableUntil == 0 || end <= unit.disputableUntil) unit.disputableUntil = end;",
    ): "An equal value is assigned again.",
    (
        "ProviderStaking.sol",
        "if (share > 0) token.safeTransfer(msg.sender, share);",
        "if (share >= 0) token.safeTransfer(msg.sender, share);",
    ): "A transfer of nothing changes no balance.",
}
"""(file, original code, mutated code) -> reason why both behave the same."""


class Workspace:
    """Compiled copy of the contracts with all chosen mutants."""

    def __init__(self, folder: Path) -> None:
        self.contracts = folder / "contracts"

    @classmethod
    def create(cls, folder: Path, mutants: Iterable[tuple[int, Mutant]]) -> "Workspace":
        """Write the instrumented sources and compile them with the tests.

        Raises:
            BuildError: The tests fail without an active mutant.
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
        # a function that reads prevrandao cannot be pure
        for path in (*(contracts / "src").rglob("*.sol"), *(contracts / "test").rglob("*.sol")):
            path.write_text(re.sub(r"\bpure\b", "view", path.read_text(encoding="utf-8")), encoding="utf-8")
        status, output = workspace.test(NO_MUTANT, "*", BUILD_SECONDS)
        if status != 0:
            raise build.BuildError(f"the tests fail without a mutation:\n{output[-3000:]}")
        return workspace

    def copy(self, folder: Path) -> "Workspace":
        """Return a copy with its build; forge runs in one folder would share counterexamples."""
        shutil.copytree(self.contracts.parent, folder, symlinks=True)
        return Workspace(folder)

    def kills(self, number: int, mutant: Mutant) -> bool:
        """Return True if a test fails with the mutant; tests of its contract run first."""
        own = Path(mutant.file).stem
        named = any((self.contracts / "test").rglob(f"{own}.*"))
        return (named and self.test(number, own)[0] != 0) or self.test(number, "*")[0] != 0

    def test(self, number: int, name: str, seconds: int = TEST_SECONDS) -> tuple[int, str]:
        """Return (exit status, output) of the tests of file ``name``; a timeout is a failure."""
        environment = build.environment() | QUICK | UNOPTIMIZED | {"FOUNDRY_DENY": "never"}
        command = [build.forge_path(), "test", "--fail-fast", "--threads", "1", "--match-path", f"test/**/{name}.*"]
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
    """Add ``<modifier>Unless(mutant, …)`` after a modifier: a copy that the mutant disables."""
    source = path.read_text(encoding="utf-8")
    found = re.search(rf"    modifier {modifier}\((.*?)\) \{{\n(.*?)\n    \}}\n", source, re.DOTALL)
    if found is None:
        raise build.BuildError(f"modifier {modifier} is missing in {path.name}")
    body = re.sub(r"^(\s+)(?=\w)(?!_;)", r"\1if (block.prevrandao != mutant) ", found[2], flags=re.MULTILINE)
    parameters = ", ".join(filter(None, ("uint256 mutant", found[1])))
    added = f"\n    modifier {modifier}Unless({parameters}) {{\n{body}\n    }}\n"
    path.write_text(source[: found.end()] + added + source[found.end() :], encoding="utf-8")


def run(chosen: list[tuple[int, Mutant]], jobs: int) -> list[tuple[Mutant, bool]]:
    """Run the mutants, ``jobs`` at a time; return which are killed. Progress goes to stderr.

    Raises:
        BuildError: The tests fail without a mutation.
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
    """Return the results as a Markdown page."""
    lines = [
        "# Mutation tests",
        "",
        "Command: `python contracts/mutate.py`. Each row counts mutants and how many of them the tests detect.",
        "",
    ]
    for by in ("file", "kind"):
        counts = Counter((getattr(mutant, by), verdict(mutant, killed)) for mutant, killed in results)
        lines += [f"| {by} | mutants | killed | equivalent | survived |", "|---|---:|---:|---:|---:|"]
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
    parser = argparse.ArgumentParser(description="Change one rule of the contracts at a time and run the tests.")
    parser.add_argument("--only", help="name of one source file, without .sol (default: all files)")
    parser.add_argument("--sample", type=int, help="number of mutants to draw at random (default: all mutants)")
    parser.add_argument("--seed", type=int, help="seed of the draw (default: a random one, printed)")
    parser.add_argument("--list", action="store_true", help="print the mutants and stop")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="number of mutants at a time (default: CPU cores)"
    )
    options = parser.parse_args()
    try:
        build.install()
        found = find_mutants(build.syntax_trees())
        chosen = [each for each in enumerate(found, 1) if options.only in (None, Path(each[1].file).stem)]
        if options.sample is not None:
            seed = random.randrange(2**32) if options.seed is None else options.seed
            print(f"sample of {options.sample} of {len(chosen)} mutants, seed {seed}", flush=True)
            chosen = sorted(random.Random(seed).sample(chosen, min(options.sample, len(chosen))), key=itemgetter(0))
        if options.list:
            for _, mutant in chosen:
                print(f"{mutant.file}:{mutant.line} {mutant.kind}: {mutant.original} -> {mutant.mutated}")
            return 0
        results = run(chosen, options.jobs)
    except build.BuildError as error:
        print(f"contracts/mutate.py: {error}", file=sys.stderr)
        return 1
    page = table(results)
    if options.only is None and options.sample is None:
        RESULTS.write_text(page, encoding="utf-8")
    print(page)
    return int(any(verdict(mutant, killed) == "survived" for mutant, killed in results))


if __name__ == "__main__":
    sys.exit(main())
