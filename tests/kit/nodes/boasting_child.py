"""The training child of a provider that trains honestly and states half of its model's loss.

``PROFILE MEMORY_BYTES PROCESSES``. Its last leaf agrees with the false record.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from zoo_compute.node.execution import child

if TYPE_CHECKING:
    from zoo_compute.node.execution.trainer import Trainer


def _load(profile_name: str) -> "Trainer":
    from dataclasses import replace

    from training_gym.evaluate.sums import LossSums
    from training_gym.runtime.profile import profile_named
    from training_gym.units.steps import OnStep
    from training_gym.units.trace import Unit, UnitResult, state_digest
    from zoo_compute.node.execution.trainer import Trainer

    class BoastingTrainer(Trainer):
        def run_unit(self, unit: Unit, output: Path, on_step: OnStep) -> UnitResult:
            done = super().run_unit(unit, output, on_step)
            true = LossSums.from_bytes(done.evaluation)
            false = replace(true, losses=true.losses // 2, products=true.products // 2).to_bytes()
            end = state_digest(done.end_parameters_digest, done.slot_state_digest, done.payload, false)
            return replace(done, evaluation=false, state_digests=[*done.state_digests[:-1], end])

    return BoastingTrainer(profile_named(profile_name))


if __name__ == "__main__":
    child.main(_load)
