"""Training child of an adversary: arguments PROFILE MEMORY_BYTES PROCESSES KIND."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from zoo_compute.node.execution import child

if TYPE_CHECKING:
    from zoo_compute.node.execution.trainer import Trainer


FABRICATE = "fabricate"  # never trains
FABRICATE_ADAPTERS = "fabricate-adapters"  # trains only jobs without an adapter
LAZY = "lazy"  # in odd rounds, omits the last step of each segment
COPY = "copy"  # delivers the result of the neighbouring replica, as if an accomplice had sent it


def _load(profile_name: str) -> "Trainer":
    """Return a dishonest trainer; ``stale`` trains its first unit to repeat it later."""
    from training_gym.model.layout import Arrays, NamedArrays
    from training_gym.model.tensors import Vector
    from training_gym.runtime.profile import profile_named
    from training_gym.units.steps import OnStep, train_steps
    from training_gym.units.trace import Unit, UnitResult
    from training_gym.units.unit import run_unit
    from training_gym.verify.adversaries import Attack, dishonest_training, parameter_change
    from zoo_compute.devnet.adversaries.fabrication import fabricate_unit
    from zoo_compute.node.execution.trainer import Trainer

    class FabricatingTrainer(Trainer):
        def run_unit(self, unit: Unit, output: Path, on_step: OnStep) -> UnitResult:
            if sys.argv[-1] == FABRICATE_ADAPTERS and unit.spec.adapter is None:
                return super().run_unit(unit, output, on_step)
            fabricated = fabricate_unit(unit, output)
            on_step(fabricated.steps - 1, fabricated.train_loss)
            return fabricated

    if sys.argv[-1] in (FABRICATE, FABRICATE_ADAPTERS):
        return FabricatingTrainer(profile_named(profile_name))

    def train_as_neighbour(unit: Unit, state: NamedArrays, steps: range, on_step: OnStep) -> tuple[Arrays, float]:
        return train_steps(replace(unit, slot=unit.slot ^ 1), state, steps, on_step)

    class CopyingTrainer(Trainer):
        def run_unit(self, unit: Unit, output: Path, on_step: OnStep) -> UnitResult:
            return run_unit(unit, output, on_step, train=train_as_neighbour)

    if sys.argv[-1] == COPY:
        return CopyingTrainer(profile_named(profile_name))
    attack = Attack(sys.argv[-1])

    class DishonestTrainer(Trainer):
        earlier: Vector | None = None

        def run_unit(self, unit: Unit, output: Path, on_step: OnStep) -> UnitResult:
            if attack is not Attack.STALE or self.earlier is not None:
                segments = range(unit.spec.segments)
                return run_unit(
                    unit, output, on_step, train=dishonest_training(attack, segments, self.earlier, self.train)
                )

            def remember(unit: Unit, state: NamedArrays, steps: range, on_step: OnStep) -> tuple[Arrays, float]:
                after, loss = self.train(unit, state, steps, on_step)
                self.earlier = parameter_change(unit, after)
                return after, loss

            return run_unit(unit, output, on_step, train=remember)

    return DishonestTrainer(profile_named(profile_name))


def _load_lazy(profile_name: str) -> "Trainer":
    from training_gym.runtime.profile import profile_named
    from training_gym.units.steps import OnStep
    from training_gym.units.trace import Unit, UnitResult
    from training_gym.units.unit import run_unit
    from training_gym.verify.adversaries import Attack, dishonest_training
    from zoo_compute.node.execution.trainer import Trainer

    class LazyTrainer(Trainer):
        def run_unit(self, unit: Unit, output: Path, on_step: OnStep) -> UnitResult:
            if unit.round % 2 == 0:
                return super().run_unit(unit, output, on_step)
            lazy = dishonest_training(Attack.SKIP_STEP, range(unit.spec.segments), honest=self.train)
            return run_unit(unit, output, on_step, train=lazy)

    return LazyTrainer(profile_named(profile_name))


if __name__ == "__main__":
    child.main(_load_lazy if sys.argv[-1] == LAZY else _load)
