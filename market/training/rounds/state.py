"""Progress and deadlines of an outer round."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from market.domain.lifecycle import UnitStatus
from market.jobs.models import Job
from market.settings import Settings
from market.training.units import repository as units_repository
from market.training.units import slot_states
from market.training.units.models import Unit
from training_gym.exchange import deadlines

DEADLINE_ROUNDS = 4
"""The round deadline is computed from the deliveries of this many rounds."""

REPORT_OF_ANOTHER_JOB = timedelta(days=1)
"""Maximum age of a report of another job's unit that stands in for one of this job. Links change."""


@dataclass(frozen=True, slots=True)
class RoundState:
    """Progress of a round: ``open`` units are with nodes, ``delivered`` ones not rejected.

    A quorum does not wait for ``infeasible`` units: open ones that were offered after ``last_offer``.
    It waits for the other open units until ``deadline``. Without a quorum the job fails after ``patience``.
    ``last_early_offer`` is the latest offset from the next round's start at which its units are offered.
    """

    nodes: int
    open: int
    delivered: int
    started_at: datetime
    deadline: timedelta
    patience: timedelta
    infeasible: int = 0
    last_offer: timedelta | None = None
    last_early_offer: timedelta | None = None

    @property
    def quorum(self) -> int:
        return deadlines.quorum(self.nodes)

    def can_close(self, now: datetime) -> bool:
        """Return True if a quorum is delivered and no feasible unit is open before the deadline."""
        late = now >= self.started_at + self.deadline
        return self.delivered >= self.quorum and (self.open <= self.infeasible or late)

    def is_infeasible(self, now: datetime) -> bool:
        return self.delivered < self.quorum and now >= self.started_at + self.patience

    def can_finish_in_time(self, now: datetime) -> bool:
        """Return True if a unit offered now may finish in time, or the quorum needs it."""
        in_time = self.last_offer is None or now <= self.started_at + self.last_offer
        return in_time or self.lacks_quorum

    def can_start_next_round(self, now: datetime, started_at: datetime | None) -> bool:
        """Return True if a unit of the next round, begun at ``started_at``, can finish in time."""
        return started_at is None or self.last_early_offer is None or now <= started_at + self.last_early_offer

    @property
    def lacks_quorum(self) -> bool:
        """True if delivered and open units together are fewer than a quorum."""
        return self.delivered + self.open < self.quorum


def round_state(session: Session, job: Job, units: list[Unit], settings: Settings) -> RoundState:
    """Return the progress of the job's current round, given all its units.

    The deadline follows from the duration of the job's last rounds, within the limits of the settings.
    """
    longest, opened_at = settings.round_deadline_seconds, job.round_started_at or job.created_at
    started_at = opened_at
    share = deadlines.MIN_SLACK_SHARE
    if slot_states.continues_on_delivery(job):
        started_at = deadlines.round_start([unit.created_at for unit in units], job.nodes) or started_at
        share = deadlines.OVERLAPPED_SLACK
    taken = units_repository.delivery_seconds(session, job.id, job.current_round - DEADLINE_ROUNDS)
    deadline = min(deadlines.deadline(taken, settings.round_grace_seconds, share) if taken else longest, longest)
    last_offer = timedelta(seconds=deadlines.last_offer(taken, deadline)) if taken else None
    last_early_offer = timedelta(seconds=deadlines.latest_early_start(taken, deadline)) if taken else None
    return RoundState(
        nodes=job.nodes,
        open=sum(unit.status in units_repository.OPEN_UNIT for unit in units),
        delivered=sum(unit.status in units_repository.DELIVERED_UNIT for unit in units),
        started_at=started_at,
        deadline=timedelta(seconds=deadline),
        # Early offers precede `opened_at`, and so do units before a pause: the timeout counts from `opened_at`.
        patience=timedelta(seconds=settings.round_timeout_seconds) + max(opened_at - started_at, timedelta(0)),
        # A committed unit is being uploaded in time, whenever it was offered.
        infeasible=sum(
            last_offer is not None and unit.status == UnitStatus.LEASED and unit.created_at > started_at + last_offer
            for unit in units
        ),
        last_offer=last_offer,
        last_early_offer=last_early_offer,
    )
