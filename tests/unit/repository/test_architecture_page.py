"""docs/architecture.md against the code: layers, files, functions and links."""

import ast
import re
import tomllib
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from eth_account import Account

from market.chain.contracts.codec import Deployment
from market.domain.network import DEVNET
from worker.chain_handlers import event_handlers
from zoo_protocol.contracts import CONTRACTS

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
WAYS = ("Submission", "Training round", "Dispute", "Settlement")
MAX_FILES = 7
MAX_WORDS = 1_200
_STEP = re.compile(
    r"(?P<number>\d+)\. `(?P<file>[\w/]+\.py)` (?P<functions>`\w+`(?:, `\w+`)*) "
    r"\((?:`(?P<start>[^`]+)`|(?P<origin>\d+), (?P<kind>import|task|event)(?: `(?P<name>[\w.]+)`)?)\): \S.*\."
)


@dataclass(frozen=True)
class Step:
    number: int
    file: str
    functions: list[str]
    start: str | None
    origin: int
    kind: str | None
    name: str

    @property
    def module(self) -> str:
        return self.file.removesuffix(".py").replace("/", ".")


def _section(title: str) -> str:
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", PAGE, flags=re.MULTILINE | re.DOTALL)
    assert found is not None, f"no section {title!r}"
    return found[1]


def _way(title: str) -> list[Step]:
    steps = []
    for line in _section(title).splitlines():
        if not re.match(r"\d+\. ", line):
            continue
        found = _STEP.fullmatch(line)
        assert found is not None, f"not a step: {line}"
        functions = re.findall(r"\w+", found["functions"])
        origin = int(found["origin"] or 0)
        steps.append(
            Step(int(found["number"]), found["file"], functions, found["start"], origin, found["kind"], found["name"])
        )
    return steps


@cache
def _tree(file: str) -> ast.Module:
    return ast.parse((ROOT / file).read_text())


def _defined(file: str) -> set[str]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return {node.name for node in _tree(file).body if isinstance(node, kinds)}


def _imported(file: str) -> set[str]:
    """Every name that the file imports, in the dotted form of a module or of a member of one."""
    names: set[str] = set()
    for node in ast.walk(_tree(file)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


@cache
def _tasks() -> dict[str, set[str]]:
    """Dotted names that the task of each name calls."""
    calls: dict[str, set[str]] = {}
    for path in (ROOT / "worker" / "tasks").glob("*.py"):
        tree = ast.parse(path.read_text())
        aliases = {
            alias.asname or alias.name: f"{node.module}.{alias.name}"
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        for function in tree.body:
            if not isinstance(function, ast.FunctionDef):
                continue
            for decorator in function.decorator_list:
                if isinstance(decorator, ast.Call) and decorator.keywords:
                    name = ast.literal_eval(decorator.keywords[0].value)
                    calls[name] = {
                        f"{aliases.get(call.func.value.id, call.func.value.id)}.{call.func.attr}"
                        for call in ast.walk(function)
                        if isinstance(call, ast.Call)
                        and isinstance(call.func, ast.Attribute)
                        and isinstance(call.func.value, ast.Name)
                    }
    return calls


def _runs(task: str, step: Step) -> bool:
    return any(f"{step.module}.{function}" in _tasks()[task] for function in step.functions)


def test_layer_picture_equals_import_linter() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    rooms = next(contract for contract in contracts if contract.get("containers") == ["market"])
    expected = [set(layer.split(" | ")) for layer in rooms["layers"]]
    picture = re.search(r"```mermaid\nflowchart TD\n(.*?)```", _section("Rooms of the market"), flags=re.DOTALL)
    assert picture is not None
    arrows = [[set(end.split(" & ")) for end in line.strip().split(" --> ")] for line in picture[1].splitlines()]
    assert [arrows[0][0], *(below for _, below in arrows)] == expected
    assert all(below == above for (_, below), (above, _) in pairwise(arrows))


@pytest.mark.parametrize("title", WAYS)
def test_way_names_existing_functions_of_few_files(title: str) -> None:
    steps = _way(title)
    assert [step.number for step in steps] == list(range(1, len(steps) + 1))
    assert 1 < len({step.file for step in steps}) <= MAX_FILES
    for step in steps:
        assert set(step.functions) <= _defined(step.file), step


@pytest.mark.parametrize("title", WAYS)
def test_way_starts_at_route_or_task(title: str) -> None:
    first = _way(title)[0]
    assert first.start is not None
    if first.start.startswith("POST "):
        path = first.start.removeprefix("POST /v1")
        source = (ROOT / first.file).read_text()
        assert re.search(rf'@router\.post\(\s*"{path}",[^@]*(@\w+\s+)?def {first.functions[0]}\(', source)
    else:
        assert _runs(first.start, first)


@pytest.mark.parametrize("title", WAYS)
def test_steps_are_linked_as_named(title: str) -> None:
    steps = _way(title)
    deployment = Deployment("devnet", 1, 0, {name: Account.create().address for name in CONTRACTS})
    handlers = event_handlers(DEVNET, deployment)
    for step in steps[1:]:
        assert 0 < step.origin < step.number, step
        origin = steps[step.origin - 1]
        if step.kind == "import":
            assert step.module in _imported(origin.file) or origin.module in _imported(step.file), step
        elif step.kind == "task":
            assert f'"{step.name}"' in (ROOT / origin.file).read_text(), step
            assert _runs(step.name, step), step
        else:
            contract, event = step.name.split(".")
            heard = {(handler.__module__, getattr(handler, "__name__", "")) for handler in handlers[contract, event]}
            assert heard & {(step.module, function) for function in step.functions}, step


def test_named_files_exist() -> None:
    for file in re.findall(r"`((?:market|worker|tests)/[\w/]+\.py)`", PAGE):
        assert (ROOT / file).is_file(), file


def test_page_is_short() -> None:
    assert len(PAGE.split()) <= MAX_WORDS
