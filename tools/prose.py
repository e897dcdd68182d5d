"""Check the wording of code, contracts and documents against the style guide.

python -m tools.prose [--summary] [PATHS] | --commits BASE.. | --message FILE

Any finding fails. A comment `prose: ok` at the end of a line excuses that line; the tree may hold twenty.
"""

import argparse
import ast
import itertools
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["prose"]
WORDS = {re.compile(rf"\b(?:{word})\b", re.I): use for word, use in SETTINGS["words"].items()}
ANY_WORD = re.compile(rf"\b(?:{'|'.join(SETTINGS['words'])})\b", re.I)
MAX_WORDS = {".py": 25, ".sol": 25, ".md": 30}
MAX_NAME_WORDS, MAX_DECISION_WORDS, MAX_SUBJECT, MAX_SUMMARY, MAX_ESCAPES = 8, 400, 72, 90, 20

START = re.compile(r"\W*(what|who|whether|how|where|which|why|that|of|so)\b", re.I)
FRAGMENT = re.compile(r"(who|whoever|whose|what|which|nobody|somebody|anybody|or|else|nor|so that)\b", re.I)
RELATIVE = {"who", "whoever", "whose", "which", "that"}
ESCAPE = re.compile(r"(?:#|//|<!--) prose: ok\b")
BLOCK = re.compile(r"^( *)(```|~~~).*?^ *\2[^\n]*$|<!--.*?-->|^ *\|[^\n]*$", re.S | re.M)
CODE = re.compile(
    r"``.*?``|`[^`]*`|(?<=\])\([^)\n]*\)|\b\w*(?:_|[a-z][A-Z]|\w\.\w)[\w.]*|\w+\(\)|(?<!\w)--[\w-]+|\S*/\S*", re.S
)
BREAK = re.compile(
    r"\n\s*\n|(?<=:)\n|\n(?=\s*(?:[-*+#>]|\d+[.)]|[\w*]+(?: \([^)]*\))?: ))|\s(?=@\w)|(?<=[.!?])[\"')\]*]*\s+"
)

DIRECTIVE = re.compile(r"!|\s*(noqa|type:|pragma|mypy|ruff|fmt|prose|SPDX|forge-lint|solhint|slither|-{3})", re.I)
TOKEN = re.compile(
    r"""(?P<q>\"{3}|'{3})(?:\\.|.)*?(?P=q)|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|#+(?P<comment>[^\n]*)""", re.S
)


class Text(NamedTuple):
    """A run of prose; `kind` is docstring, comment, string, page or test."""

    line: int
    kind: str
    text: str


def comment_blocks(comments: list[tuple[int, bool, str]]) -> Iterator[Text]:
    """Join consecutive lines of comment; a comment after code stands alone."""
    line, last, lines = 0, 0, list[str]()
    for number, alone, text in [*comments, (0, True, "")]:
        if lines and not (alone and number == last + 1):
            yield Text(line, "comment", "\n".join(lines))
            lines = []
        if number and not DIRECTIVE.match(text):
            line, last = (line if lines else number), (number if alone else 0)
            lines.append(text.strip())


def python_texts(source: str) -> Iterator[Text]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if doc := ast.get_docstring(node):
                yield Text(node.body[0].lineno, "docstring", doc)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                yield Text(node.lineno, "test", node.name.removeprefix("test_").replace("_", " "))
        strings = [k.value for k in node.keywords if k.arg == "help"] if isinstance(node, ast.Call) else []
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            strings = node.exc.args
        for value in strings:
            parts = value.values if isinstance(value, ast.JoinedStr) else [value]
            words = [str(p.value) if isinstance(p, ast.Constant) else "x" for p in parts]
            if words != ["x"]:
                yield Text(value.lineno, "string", "".join(words))
    found = [m for m in TOKEN.finditer(source) if m["comment"] is not None]
    starts = [source.rfind("\n", 0, m.start()) + 1 for m in found]
    alone = [not source[start : m.start()].strip() for start, m in zip(starts, found, strict=True)]
    lines = itertools.accumulate(source.count("\n", a, b) for a, b in itertools.pairwise([0, *starts]))
    yield from comment_blocks([(n + 1, a, m["comment"]) for n, a, m in zip(lines, alone, found, strict=True)])


def solidity_texts(source: str) -> Iterator[Text]:
    source = re.sub(r"/\*.*?\*/", lambda m: re.sub(r"^\s*/?\*+/?|\*/$", "///", m[0], flags=re.M), source, flags=re.S)
    rows = [(number, re.search(r"(?<![:\"])//+([^\n]*)", row), row) for number, row in enumerate(source.split("\n"), 1)]
    yield from comment_blocks([(n, not row[: m.start()].strip(), m[1]) for n, m, row in rows if m])
    for number, _, row in rows:
        if name := re.match(r"\s*function test\w*?_(\w+)", row):
            yield Text(number, "test", re.sub(r"(?<=[a-z])(?=[A-Z])|_", " ", name[1]))


def page_texts(source: str) -> Iterator[Text]:
    yield Text(1, "page", source)


READERS = {".py": python_texts, ".sol": solidity_texts, ".md": page_texts}


class Finding(NamedTuple):
    path: str
    line: int
    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}: {self.text}"


def check(path: str, source: str) -> Iterator[Finding]:
    """Return the findings of one file, without those of excused lines."""
    lines = source.split("\n")
    for text in READERS[Path(path).suffix](source):
        for line, rule, found in findings(text, MAX_WORDS[Path(path).suffix]):
            if not ESCAPE.search(lines[line - 1]):
                yield Finding(path, line, rule, found)
    if re.search(r"docs/decisions/\d", path) and len(source.split()) > MAX_DECISION_WORDS:
        yield Finding(path, 1, "decision", f"{len(source.split())} words; at most {MAX_DECISION_WORDS}")


def findings(text: Text, limit: int) -> Iterator[tuple[int, str, str]]:
    line, kind, raw = text
    if kind == "test":
        words = raw.lower().split()
        if len(words) > MAX_NAME_WORDS:
            yield line, "test-name", f"{len(words)} words; at most {MAX_NAME_WORDS}"
        if pronouns := RELATIVE.intersection(words):
            yield line, "test-name", f"relative pronoun {', '.join(sorted(pronouns))}"
        return
    if kind == "docstring" and (start := START.match(raw)):
        yield line, "docstring", f"starts with {start[1]}"
    if kind == "docstring" and "\n" in raw.split("\n\n")[0]:
        yield line, "docstring", "summary over one line"
    if kind == "docstring" and (length := len(raw.split("\n", 1)[0])) > MAX_SUMMARY:
        yield line, "docstring", f"summary of {length} characters; at most {MAX_SUMMARY}"
    if kind == "comment" and (start := FRAGMENT.match(re.sub(r"@\w+ ", "", raw))):
        yield line, "comment", f"starts with {start[1]}"
    prose = BLOCK.sub(lambda m: "\n" * max(2 * (m[0] == ""), m[0].count("\n")), raw)
    prose = CODE.sub(lambda m: "x" + "\n" * m[0].count("\n"), prose)
    at = 0
    for end, after in [*((m.start(), m.end()) for m in BREAK.finditer(prose)), (len(prose), 0)]:
        sentence, where = prose[at:end], line + prose.count("\n", 0, at)
        if (count := len(re.findall(r"\w[\w'’%.,-]*", sentence))) > limit:
            yield where, "sentence", f"{count} words; at most {limit}: {' '.join(sentence.split()[:8])} ..."
        at = after
    for word, use in WORDS.items() if ANY_WORD.search(prose) else ():
        for found in word.finditer(prose):
            yield line + prose.count("\n", 0, found.start()), "word", f"{found[0]!r}; {use}"


def check_tree(paths: list[str]) -> list[Finding]:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *(paths or ["."])]
    listed = sorted(set(subprocess.check_output(command, cwd=ROOT, text=True).splitlines()))
    kept = [p for p in listed if Path(p).suffix in MAX_WORDS and not re.match(SETTINGS["exclude"], p)]
    sources = {path: (ROOT / path).read_text() for path in kept if (ROOT / path).is_file()}
    escapes = sum(len(ESCAPE.findall(source)) for source in sources.values())
    too_many = [Finding("tree", 0, "escapes", f"{escapes} lines are excused; at most {MAX_ESCAPES}")]
    return [f for path, source in sources.items() for f in check(path, source)] + too_many * (escapes > MAX_ESCAPES)


def check_subjects(subjects: list[str]) -> list[Finding]:
    long = [s for s in subjects if len(s) > MAX_SUBJECT and not s.startswith("Merge ")]
    return [Finding("commit", 0, "subject", f"{len(s)} characters; at most {MAX_SUBJECT}: {s}") for s in long]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Check the wording of code, contracts and documents.")
    parser.add_argument("paths", nargs="*", help="files or folders; default: the whole tree")
    parser.add_argument("--summary", action="store_true", help="print the findings by rule and top folder")
    parser.add_argument("--commits", metavar="BASE..", help="check the subjects of these commits only")
    parser.add_argument("--message", type=Path, metavar="FILE", help="check the subject of this commit message only")
    options = parser.parse_args(arguments)
    if options.commits or options.message:
        log = ["git", "log", "--format=%s", options.commits]
        text = options.message.read_text() if options.message else subprocess.check_output(log, cwd=ROOT, text=True)
        complaints = [str(f) for f in check_subjects(text.splitlines()[: 1 if options.message else None])]
        print("\n".join(complaints) or "prose: subjects are sound")
        return bool(complaints)
    found = check_tree(options.paths)
    if options.summary:
        for (area, rule), count in sorted(Counter((f.path.split("/")[0], f.rule) for f in found).items()):
            print(f"{count:6} {rule:10} {area}")
    print("\n".join(map(str, found)) or "prose: no findings")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
