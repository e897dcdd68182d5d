"""Mutation tests of the contracts: break one rule at a time and see whether a test notices.

    python contracts/mutate.py                       all contracts; writes contracts/MUTATIONS.md
    python contracts/mutate.py --only JobEscrow      one file; prints, writes nothing
    python contracts/mutate.py --list                the mutants, without running them

Each mutant removes a `require` or a modifier, or changes a comparison, an operator, a rounding or a flag. It is killed
if a test fails. The tests named after the file run first, the whole suite only for what they let live.
Mutants that no test can tell from the original are listed in EQUIVALENT below, each with its reason.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Queue

import build

SOURCES = build.CONTRACTS_DIR / "src"
RESULTS = build.CONTRACTS_DIR / "MUTATIONS.md"
TEST_SECONDS = 900

# Fewer cases than the suite runs with: what only the thousandth case tells from the original is hardly tested.
QUICK = {"FOUNDRY_FUZZ_RUNS": "64", "FOUNDRY_INVARIANT_RUNS": "16", "FOUNDRY_INVARIANT_DEPTH": "40"}

MODIFIERS = (r"onlyRole\([^)]*\)", "nonReentrant", "whenNotPaused")
SWAPS = (  # (what, pattern, replacement); patterns match code, not comments
    ("boundary", r"(?<![<>=!-])<=(?!=)", "<"),
    ("boundary", r"(?<![<>=-])<(?![<=])", "<="),
    ("boundary", r"(?<![<>=-])>=(?!=)", ">"),
    ("boundary", r"(?<![<>=-])>(?![>=])", ">="),
    ("comparison", r"==", "!="),
    ("comparison", r"!=", "=="),
    ("logic", r"&&", "||"),
    ("logic", r"\|\|", "&&"),
    ("arithmetic", r"(?<=\s)\+(?=\s)", "-"),
    ("arithmetic", r"(?<=\s)-(?=\s)", "+"),
    ("arithmetic", r"(?<=\s)\+=(?=\s)", "-="),
    ("arithmetic", r"(?<=\s)-=(?=\s)", "+="),
    ("rounding", r"(?<=\s)/ ([\w.]+(?:\(\))?)", r"/ \1 + 1"),
    ("rounding", r"Math\.min", "Math.max"),
    ("flag", r"\btrue\b", "false"),
    ("flag", r"\bfalse\b", "true"),
)

EQUIVALENT: dict[tuple[str, str, str], str] = {}
"""(file, original code, mutated code) -> why no test can tell them apart."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of one source file: ``start:end`` of its text becomes ``text``."""

    file: str
    start: int
    end: int
    text: str
    kind: str
    line: int
    original: str

    @property
    def key(self) -> tuple[str, str, str]:
        return (self.file, self.original, self.mutated)

    @property
    def mutated(self) -> str:
        return self.text.strip() or "(removed)"


def mutants(file: str, source: str) -> Iterator[Mutant]:
    """All mutants of one file, in order of their place."""
    code = _blank_comments(source)
    found = [*_removed_requires(code), *_removed_modifiers(code), *_swapped(code)]
    for start, end, text, kind in sorted(found):
        line = source.count("\n", 0, start) + 1
        shown = (
            " ".join(_statement(source, start).split()) if kind not in ("require", "modifier") else source[start:end]
        )
        yield Mutant(file, start, end, text, kind, line, " ".join(shown.split()))


def _blank_comments(source: str) -> str:
    """The source with comments, strings, imports and pragmas blanked, positions kept."""

    def blank(found: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", found[0])

    pattern = r'//[^\n]*|/\*.*?\*/|"[^"\n]*"|^(?:import|pragma)\b.*?;'
    return re.sub(pattern, blank, source, flags=re.DOTALL | re.MULTILINE)


def _removed_requires(code: str) -> Iterator[tuple[int, int, str, str]]:
    for found in re.finditer(r"\brequire\(", code):
        depth, at = 1, found.end()
        while depth:
            depth += {"(": 1, ")": -1}.get(code[at], 0)
            at += 1
        yield found.start(), at + 1, "", "require"


def _removed_modifiers(code: str) -> Iterator[tuple[int, int, str, str]]:
    for pattern in MODIFIERS:
        for found in re.finditer(rf"\b{pattern}", code):
            yield found.start(), found.end(), "", "modifier"


def _swapped(code: str) -> Iterator[tuple[int, int, str, str]]:
    for kind, pattern, replacement in SWAPS:
        for found in re.finditer(pattern, code):
            if "for (" in _statement(code, found.start()):
                continue  # a loop's bound: the mutant runs out of the array or past it
            yield found.start(), found.end(), found.expand(replacement), kind


def _statement(code: str, at: int) -> str:
    start = code.rfind("\n", 0, at) + 1
    end = code.find("\n", at)
    return code[start : end if end >= 0 else len(code)]


class Workspace:
    """A copy of the contracts that mutants are written into, compiled incrementally."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for name in ("src", "test"):
            shutil.copytree(build.CONTRACTS_DIR / name, folder / "contracts" / name)
        for name in ("foundry.toml", "solc.js"):
            shutil.copy2(build.CONTRACTS_DIR / name, folder / "contracts" / name)
        (folder / "contracts" / "node_modules").symlink_to(build.CONTRACTS_DIR / "node_modules")
        (folder / "tests").symlink_to(build.ROOT / "tests")  # the shared vectors
        self._root = folder / "contracts"

    def forge(self, *arguments: str) -> tuple[int, str]:
        """(exit status, output) of ``forge test``; a run beyond its time counts as failed."""
        environment = build.environment() | QUICK
        command = [build.forge_path(), "test", "--fail-fast", "--threads", "1", *arguments]
        try:
            done = subprocess.run(
                command, cwd=self._root, env=environment, text=True, capture_output=True, timeout=TEST_SECONDS
            )
        except subprocess.TimeoutExpired:
            return 1, "timed out"
        return done.returncode, done.stdout + done.stderr

    def judge(self, mutant: Mutant) -> str:
        """What becomes of a mutant: ``does not compile``, ``killed``, or ``survived``."""
        path = self._root / "src" / mutant.file
        original = path.read_text(encoding="utf-8")
        path.write_text(original[: mutant.start] + mutant.text + original[mutant.end :], encoding="utf-8")
        try:
            name = Path(mutant.file).stem
            own = sorted(file.name for file in (self._root / "test").glob(f"{name}*.t.sol"))
            for arguments in ([["--match-path", f"test/{name}*.t.sol"]] if own else []) + [[]]:
                status, output = self.forge(*arguments)
                if "Compiler run failed" in output:
                    return "does not compile"
                if status != 0:
                    return "killed"
            return "survived"
        finally:
            path.write_text(original, encoding="utf-8")


def run(chosen: list[Mutant], jobs: int) -> list[tuple[Mutant, str]]:
    """Judge all mutants, ``jobs`` at a time; progress goes to standard error.

    Raises:
        BuildError: the tests do not pass without any mutation.
    """
    with tempfile.TemporaryDirectory() as folder:
        idle: Queue[Workspace] = Queue()
        for number in range(jobs):
            workspace = Workspace(Path(folder) / str(number))
            status, output = workspace.forge()
            if status != 0:
                raise build.BuildError(f"the tests fail without any mutation:\n{output[-3000:]}")
            idle.put(workspace)

        def judge(mutant: Mutant) -> tuple[Mutant, str]:
            workspace = idle.get()
            try:
                return mutant, workspace.judge(mutant)
            finally:
                idle.put(workspace)

        results = []
        with ThreadPoolExecutor(jobs) as pool:
            for count, (mutant, result) in enumerate(pool.map(judge, chosen), 1):
                mark = "" if result != "survived" else f"  SURVIVED {mutant.original} -> {mutant.mutated}"
                print(f"{count}/{len(chosen)} {mutant.file}:{mutant.line} {mutant.kind}{mark}", file=sys.stderr)
                results.append((mutant, result))
        return results


def table(results: list[tuple[Mutant, str]]) -> str:
    """The results as the page that is kept."""
    files = sorted({mutant.file for mutant, _ in results})
    counts = Counter((mutant.file, _verdict(mutant, result)) for mutant, result in results)
    lines = [
        "# Mutation tests",
        "",
        "Made by `python contracts/mutate.py`: each row counts changes of one file that break a rule, and how many of",
        "them the tests noticed. A mutant that does not compile is not counted.",
        "",
        "| file | mutants | killed | equivalent | survived |",
        "|---|---:|---:|---:|---:|",
    ]
    for file in files:
        killed, same, alive = (counts[file, verdict] for verdict in ("killed", "equivalent", "survived"))
        lines.append(f"| {file} | {killed + same + alive} | {killed} | {same} | {alive} |")
    for title, verdict in (("Equivalent", "equivalent"), ("Survived", "survived")):
        rows = [mutant for mutant, result in results if _verdict(mutant, result) == verdict]
        if rows:
            lines += ["", f"## {title}", ""]
            lines += [
                f"- {mutant.file}: `{mutant.original}` -> `{mutant.mutated}`. {EQUIVALENT.get(mutant.key, '')}"
                for mutant in rows
            ]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _verdict(mutant: Mutant, result: str) -> str:
    return "equivalent" if result == "survived" and mutant.key in EQUIVALENT else result


def main() -> int:
    parser = argparse.ArgumentParser(description="Break one rule of the contracts at a time.")
    parser.add_argument("--only", help="name of one source file, without .sol")
    parser.add_argument("--list", action="store_true", help="print the mutants and stop")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many at a time")
    options = parser.parse_args()
    paths = [path for path in sorted(SOURCES.rglob("*.sol")) if "interfaces" not in path.parts]
    chosen = [
        mutant
        for path in paths
        if options.only in (None, path.stem)
        for mutant in mutants(str(path.relative_to(SOURCES)), path.read_text(encoding="utf-8"))
    ]
    if options.list:
        for mutant in chosen:
            print(f"{mutant.file}:{mutant.line} {mutant.kind}: {mutant.original} -> {mutant.mutated}")
        return 0
    try:
        build.install()
        results = run(chosen, options.jobs)
    except build.BuildError as error:
        print(f"contracts/mutate.py: {error}", file=sys.stderr)
        return 1
    page = table(results)
    if options.only is None:
        RESULTS.write_text(page, encoding="utf-8")
    print(page)
    return int(any(_verdict(mutant, result) == "survived" for mutant, result in results))


if __name__ == "__main__":
    sys.exit(main())
