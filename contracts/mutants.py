"""Mutants of a contract's syntax tree, and the instrumented source with all of them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

Node = dict[str, Any]
"""A node of the compiler's syntax tree; ``src`` is ``start:length:file`` in bytes."""

SWAPS = {  # operator -> (kind, what it becomes)
    "<": ("boundary", "<="),
    "<=": ("boundary", "<"),
    ">": ("boundary", ">="),
    ">=": ("boundary", ">"),
    "==": ("comparison", "!="),
    "!=": ("comparison", "=="),
    "&&": ("logic", "||"),
    "||": ("logic", "&&"),
    "+": ("arithmetic", "-"),
    "-": ("arithmetic", "+"),
    "+=": ("arithmetic", "-="),
    "-=": ("arithmetic", "+="),
    "++": ("arithmetic", "--"),
    "--": ("arithmetic", "++"),
}
OPPOSITE_CALLS = {"min": "max", "max": "min"}


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of one source file: ``text`` replaces the node ``start:end`` (bytes).

    ``form`` is ``expression``, ``statement`` or ``modifier``. It selects how a source can contain both versions.
    """

    file: str
    start: int
    end: int
    text: str
    form: str
    kind: str
    line: int
    original: str
    """The original line (for a removal: the node), as one line."""
    mutated: str
    """The changed line; ``(removed)`` for a removal."""

    @property
    def key(self) -> tuple[str, str, str]:
        return (self.file, self.original, self.mutated)


def find_mutants(trees: Iterable[tuple[str, bytes, Node]]) -> list[Mutant]:
    """Return all mutants of (file, source, syntax tree), ordered by file and position."""
    found = [_mutant(file, source, *change) for file, source, tree in trees for change in _changes(tree, source)]
    return sorted(found, key=lambda mutant: (mutant.file, mutant.start, -mutant.end))


def instrument(source: bytes, mutants: Iterable[tuple[int, Mutant]]) -> bytes:
    """Return the source with each numbered mutant behind a check of ``block.prevrandao``."""
    at: dict[tuple[int, int], list[tuple[int, Mutant]]] = {}
    for number, mutant in mutants:
        at.setdefault((mutant.start, mutant.end), []).append((number, mutant))
    places = sorted(at, key=lambda place: (place[0], -place[1]))

    def render(start: int, end: int, inside: list[tuple[int, int]]) -> str:
        text, position = "", start
        while inside:
            place, rest = inside[0], inside[1:]
            nested = [other for other in rest if other[1] <= place[1]]
            inside = rest[len(nested) :]
            node = render(*place, nested)
            for number, mutant in at[place]:
                node = _choice(number, mutant, node)
            text += source[position : place[0]].decode() + node
            position = place[1]
        return text + source[position:end].decode()

    return render(0, len(source), places).encode()


def _choice(number: int, mutant: Mutant, original: str) -> str:
    if mutant.form == "expression":
        return f"(block.prevrandao == {number} ? {mutant.text} : {original})"
    if mutant.form == "statement":  # the node ends before its semicolon
        return f"if (block.prevrandao == {number}) {{ {mutant.text}{mutant.text and ';'} }} else {original}"
    name, _, arguments = original.partition("(")
    return f"{name}Unless({number}{', ' + arguments if arguments else ')'}"


def _span(node: Node) -> tuple[int, int]:
    start, length, _ = map(int, node["src"].split(":"))
    return start, start + length


Change = tuple[Node, str, str, str]
"""(node, its new text, form, kind)"""


def _changes(node: Any, source: bytes) -> Iterator[Change]:
    if isinstance(node, list):
        for each in node:
            yield from _changes(each, source)
    if not isinstance(node, dict) or node.get("nodeType") in ("ImportDirective", "PragmaDirective"):
        return
    yield from _changes_here(node, source)
    for key, child in node.items():
        # a mutated loop bound or step leaves the array or never ends
        if node.get("nodeType") == "ForStatement" and key != "body":
            continue
        yield from _changes(child, source)


def _changes_here(node: Node, source: bytes) -> Iterator[Change]:
    def text(part: Node) -> str:
        start, end = _span(part)
        return source[start:end].decode()

    match node.get("nodeType"):
        case "ModifierInvocation" if node["kind"] == "modifierInvocation":
            yield node, "", "modifier", "modifier"
        case "ExpressionStatement" if _called(node["expression"]) == "require":
            yield node, "", "statement", "require"
        case "ExpressionStatement" if node["expression"].get("operator") in ("+=", "-="):
            assignment = node["expression"]
            kind, operator = SWAPS[assignment["operator"]]
            changed = f"{text(assignment['leftHandSide'])} {operator} {text(assignment['rightHandSide'])}"
            yield node, changed, "statement", kind
        case "BinaryOperation" if node["operator"] in SWAPS:
            kind, operator = SWAPS[node["operator"]]
            left, right = text(node["leftExpression"]), text(node["rightExpression"])
            yield node, f"{left} {operator} {right}", "expression", kind
        case "BinaryOperation" if node["operator"] == "/":
            yield node, f"{text(node)} + 1", "expression", "rounding"
        case "UnaryOperation" if node["operator"] in ("++", "--"):
            kind, operator = SWAPS[node["operator"]]
            yield node, text(node).replace(node["operator"], operator), "expression", kind
        case "UnaryOperation" if node["operator"] == "!":
            yield node, text(node["subExpression"]), "expression", "logic"
        case "IfStatement" | "Conditional" if node["condition"]["nodeType"] not in (
            "BinaryOperation",
            "UnaryOperation",
        ):
            yield node["condition"], f"!{text(node['condition'])}", "expression", "logic"
        case "FunctionCall" if _called(node) in OPPOSITE_CALLS:
            name = _called(node)
            yield node, text(node).replace(f".{name}(", f".{OPPOSITE_CALLS[name]}(", 1), "expression", "rounding"
        case "Literal" if node["kind"] == "bool":
            yield node, "false" if node["value"] == "true" else "true", "expression", "flag"


def _called(node: Node) -> str:
    called = node.get("expression", {}) if node.get("nodeType") == "FunctionCall" else {}
    return str(called.get("name") or called.get("memberName") or "")


def _mutant(file: str, source: bytes, node: Node, text: str, form: str, kind: str) -> Mutant:
    start, end = _span(node)
    if text:
        first = source.rfind(b"\n", 0, start) + 1
        last = source.find(b"\n", end)
        original = source[first:last].decode()
        mutated = source[first:start].decode() + text + source[end:last].decode()
    else:
        original, mutated = source[start:end].decode(), "(removed)"
    line = source.count(b"\n", 0, start) + 1
    return Mutant(file, start, end, text, form, kind, line, " ".join(original.split()), " ".join(mutated.split()))
