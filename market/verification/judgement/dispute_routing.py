"""Who decides over refuted work, asked of the chain: a committee of referees if it can, else the operator's key."""

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
from market.verification.disputes.challenger import Accusation, Challenger
from market.verification.windows.models import Window
from market.verification.windows.omissions import proof_of


@dataclass(frozen=True, slots=True)
class Adjudicator:
    """``challenger`` is None where the market has no account to dispute with; ``enabled`` is the market's setting."""

    challenger: Challenger | None
    enabled: bool

    def route(self, database: Database, unit: UnitSummary, window: Window, offence: str) -> Route:
        """Who decides over this unit now.

        Raises:
            ChainError: the chain does not say.
        """
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

    def accuse(self, session: Session, unit: UnitSummary, window: Window, step: int, evidence_cid: str) -> str:
        """Have the unit disputed for this step; the dispute's id."""
        assert self.challenger is not None  # it was routed to a dispute
        accusation = Accusation(
            unit_id=unit.id,
            order=jobs.get(session, unit.job_id).order,
            commitment=unit.commitment,
            signature=unit.commitment_signature,
            window_root=window.root,
            window_proof=proof_of(session, window, unit.commitment),
            open_by=_disputable_until(self.challenger, window),
            step=step,
            evidence_cid=evidence_cid,
        )
        return challenges.accuse(session, self.challenger, accusation)


def _disputable_until(challenger: Challenger, window: Window) -> datetime:
    assert window.committed_at is not None  # its seed is latched
    return window.committed_at + timedelta(seconds=challenger.terms.period_seconds)
