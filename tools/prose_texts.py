"""Prose of Python, Solidity and Markdown: docstrings, comments, messages, test names."""

import ast
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

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


def read_texts(path: str, source: str) -> Iterator[Text]:
    """Return the prose of one file; the suffix decides how it is read."""
    return READERS[Path(path).suffix](source)
