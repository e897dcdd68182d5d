"""Rollback of a job whose training goes wrong, to its best checkpoint. Pure.

A round is rolled back if the loss of its checkpoint is not finite or spikes. So it is if too many of its replicas
diverged, or if its outer step is not finite. The next checkpoint then repeats the best one: model and outer state.
Replica states start afresh, and no payload of a unit begun before is aggregated. Units are verified and paid as usual.
"""

from collections import Counter
from collections.abc import Collection, Mapping

from market.domain.lifecycle import UnitStatus
from market.training.units.models import Unit
from training_gym.exchange.deadlines import quorum
from zoo_protocol.verification.training_faults import DIVERGED, KnownLoss, Rollback, has_diverged, loss_fault


def diverged_units(units: Collection[Unit]) -> Counter[int]:
    """Return the number of diverged units of each replica without a committed one."""
    usable = {unit.slot for unit in units if unit.status not in (UnitStatus.LEASED, UnitStatus.LOST)}
    return Counter(unit.slot for unit in units if unit.reason == DIVERGED and unit.slot not in usable)


def needed_rollback(
    losses: Mapping[int, KnownLoss], since: int, units: Collection[Unit], nodes: int
) -> Rollback | None:
    """Return the rollback that a round needs, or None.

    Args:
        losses: known losses by the round of their checkpoint, up to the present one.
        since: round of the checkpoint of the last rollback; losses before it do not count again.
        units: of the round, lost ones too.
        nodes: replicas of the job.
    """
    known = [loss for _, loss in sorted(losses.items())]
    reason = loss_fault(known) if losses and max(losses) >= since else None
    if reason is None and has_diverged(diverged_units(units), nodes, quorum(nodes)):
        reason = DIVERGED
    return None if reason is None else Rollback(best_round(losses), reason)


def best_round(losses: Mapping[int, KnownLoss]) -> int:
    """Return the round of the lowest known loss, of equal ones the first; 0 if none is known."""
    return min(sorted(losses), key=lambda round_: losses[round_].loss, default=0)
