"""Results and unfinished states of long runs, kept so that a benchmark can be interrupted."""

import hashlib
import json
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.report import json_lines

ROOT = Path(__file__).parents[2]


class KeptRuns:
    """Results of runs by everything that decides them, as JSON lines; states of unfinished ones.

    Args:
        results: file of the results, in the repository.
        states: folder of the states, which only this program writes.
        can_measure: False if only kept results count.
    """

    def __init__(self, results: Path, states: Path, can_measure: bool = True) -> None:
        self._results, self._states, self.can_measure = results, states, can_measure
        self._found = {_key(line["run"]): float(line["loss"]) for line in json_lines(results)}

    def of(self, run: Mapping[str, Any]) -> float | None:
        """Return the loss of an earlier ``run``."""
        return self._found.get(_key(run))

    def add(self, run: Mapping[str, Any], loss: float, **seen: Any) -> None:
        """Store a run's loss with what else was ``seen``, and drop its state."""
        self._found[_key(run)] = loss
        self._results.parent.mkdir(parents=True, exist_ok=True)
        with self._results.open("a") as file:
            file.write(json.dumps({"run": dict(run), "loss": loss} | seen) + "\n")
        self._state_path(run).unlink(missing_ok=True)

    def state(self, run: Mapping[str, Any]) -> Any:
        """Return the last state of an unfinished ``run``, or None."""
        path = self._state_path(run)
        return pickle.loads(path.read_bytes()) if path.exists() else None

    def keep_state(self, run: Mapping[str, Any], state: object) -> None:
        """Replace the state of a ``run``."""
        self._states.mkdir(parents=True, exist_ok=True)
        new = self._state_path(run).with_suffix(".new")
        new.write_bytes(pickle.dumps(state))
        new.replace(self._state_path(run))

    def _state_path(self, run: Mapping[str, Any]) -> Path:
        return self._states / f"{_key(run)}.state"


def _key(run: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(run, sort_keys=True).encode()).hexdigest()[:16]
