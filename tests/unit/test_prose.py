"""The prose check: a failing example of each rule, and ordinary English that passes."""

from pathlib import Path

import pytest

from tools import prose

LONG = " ".join(["word"] * 26)
LONGER = " ".join(["word"] * 31)
DECISION = "docs/decisions/0001-x.md"

FAILING = {
    "sentence-docstring": ("a.py", f'"""Lease queries.\n\n{LONG}."""', 3, "sentence"),
    "sentence-comment": ("a.py", f"x = 1\n# {LONG[:80]}\n# {LONG[80:]}\n", 2, "sentence"),
    "sentence-error": ("a.py", f'raise ValueError("{LONG}")', 1, "sentence"),
    "sentence-formatted-error": ("a.py", f'raise ValueError(f"{{x}} {LONG}")', 1, "sentence"),
    "sentence-help": ("a.py", f'x = typer.Option(help="{LONG}")', 1, "sentence"),
    "sentence-solidity": ("a.sol", f"/// @notice {LONG[:60]}\n/// {LONG[60:]}\n", 1, "sentence"),
    "sentence-page": ("a.md", f"# Title\n\n{LONGER}\n", 3, "sentence"),
    "word-docstring": ("a.py", '"""Lease queries.\n\nThe market tells nobody.\n"""', 3, "word"),
    "word-comment": ("a.py", "x = 1  # the cheat is slashed", 1, "word"),
    "word-error": ("a.py", 'raise ValueError("the node was punished")', 1, "word"),
    "word-solidity": ("a.sol", "/* The owner\n * may call, meanwhile. */", 2, "word"),
    "word-page": ("a.md", "A node is\nno provider.\n\nThe list is no CID.", 4, "word"),
    "who-first": ("a.md", "Who signs is paid.", 1, "word"),
    "who-without-noun": ("a.md", "The pay of who signs.", 1, "word"),
    "docstring-start": ("a.py", 'def f():\n    """Whether it is due."""', 2, "docstring"),
    "docstring-summary": ("a.py", '"""Lease queries that\nare pure."""', 1, "docstring"),
    "docstring-length": ("a.py", f'"""{LONG[:91]}\n\nMore."""', 1, "docstring"),
    "comment-start": ("a.py", "x = 1  # so that it ends", 1, "comment"),
    "comment-start-solidity": ("a.sol", "/// @notice What it costs.", 1, "comment"),
    "test-name-length": ("a.py", "def test_a_b_c_d_e_f_g_h_i(): ...", 1, "test-name"),
    "test-name-pronoun": ("a.py", "class A:\n    async def test_node_that_waits(self): ...", 2, "test-name"),
    "test-name-solidity": ("a.sol", "function test_whoIsAbsent() public {}", 1, "test-name"),
    "decision-length": (DECISION, "One two three four. " * 101, 1, "decision"),
}

PASSING = {
    "identifiers": ("a.md", "Use `nobody`, ``cheat``, slot_states, market.court, cheat(), --punish and a/court/b."),
    "fences": ("a.md", f"```\nnobody {LONGER}\n```\n\n| nobody | {LONGER} |\n<!-- nobody -->\n"),
    "links": ("a.md", "See [penalties](punish.md)."),
    "who-with-noun": ("a.md", "The provider who signs is paid, by the operator\nwho holds the key. There is no lease."),
    "comparatives": ("a.md", "A round is no longer open; a step is no slower."),
    "lists": ("a.md", "Parts:\n" + "- ten words are in each of the items of this list\n" * 9),
    "arguments": (
        "a.py",
        '"""Return it.\n\nArgs:\n' + "    name: ten words are in each of these entries\n" * 9 + '"""',
    ),
    "strings": ("a.py", "x = \"# nobody\" + '''# who \\''' # what'''\n"),
    "code": ("a.py", "nobody = cheat(beside='anew')\n"),
    "urls": ("a.sol", 'string x = "https://nobody";\n'),
    "directives": ("a.py", "x = 1  # noqa: nobody\n"),
    "escape": ("a.py", "x = 1  # nobody  # prose" + ": ok\n"),
    "test-name": ("a.py", "def test_silent_committee_is_redrawn_then_inconclusive(): ..."),
    "record": (DECISION, "One two three four. " * 100),
}


@pytest.mark.parametrize(("path", "source", "line", "rule"), FAILING.values(), ids=FAILING)
def test_finding_names_line_and_rule(path: str, source: str, line: int, rule: str) -> None:
    assert [(f.line, f.rule) for f in prose.check(path, source)][:1] == [(line, rule)]


@pytest.mark.parametrize(("path", "source"), PASSING.values(), ids=PASSING)
def test_ordinary_text_passes(path: str, source: str) -> None:
    assert list(prose.check(path, source)) == []


def test_finding_is_printed_with_its_place() -> None:
    (found,) = prose.check("a.py", "x = 1  # anew")
    assert str(found) == "a.py:1: word: 'anew'; again"


def test_commit_subject_over_72_characters_fails(tmp_path: Path) -> None:
    message = tmp_path / "message"
    message.write_text("x" * 73 + "\n\n" + "y" * 80)
    assert prose.main(["--message", str(message)]) == 1
    message.write_text("x" * 72 + "\n\n" + "y" * 80)
    assert prose.main(["--message", str(message)]) == 0


@pytest.mark.parametrize(("source", "status"), [("x = 1", 0), ("x = 1  # anew", 1)])
def test_check_fails_on_any_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, status: int) -> None:
    monkeypatch.setattr(prose, "ROOT", tmp_path)
    monkeypatch.setattr(prose.subprocess, "check_output", lambda *_, **__: "a.py\n")
    (tmp_path / "a.py").write_text(source)
    assert prose.main([]) == status


def test_tree_may_hold_twenty_escapes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prose, "ROOT", tmp_path)
    monkeypatch.setattr(prose.subprocess, "check_output", lambda *_, **__: "a.py\n")
    (tmp_path / "a.py").write_text(("x = 1  # nobody  # prose" + ": ok\n") * 20)
    assert prose.check_tree([]) == []
    (tmp_path / "a.py").write_text(("x = 1  # nobody  # prose" + ": ok\n") * 21)
    assert [f.rule for f in prose.check_tree([])] == ["escapes"]
