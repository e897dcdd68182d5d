"""Reasons and targets of rollbacks, from the losses and units of a job record."""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress

from training_gym.exchange.deadlines import quorum
from training_gym.spec.config import TrainingSpec
from zoo_compute.audit.settlements import Expect, read_record
from zoo_compute.base.errors import Mismatch
from zoo_compute.content.gateway import UNAVAILABLE, GatewayClient
from zoo_protocol.payments.job_record import CheckpointRecord, JobRecord
from zoo_protocol.payments.receipt import Settled
from zoo_protocol.verification.training_faults import (
    DIVERGED,
    FINAL_LOSS,
    LARGEST_LOSS,
    STEP_NOT_FINITE,
    KnownLoss,
    Rollback,
    checkpoint_fault,
    has_diverged,
)

_UNKNOWN = KnownLoss(LARGEST_LOSS)


class RollbackChecks:
    """Checks of a record's rollbacks; each adds its findings.

    A record does not show when a loss became known, except that it was before an earlier settlement or rollback.
    """

    def __init__(
        self, expect: Expect, record: JobRecord, spec: TrainingSpec, nodes: int, gateway: GatewayClient
    ) -> None:
        self._expect, self._record, self._spec, self._nodes, self._gateway = expect, record, spec, nodes, gateway

    def check(self, stated: Mapping[int, Rollback], lines: Sequence[Settled]) -> None:
        """Check all rollbacks.

        Args:
            stated: by the round of their checkpoint, ascending.
            lines: the job's settlements before the last one; their records show which losses were known then.
        """
        since, earlier = 0, set[int]()
        for number, rollback in stated.items():
            round_ = number - 1
            losses = self._losses(round_)
            target = losses.get(rollback.to, _UNKNOWN)
            # Any lower loss became known later: otherwise its checkpoint would be the target.
            known = {one: loss for one, loss in losses.items() if loss.loss >= target.loss}
            if rollback.reason not in self._faults(since, round_, known):
                due = f"a reason that units or losses from {target.loss} on give; ask the market which ones"
                self._expect("wrong_rollback", f"rounds[{round_}].rollback_reason", due, rollback.reason)
            if rollback.reason != FINAL_LOSS:  # of those models the market evaluates only some, again
                before = {one: losses[one] for one in earlier if one in losses} | self._published_before(round_, lines)
                lowest = min((loss.loss for loss in before.values()), default=LARGEST_LOSS)
                known_of_target = min(target.loss, before.get(rollback.to, target).loss)
                if known_of_target > lowest or (rollback.to > 0 and target.loss >= LARGEST_LOSS):
                    due = f"the checkpoint with the lowest known loss, at most {lowest}; ask the market why"
                    self._expect("wrong_rollback", f"rounds[{round_}].rolled_back_to", due, rollback.to)
            since = number
            if rollback.to > 0:  # the first model is also the target while no loss is known
                earlier.add(rollback.to)

    def _losses(self, round_: int) -> dict[int, KnownLoss]:
        """Return the losses of the checkpoints up to a round's own."""
        return _known_losses(self._record.checkpoints[: round_ + 1])

    def _published_before(self, round_: int, lines: Sequence[Settled]) -> dict[int, KnownLoss]:
        """Return the losses, by checkpoint, that a settlement had published before a round began.

        A better evaluation may have replaced some since, as that of the first model.
        """
        known: dict[int, KnownLoss] = {}
        for line in lines:
            with suppress(Mismatch, *UNAVAILABLE):  # reported with the line's batch
                shown = read_record(self._gateway, line.record, self._record.job_id).checkpoints
                if len(shown) <= round_:
                    known |= _known_losses(shown)
        return known

    def _faults(self, since: int, round_: int, losses: Mapping[int, KnownLoss]) -> set[str | None]:
        """Return the codes of a round's faults by these losses.

        Checkpoints before ``since``, and units that started from them, do not count again.
        """
        is_last = round_ + 1 == self._spec.training.rounds
        # The record cannot show these.
        faults: set[str | None] = {STEP_NOT_FINITE, FINAL_LOSS} if is_last else {STEP_NOT_FINITE}
        for newest in losses:
            if newest >= since:
                faults.add(checkpoint_fault({one: loss for one, loss in losses.items() if one <= newest}))
        starts = {one.cid for one in self._record.checkpoints[since:]}
        units = [one for one in self._record.units if one.round == round_ and one.start_checkpoint_cid in starts]
        usable = {unit.slot for unit in units if unit.status != "lost"}
        lost = Counter(unit.slot for unit in units if unit.reason == DIVERGED and unit.slot not in usable)
        if has_diverged(lost, self._nodes, quorum(self._nodes)):
            faults.add(DIVERGED)
        return faults


def _known_losses(checkpoints: Sequence[CheckpointRecord]) -> dict[int, KnownLoss]:
    return {
        one.round: KnownLoss.of(one.validation_loss, one.validation_error)
        for one in checkpoints
        if one.validation_loss is not None
    }
