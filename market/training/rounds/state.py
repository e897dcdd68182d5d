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
"""So many rounds back, deliveries tell how long the next may take."""


REPORT_OF_ANOTHER_JOB = timedelta(days=1)
"""For so long a node's report of another job's unit stands for one of this job: its link may be another since."""


@dataclass(frozen=True, slots=True)
class RoundState:
    """Where a round stands: ``open`` units are out with nodes, ``delivered`` ones are uploaded and not rejected.

    Those of the open ones that were offered after ``last_offer`` are ``infeasible``: a quorum does not wait for them.
    For the others it waits until ``deadline``; without a quorum the job fails after ``patience``.
    ``last_ahead`` is the latest offset from its start at which units of the next round are offered.
    """

    nodes: int
    open: int
    delivered: int
    started_at: datetime
    deadline: timedelta
    patience: timedelta
    infeasible: int = 0
    last_offer: timedelta | None = None
    last_ahead: timedelta | None = None

    @property
    def quorum(self) -> int:
        """Deliveries without which the round does not close."""
        return deadlines.quorum(self.nodes)

    def can_close(self, now: datetime) -> bool:
        """Whether to aggregate now: a quorum is delivered, and nothing is worth waiting for any longer."""
        late = now >= self.started_at + self.deadline
        return self.delivered >= self.quorum and (self.open <= self.infeasible or late)

    def is_infeasible(self, now: datetime) -> bool:
        return self.delivered < self.quorum and now >= self.started_at + self.patience

    def can_finish_in_time(self, now: datetime) -> bool:
        """Whether a unit that is offered now may still come in time, or there is no quorum without it."""
        in_time = self.last_offer is None or now <= self.started_at + self.last_offer
        return in_time or self.lacks_quorum

    def can_start_next_round(self, now: datetime, began: datetime | None) -> bool:
        """Whether a unit of the next round that is offered now would come in time; ``began``: when that round did, None
        if too few of its units were offered yet."""
        return began is None or self.last_ahead is None or now <= began + self.last_ahead

    @property
    def lacks_quorum(self) -> bool:
        """Whether the units that are there and those that are out are too few for a quorum."""
        return self.delivered + self.open < self.quorum


def round_state(session: Session, job: Job, units: list[Unit], settings: Settings) -> RoundState:
    """The state of the job's current round, given all its units.

    Its deadline follows what the job's last rounds took, within what the settings allow.
    """
    longest, opened_at = settings.round_deadline_seconds, job.round_started_at or job.created_at
    started_at = opened_at
    share = deadlines.LEAST_SLACK
    if slot_states.continues_on_delivery(job):
        started_at = deadlines.round_start([unit.created_at for unit in units], job.nodes) or started_at
        share = deadlines.OVERLAPPED_SLACK
    taken = units_repository.delivery_seconds(session, job.id, job.current_round - DEADLINE_ROUNDS)
    deadline = min(deadlines.deadline(taken, settings.round_grace_seconds, share) if taken else longest, longest)
    last_offer = timedelta(seconds=deadlines.last_offer(taken, deadline)) if taken else None
    last_ahead = timedelta(seconds=deadlines.latest_early_start(taken, deadline)) if taken else None
    return RoundState(
        nodes=job.nodes,
        open=sum(unit.status in units_repository.OPEN_UNIT for unit in units),
        delivered=sum(unit.status in units_repository.DELIVERED_UNIT for unit in units),
        started_at=started_at,
        deadline=timedelta(seconds=deadline),
        # Units are offered ahead, and before a pause: that the job is given up counts from when it could go on.
        patience=timedelta(seconds=settings.round_timeout_seconds) + max(opened_at - started_at, timedelta(0)),
        # What is committed already is coming in time, whenever it was offered.
        infeasible=sum(
            last_offer is not None and unit.status == UnitStatus.LEASED and unit.created_at > started_at + last_offer
            for unit in units
        ),
        last_offer=last_offer,
        last_ahead=last_ahead,
    )
