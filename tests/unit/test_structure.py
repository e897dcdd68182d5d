"""Structure of the code: no circle of imports, no long file, no crowded folder."""

import ast
from collections import Counter
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("zoo_protocol", "training_gym", "market", "worker", "zoo_compute", "benchmarks", "tools")
FOLDERS = (*PACKAGES, "contracts", "migrations", "tests")
SKIPPED = {"node_modules", "lib", "out", "cache", "peers", "__pycache__"}
MAX_LINES, MAX_MODULES = 400, 16


def python_files(*folders: str) -> list[Path]:
    found = (path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    return sorted(path for path in found if not SKIPPED.intersection(path.relative_to(ROOT).parts))


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(tree: ast.AST, package: str) -> Iterator[str]:
    """Yield the modules that a module imports, also in functions, not for types only."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for other in node.orelse:
                yield from imports(ast.Module([other], []), package)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)
        else:
            yield from imports(node, package)


def import_graph(sources: Mapping[str, tuple[str, str]]) -> dict[str, set[str]]:
    graph: dict[str, set[str]] = {}
    for module, (package, source) in sources.items():
        graph[module] = set()
        for name in imports(ast.parse(source), package):
            while name and name not in sources:
                name = name.rpartition(".")[0]
            if name and name != module:
                graph[module].add(name)
    return graph


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Return circles without a common module; the graph is free of circles if there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        found = list(error.args[1])
        rest = {module: imported - {*found} for module, imported in graph.items() if module not in found}
        return [found, *circles(rest)]
    return []


def test_import_graph_has_no_circle() -> None:
    sources = {}
    for path in python_files(*PACKAGES):
        module = module_name(path)
        package = module if path.name == "__init__.py" else module.rpartition(".")[0]
        sources[module] = (package, path.read_text())
    found = [" <- ".join(modules) for modules in circles(import_graph(sources))]
    assert not found, "circles of imports: " + "; ".join(found)


def test_python_files_are_short() -> None:
    lines = {str(p.relative_to(ROOT)): len(p.read_text().splitlines()) for p in python_files(*FOLDERS)}
    long = [f"{path} has {count}" for path, count in lines.items() if count > MAX_LINES]
    assert not long, f"more than {MAX_LINES} lines: " + ", ".join(long)


def test_folders_hold_few_modules() -> None:
    parents = Counter(p.parent.relative_to(ROOT) for p in python_files(*PACKAGES) if p.name != "__init__.py")
    crowded = [f"{folder} has {count}" for folder, count in sorted(parents.items()) if count > MAX_MODULES]
    assert not crowded, f"more than {MAX_MODULES} modules: " + ", ".join(crowded)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import a.b", {"a.b"}),
        ("from a import b", {"a.b"}),
        ("from a.b import name", {"a.b"}),
        ("from . import b", {"a.b"}),
        ("from .b import name", {"a.b"}),
        ("def f():\n    from a import b", {"a.b"}),
        ("class C:\n    def f(self):\n        if self:\n            import a.b", {"a.b"}),
        ("try:\n    from a import b\nexcept ImportError:\n    pass", {"a.b"}),
        ("if TYPE_CHECKING:\n    from a import b", set()),
        ("if typing.TYPE_CHECKING:\n    pass\nelse:\n    from a import b", {"a.b"}),
        ("from a import name", {"a"}),
        ("import os", set()),
    ],
)
def test_import_graph_reads_every_form(source: str, expected: set[str]) -> None:
    sources = {"a": ("a", ""), "a.b": ("a", ""), "a.c": ("a", source)}
    assert import_graph(sources)["a.c"] == expected


def test_circles_are_named() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}, "e": {"f"}, "f": {"e"}}
    assert sorted(sorted({*modules}) for modules in circles(graph)) == [["a", "b", "c"], ["e", "f"]]
    assert circles({"a": {"b"}, "b": {"c"}, "c": set()}) == []
