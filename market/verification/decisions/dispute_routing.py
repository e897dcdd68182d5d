"""Choice of the decider over refuted work: a committee of referees, or the operator's key."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from market.domain.verification.dispute_routes import Case, DecidedBy, Reason, Route, is_replayable, route
from market.jobs import service as jobs
from market.platform.db.session import Database
from market.providers import service as providers
from market.training.units.facts import UnitSummary
from market.verification.disputes import challenger as challenges
from market.verification.disputes import referee_list
from market.verification.disputes.challenger import Challenger
from market.verification.windows.models import Window
from market.verification.windows.omissions import inclusion_proof
from zoo_protocol.hashing import to_hex
from zoo_protocol.payments.job_record import leaf_of


@dataclass(frozen=True, slots=True)
class Adjudicator:
    """``challenger``: None without an account for disputes; ``enabled``: the setting."""

    challenger: Challenger | None
    enabled: bool

    def route(self, database: Database, unit: UnitSummary, window: Window, offence: str) -> Route:
        """Return the decider over this unit at present. Raises ChainError."""
        if not is_replayable(offence):
            return Route(DecidedBy.OPERATOR, Reason.NOT_REPLAYABLE)
        if not self.enabled:
            return Route(DecidedBy.OPERATOR, Reason.DISPUTES_OFF)
        if self.challenger is None:
            return Route(DecidedBy.OPERATOR, Reason.NO_CHALLENGER)
        chain, address = self.challenger.chain, self.challenger.address
        with database.transaction() as session:
            payer = jobs.get(session, unit.job_id).order.payer
            disputed_before = challenges.was_disputed(session, unit.id)
            own = providers.of_same_owner(session, unit.provider)
        referees = referee_list.eligible(database, chain, {address, payer, *own})
        with database.transaction() as session:
            of_class = providers.count_of_class(session, referees, unit.environment_class)
        end = _disputable_until(self.challenger, window)
        case = Case(
            offence=offence,
            segments=unit.segments,
            disputed_before=disputed_before,
            seconds_left=int(end.timestamp()) - chain.head_timestamp(),
            referees=len(referees),
            of_class=of_class,
            balance_wei=chain.balance_of(address),
        )
        return route(case, self.challenger.terms)

    def open_dispute(self, session: Session, unit: UnitSummary, window: Window, step: int, evidence_cid: str) -> str:
        """Record the dispute of segment ``step``; return the dispute's id."""
        assert self.challenger is not None  # the route is a dispute
        return challenges.record_challenge(
            session,
            self.challenger,
            unit,
            order=jobs.get(session, unit.job_id).order,
            window_root=window.root,
            window_proof=inclusion_proof(session, window, to_hex(leaf_of(unit.commitment))),
            open_by=_disputable_until(self.challenger, window),
            step=step,
            evidence_cid=evidence_cid,
        )


def _disputable_until(challenger: Challenger, window: Window) -> datetime:
    assert window.committed_at is not None  # its seed is recorded
    return window.committed_at + timedelta(seconds=challenger.terms.period_seconds)
