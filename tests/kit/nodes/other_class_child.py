"""A training child of a benchmark's class: ``NAME MEMORY_BYTES PROCESSES [skewed]``.

A skewed one ends each replay with slightly different parameters.
"""

import sys
from typing import Any

from benchmarks.detection.replays import CLASSES
from training_gym.runtime.profile import PROFILES
from zoo_compute.node.execution import child


def _skew() -> None:
    from training_gym.units import unit

    train_steps = unit.train_steps

    def skewed(*arguments: Any) -> Any:
        state, loss = train_steps(*arguments)
        return {name: array * (1 + 3e-5 * name.startswith("parameters.")) for name, array in state.items()}, loss

    def load(profile_name: str) -> Any:
        trainer = child_trainer(profile_name)  # probed before, so of its class
        unit.train_steps = skewed  # type: ignore[assignment]
        return trainer

    child_trainer = child.load_trainer
    child.main(load)


if __name__ == "__main__":
    PROFILES.update(CLASSES)
    if sys.argv[-1] == "skewed":
        _skew()
    else:
        child.main()
