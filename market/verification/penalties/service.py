"""Slashes on chain: requested, executed, recorded."""

from sqlalchemy.orm import Session

from market.chain.contracts.bindings import ProviderStaking
from market.chain.contracts.codec import ChainEvent
from market.chain.service import request_call
from market.domain.verification.sampling import OFFENCE_IDS
from market.platform.db.rows import from_row
from market.platform.db.session import Database
from market.platform.events.service import emit
from market.providers import service as providers
from market.training.units import service as units
from market.training.units.facts import UnitSummary
from market.verification.penalties import repository
from market.verification.penalties.models import LatePenalty, Slash
from zoo_protocol.payments.job_record import SlashRecord


def record_penalty(session: Session, unit: UnitSummary, slash: Slash | LatePenalty) -> None:
    """Record a penalty, emit its event, and request its execution if not executed."""
    session.add(slash)
    _emit_slash(session, slash, round=unit.round, slot=unit.slot, evidence_cid=slash.evidence_cid)
    if slash.tx is None:
        _request_slash(session, slash)


def execute_slashes(database: Database) -> None:
    """Request the execution of every penalty that no final event has executed."""
    with database.transaction() as session:
        for slash in repository.unexecuted_penalties(session):
            _request_slash(session, slash)


def _request_slash(session: Session, slash: Slash | LatePenalty) -> None:
    request_call(
        session,
        key=f"slash:{slash.evidence}",
        kind="slash",
        subject=slash.job_id,
        **ProviderStaking.slash(slash.provider, OFFENCE_IDS[slash.offence], slash.evidence),
        amount=providers.at_risk(session, slash.provider),  # upper limit: the penalty table may change until then
    )


def on_slashed(session: Session, event: ChainEvent) -> None:
    """Handle the final Slashed event: record amount and transaction."""
    slash = repository.lock_penalty(session, event.args["evidence"])
    if slash is None or slash.tx is not None:
        return
    slash.amount_wei, slash.tx = event.args["amount"], event.tx_hash
    _emit_slash(session, slash)


def _emit_slash(session: Session, slash: Slash | LatePenalty, **of_unit: object) -> None:
    data = {name: getattr(slash, name) for name in ("provider", "path", "path_reason")}
    data |= {"reason": slash.offence} | of_unit
    if slash.tx is not None:
        data |= {"amount_wei": str(slash.amount_wei), "tx": slash.tx}
    emit(session, slash.job_id, "slash", data)


def job_slashes(session: Session, job_id: str) -> list[SlashRecord]:
    """Return the penalties for a job's units, oldest first."""
    found = []
    for slash in repository.slashes_of_job(session, job_id):
        unit = units.unit_facts(session, slash.unit_id)
        found.append(from_row(SlashRecord, slash, round=unit.round, slot=unit.slot))
    return found
