"""Kept results of realistic runs, as JSON lines in the repository.

A line is taken for a run of the same size, kind, seed, split, corpus and ``VERSION``, whose settings agree. A setting
that the line does not name is newer than the run, and must have the default that leaves training as it was.
"""

import hashlib
import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from benchmarks.realistic.runs import Result
from benchmarks.realistic.settings import VERSION, Size, specification
from benchmarks.report import json_lines
from benchmarks.training.communication_settings import Method
from training_gym.spec.config import TrainingConfig

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "benchmarks" / "results" / "realistic.jsonl"
_DEFAULTS = {setting.name: setting.default for setting in fields(TrainingConfig)}


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """One method on one seed, evaluated on ``split`` (``tuning`` or ``validation``)."""

    name: str
    method: Method
    size: Size
    seed: int
    split: str = "validation"
    steps: int | None = None

    def identity(self) -> dict[str, Any]:
        """Return everything that decides the result but the corpus."""
        training = specification(self.method, self.size, self.seed, self.steps).to_dict()["training_config"]
        return {
            "version": VERSION,
            "size": self.size.name,
            "how": self.method.how,
            "split": self.split,
            "settings": training,
        }

    def key(self) -> str:
        """Return the digest of :meth:`identity`, which names the files of an unfinished run."""
        return hashlib.sha256(json.dumps(self.identity(), sort_keys=True).encode()).hexdigest()[:16]


class Outcomes:
    """Results by run and corpus; added ones are appended to the file."""

    def __init__(self, path: Path = KEPT) -> None:
        self._path = path
        self._lines = json_lines(path)

    def of(self, run: Run, corpus: str | None = None) -> tuple[Result, str] | None:
        """Return the result of an earlier ``run`` and its corpus; None as corpus takes any."""
        wanted = run.identity()
        for line in self._lines:
            if corpus in (None, line["corpus"]) and _agree(line["run"], wanted):
                return Result(**line["result"]), line["corpus"]
        return None

    def add(self, run: Run, corpus: str, result: Result) -> None:
        """Store the result of a ``run``."""
        settings = run.identity()
        line = {"name": run.name, "seed": run.seed, "corpus": corpus, "run": settings, "result": asdict(result)}
        self._lines.append(line)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            file.write(json.dumps(line) + "\n")


def _agree(kept: dict[str, Any], wanted: dict[str, Any]) -> bool:
    if any(kept.get(name) != wanted[name] for name in wanted if name != "settings"):
        return False
    named, needed = kept["settings"], wanted["settings"]
    if named.keys() - needed.keys():  # a setting that is gone
        return False
    return all(named.get(name, _DEFAULTS[name]) == value for name, value in needed.items())
