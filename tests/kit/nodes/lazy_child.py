"""The training child of a lazy provider: every second unit has one short segment.

``PROFILE MEMORY_BYTES PROCESSES``. It counts the units that it trains; all other segments are those of an honest node.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from zoo_compute.node.execution import child

if TYPE_CHECKING:
    from zoo_compute.node.execution.trainer import Trainer

FALSE_SEGMENT = 2


def _load(profile_name: str) -> "Trainer":
    from training_gym.runtime.profile import profile_named
    from training_gym.units.steps import OnStep
    from training_gym.units.trace import Unit, UnitResult
    from training_gym.units.unit import run_unit
    from training_gym.verify.adversaries import Attack, dishonest_training
    from zoo_compute.node.execution.trainer import Trainer

    class LazyTrainer(Trainer):
        trained = 0

        def run_unit(self, unit: Unit, output: Path, on_step: OnStep) -> UnitResult:
            self.trained += 1
            if self.trained % 2:
                return super().run_unit(unit, output, on_step)
            train = dishonest_training(Attack.SKIP_STEP, [FALSE_SEGMENT], honest=self.train)
            return run_unit(unit, output, on_step, train=train)

    return LazyTrainer(profile_named(profile_name))


if __name__ == "__main__":
    child.main(_load)
