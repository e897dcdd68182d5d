"""Rollback of a job whose training goes wrong, to its best checkpoint. Pure.

A round is rolled back if the loss of its checkpoint is not finite or spikes. So it is if too many of its replicas
diverged, or if its outer step is not finite. The next checkpoint then repeats the best one: model and outer state.
Replica states start afresh, and no payload of a unit begun before is aggregated. Committed units are verified and paid
as usual.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from market.domain.lifecycle import UnitStatus
from market.jobs.models import Job
from market.training.checkpoints.models import Checkpoint
from market.training.checkpoints.service import loss_in
from market.training.units.models import Unit
from training_gym.exchange.deadlines import quorum
from zoo_protocol.verification.training_faults import (
    DIVERGED,
    FINAL_LOSS,
    KnownLoss,
    Rollback,
    checkpoint_fault,
    has_diverged,
    is_worse,
    loss_fault,
)


def known_losses(checkpoints: Sequence[Checkpoint]) -> dict[int, KnownLoss]:
    """Return the known losses by the round of their checkpoint, ascending as the checkpoints."""
    return {one.round: loss_in(one).known() for one in checkpoints if one.validation_loss is not None}


def origin_loss(first: Checkpoint) -> float:
    """Return the first loss of the jobs that this checkpoint's continues; 0 if unknown."""
    return float(first.origin_loss or 0)


def needed_rollback(checkpoints: Sequence[Checkpoint], units: Collection[Unit], nodes: int) -> Rollback | None:
    """Return the rollback that a round needs, or None.

    Losses and units from before the last rollback do not count again.

    Args:
        checkpoints: of the job, ascending, up to the round's own.
        units: of the round, lost ones too.
        nodes: replicas of the job.
    """
    losses, since = known_losses(checkpoints), _last_rollback(checkpoints)
    reason = checkpoint_fault(losses, origin_loss(checkpoints[0])) if losses and max(losses) >= since else None
    if reason is None and have_diverged(checkpoints, units, nodes):
        reason = DIVERGED
    return None if reason is None else Rollback(best_round(losses), reason)


def continued_checkpoint(job: Job, checkpoints: Sequence[Checkpoint], units: Collection[Unit]) -> Checkpoint:
    """Return the one of the job's checkpoints, ascending, that an extension starts from.

    It is the best one if the job failed as diverged, or if its next round would be rolled back. Otherwise it is the
    last. A completed job's final model was accepted, with a loss of more samples than the others. A first loss that
    verifiers state may be false, so the next known one counts as the first.

    Args:
        units: of the round after the last checkpoint, lost ones too.
    """
    last, losses = checkpoints[-1], known_losses(checkpoints[checkpoints[0].is_stated :])
    is_new = bool(losses) and max(losses) >= _last_rollback(checkpoints)
    ordered = [one for _, one in sorted(losses.items())]
    is_spoiled = is_new and loss_fault(ordered, origin_loss(checkpoints[0])) is not None
    needs_rollback = last.round < job.rounds and (is_spoiled or have_diverged(checkpoints, units, job.nodes))
    return checkpoints[best_round(losses)] if job.reason == DIVERGED or needs_rollback else last


def final_rollback(
    first: KnownLoss, found: Mapping[int, KnownLoss], compared: Collection[int], final: KnownLoss
) -> Rollback | None:
    """Return the rollback of a final model that spikes, or is worse than a compared one.

    Args:
        found: losses of earlier models by round, all on the market's own evaluation, as that of the ``final`` one.
        compared: rounds of those after the warm-up.
    """
    best = min(found, key=lambda round_: found[round_])
    if loss_fault([max(first, found[best]), found[best], final]) is not None:  # a false first loss may be low
        return Rollback(best, FINAL_LOSS)
    best = min(compared, key=lambda round_: found[round_], default=0)
    return Rollback(best, FINAL_LOSS) if compared and is_worse(final, found[best]) else None


def have_diverged(checkpoints: Sequence[Checkpoint], units: Collection[Unit], nodes: int) -> bool:
    """Return True if too many replicas diverged in units begun since the last rollback."""
    begun = _later_starts(checkpoints)
    counted = [unit for unit in units if unit.start_checkpoint_cid in begun]
    usable = {unit.slot for unit in counted if unit.status not in (UnitStatus.LEASED, UnitStatus.LOST)}
    given_up = Counter(unit.slot for unit in counted if unit.reason == DIVERGED and unit.slot not in usable)
    return has_diverged(given_up, nodes, quorum(nodes))


def lacks_quorum(checkpoints: Sequence[Checkpoint], units: Collection[Unit], nodes: int, payloads: int) -> bool:
    """Return True if units begun before the last rollback leave ``payloads`` below a quorum.

    These units count for the round's quorum. No rule could exclude a payload that is left alone.
    """
    starts = _later_starts(checkpoints)
    return payloads < quorum(nodes) and any(unit.start_checkpoint_cid not in starts for unit in units)


def _later_starts(checkpoints: Sequence[Checkpoint]) -> set[str]:
    return {one.cid for one in checkpoints if one.round >= _last_rollback(checkpoints)}


def _last_rollback(checkpoints: Sequence[Checkpoint]) -> int:
    return max((one.round for one in checkpoints if one.rolled_back_to is not None), default=0)


def best_round(losses: Mapping[int, KnownLoss]) -> int:
    """Return the round of the lowest finite loss, of equal ones the first; 0 if none is known."""
    finite = [round_ for round_ in sorted(losses) if loss_fault([losses[round_]]) is None]
    return min(finite, key=lambda round_: losses[round_].loss, default=0)
