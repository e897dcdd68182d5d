"""Plan of the next settlement batches: payable units of all jobs, and the ends of jobs."""

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
class JobShare:
    """One job's share of a batch: units of rounds ``from_round`` to before ``to_round``."""

    job: JobSummary
    units: list[UnitSummary]
    from_round: int
    to_round: int
    last: bool

    @property
    def unit_pay(self) -> int:
        """Pay for one unit after the fee, in wei."""
        return net_unit_price(self.job.clearing_price_wei or 0, self.job.order.unitWeight, self.job.fee_bps or 0)

    @property
    def pay(self) -> int:
        """Pay for all units after the fee, in wei."""
        return len(self.units) * self.unit_pay


def due_batches(session: Session, settings: Settings, now: datetime) -> list[list[JobShare]]:
    """Return the shares of each due batch.

    Batches are due when a job has ended, an interval has passed since the last batch, or enough units wait. A job has
    one pending line at most. A job whose last batch is void is settled alone and with growing delays, so that it does
    not block the pay of other jobs.
    """
    payables.start_settling(session)
    pending = repository.jobs_with_pending_lines(session)
    waiting = [job_id for job_id in payables.jobs_to_settle(session) if job_id not in pending]
    failed = repository.failures(session, waiting)
    ready = [jobs.get(session, job_id) for job_id in waiting if now >= _retry_at(failed.get(job_id), now)]

    ended = _shares(session, settings, [job for job in ready if job.status == JobStatus.SETTLING])
    count, since = payables.unpaid_count(session)
    since = repository.last_batch_at(session) or since
    is_time = since is not None and now >= since + timedelta(seconds=settings.settlement_interval_seconds)
    if not ended and not is_time and count < settings.settlement_units:
        return []
    running = _shares(session, settings, [job for job in ready if job.status != JobStatus.SETTLING])
    if not ended and not is_time and sum(len(share.units) for share in running) < settings.settlement_units:
        return []

    shares = ended + running
    paying = [share for share in shares if share.units and share.job.id not in failed]
    # Lines without units have batches of their own, so that no veto of other jobs' units delays the end of these jobs.
    ending = [share for share in shares if not share.units and share.job.id not in failed]
    alone = [[share] for share in shares if share.job.id in failed]
    return [*_packed(paying, settings), *_packed(ending, settings), *alone]


def _retry_at(failure: tuple[int, datetime] | None, now: datetime) -> datetime:
    """Return the earliest next settlement: at once, then after 30 s, 90 s, 210 s and so on."""
    if failure is None:
        return now
    times, at = failure
    factor: int = 2 ** min(times - 1, 16) - 1
    return at + min(_RETRY * factor, _LONGEST_RETRY)


def _shares(session: Session, settings: Settings, facts: Sequence[JobSummary]) -> list[JobShare]:
    found = (_share(session, settings, job) for job in facts)
    return [share for share in found if share is not None]


def _share(session: Session, settings: Settings, job: JobSummary) -> JobShare | None:
    events = [event for event in final_events(session, job.id) if event.contract == "JobEscrow"]
    settled = JobSettlement.from_events((event.name, event.args, event.tx_hash) for event in events)
    if settled.over and job.status == JobStatus.SETTLING:  # refunded before all units were decided
        payables.end_settlement(session, job.id, tx=events[-1].tx_hash, at=from_unix(events[-1].timestamp))
        return None
    undisputed_units, disputed = undisputed(session, payables.payable_units(session, job.id))
    units = _whole_rounds(undisputed_units, settings.settlement_max_units)
    is_over = job.status == JobStatus.SETTLING
    last = is_over and not disputed and len(units) == len(undisputed_units)
    start = settled.next_round
    if settled.over or not (units or last):
        return None
    if not units:
        return JobShare(job, [], start, start, last)
    end = units[-1].round + 1
    if end <= start:  # units of earlier rounds, whose batch was vetoed after a later batch was posted
        if not is_over:
            return None  # settled with the job's next round
        end = start + 1
    return JobShare(job, units, start, end, last)


def _whole_rounds(units: Sequence[UnitSummary], limit: int) -> list[UnitSummary]:
    """Return the units of the first rounds, at most ``limit`` units but at least one round."""
    taken: list[UnitSummary] = []
    for _, round_ in groupby(units, key=lambda unit: unit.round):
        more = list(round_)
        if taken and len(taken) + len(more) > limit:
            break
        taken += more
    return taken


def _packed(shares: Sequence[JobShare], settings: Settings) -> list[list[JobShare]]:
    """Group shares into batches within limits of jobs, units and ZEN; one share may exceed."""
    batches: list[list[JobShare]] = []
    for share in shares:
        joined = [*batches[-1], share] if batches else [share]
        fits = (
            len(joined) <= settings.settlement_max_jobs
            and sum(len(one.units) for one in joined) <= settings.settlement_max_units
            and sum(one.pay for one in joined) <= settings.max_zen_per_transaction * ZEN
        )
        if batches and fits:
            batches[-1] = joined
        else:
            batches.append([share])
    return batches
