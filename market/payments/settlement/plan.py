"""What the next batches settle: verified units of all jobs that wait for pay, and jobs that wait for their end."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby

from sqlalchemy.orm import Session

from market.chain.service import final_events
from market.domain.lifecycle import JobStatus
from market.domain.network import ZEN
from market.jobs import service as jobs
from market.jobs.service import JobSummary
from market.payments.payables import job_settlement
from market.payments.payables import service as payables
from market.payments.settlement import repository
from market.payments.settlement.contested_units import undisputed
from market.platform.db.base import from_unix
from market.settings import Settings
from market.training.units.facts import UnitSummary
from zoo_protocol.payments.receipt import JobSettlement, net_unit_price

_RETRY = timedelta(seconds=30)


_LONGEST_RETRY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Part:
    """What one batch settles of one job: these units, of rounds ``from_round`` to before ``to_round``."""

    job: JobSummary
    units: list[UnitSummary]
    from_round: int
    to_round: int
    last: bool

    @property
    def unit_pay(self) -> int:
        """What the provider of one unit gets, wei."""
        return net_unit_price(self.job.clearing_price_wei or 0, self.job.order.unitWeight, self.job.fee_bps or 0)

    @property
    def pay(self) -> int:
        """What all its providers get, wei."""
        return len(self.units) * self.unit_pay


def due_batches(session: Session, settings: Settings, now: datetime) -> list[list[Part]]:
    """The parts of each batch that is due, none if nothing is.

    Batches are due when a job has ended, when an interval has passed since the last one, and when many units wait.
    A job with a line on its way to the chain waits for it. One whose last batch is void is settled alone, and the more
    often that happened the later: it must not keep others from their pay, nor be posted on and on.
    """
    job_settlement.start_settling(session)
    on_their_way = repository.jobs_with_pending_lines(session)
    waiting = [job_id for job_id in payables.jobs_to_settle(session) if job_id not in on_their_way]
    failed = repository.failures(session, waiting)
    ready = [jobs.get(session, job_id) for job_id in waiting if now >= _retry_at(failed.get(job_id), now)]

    over = _parts(session, settings, [job for job in ready if job.status == JobStatus.SETTLING])
    count, since = payables.unpaid_count(session)
    since = repository.last_batch_at(session) or since
    is_time = since is not None and now >= since + timedelta(seconds=settings.settlement_interval_seconds)
    if not over and not is_time and count < settings.settlement_units:
        return []
    running = _parts(session, settings, [job for job in ready if job.status != JobStatus.SETTLING])
    if not over and not is_time and sum(len(part.units) for part in running) < settings.settlement_units:
        return []

    parts = over + running
    paying = [part for part in parts if part.units and part.job.id not in failed]
    # A line that pays nobody cannot be vetoed in a batch of its own: nothing ties its job to the fate of others.
    ending = [part for part in parts if not part.units and part.job.id not in failed]
    alone = [[part] for part in parts if part.job.id in failed]
    return [*_packed(paying, settings), *_packed(ending, settings), *alone]


def _retry_at(failure: tuple[int, datetime] | None, now: datetime) -> datetime:
    """When a job may be settled again: after a first failure at once, then after 30 s, 90 s, 210 s and so on."""
    if failure is None:
        return now
    times, at = failure
    factor: int = 2 ** min(times - 1, 16) - 1
    return at + min(_RETRY * factor, _LONGEST_RETRY)


def _parts(session: Session, settings: Settings, facts: Sequence[JobSummary]) -> list[Part]:
    found = (_part(session, settings, job) for job in facts)
    return [part for part in found if part is not None]


def _part(session: Session, settings: Settings, job: JobSummary) -> Part | None:
    """What can be settled of a job now; None if there is nothing, or if its turn has not come."""
    events = [event for event in final_events(session, job.id) if event.contract == "JobEscrow"]
    settled = JobSettlement.from_events((event.name, event.args, event.tx_hash) for event in events)
    if settled.over and job.status == JobStatus.SETTLING:  # it was refunded before its last units were decided
        job_settlement.end_settlement(session, job.id, tx=events[-1].tx_hash, at=from_unix(events[-1].timestamp))
        return None
    undisputed_units, disputed = undisputed(session, payables.payable_units(session, job.id))
    units = _whole_rounds(undisputed_units, settings.settlement_max_units)
    is_over = job.status == JobStatus.SETTLING
    last = is_over and not disputed and len(units) == len(undisputed_units)
    start = settled.next_round
    if settled.over or not (units or last):
        return None
    if not units:
        return Part(job, [], start, start, last)
    end = units[-1].round + 1
    if end <= start:  # units of rounds before: their batch was vetoed after a later one had been posted
        if not is_over:
            return None  # they go with the job's next round
        end = start + 1
    return Part(job, units, start, end, last)


def _whole_rounds(units: Sequence[UnitSummary], limit: int) -> list[UnitSummary]:
    """As many rounds as have at most ``limit`` units, and at least one."""
    taken: list[UnitSummary] = []
    for _, round_ in groupby(units, key=lambda unit: unit.round):
        more = list(round_)
        if taken and len(taken) + len(more) > limit:
            break
        taken += more
    return taken


def _packed(parts: Sequence[Part], settings: Settings) -> list[list[Part]]:
    """The parts in batches, none beyond the limits on jobs, units and ZEN unless a single part is."""
    batches: list[list[Part]] = []
    for part in parts:
        joined = [*batches[-1], part] if batches else [part]
        fits = (
            len(joined) <= settings.settlement_max_jobs
            and sum(len(one.units) for one in joined) <= settings.settlement_max_units
            and sum(one.pay for one in joined) <= settings.max_zen_per_transaction * ZEN
        )
        if batches and fits:
            batches[-1] = joined
        else:
            batches.append([part])
    return batches
