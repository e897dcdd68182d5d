"""Slashes with their evidence."""

from sqlalchemy.orm import Session

from market.domain.lifecycle import UNIT_DECIDED, ProviderStatus
from market.domain.verification.dispute_routes import DecidedBy, Reason, Route
from market.domain.verification.sampling import VerifierSanction
from market.platform.db.session import Database
from market.platform.storage.client import Storage
from market.providers import lifecycle
from market.providers import service as providers
from market.training.units import service as units
from market.training.units.facts import UnitSummary
from market.verification.decisions import repository
from market.verification.penalties import repository as penalties_repository
from market.verification.penalties.models import Slash
from market.verification.penalties.service import record_penalty
from market.verification.replays import canaries
from market.verification.samples import repository as samples_repository
from market.verification.samples.models import Canary, Comparison, Replay, Sample
from market.verification.windows import repository as windows_repository
from zoo_protocol.content.cid import digest_of
from zoo_protocol.hashing import canonical_json, to_hex

WRONG_REPLAY = VerifierSanction.SLASHED.value
_DELIVERED = ("provider", "trace_root", "leaves", "payload_hash", "salt", "payload_cid", "commitment_signature")
BY_OPERATOR = Route(DecidedBy.OPERATOR, Reason.NOT_REPLAYABLE)


def slash_verifiers(database: Database, storage: Storage) -> None:
    """Slash and jail each verifier outvoted again after its warning, one per transaction.

    The evidence contains the unit's whole trace, so it waits until the unit is decided.

    Raises:
        StorageError: evidence could not be stored; the next call repeats the penalty.
    """
    with database.transaction() as session:
        due = repository.replays_to_slash(session)
    for replay_id in due:
        with database.transaction() as session:
            subject, replay = samples_repository.lock_subject(session, replay_id)
            unit = units.unit_facts(session, subject.unit_id)
            document = _evidence_of_replays(session, unit, subject)
            document |= {"offence": WRONG_REPLAY, "verifier": replay.verifier}
        if unit.status in UNIT_DECIDED:
            evidence_cid = storage.put_block(canonical_json(document)).cid
            with database.transaction() as session:
                _slash_verifier(session, unit, replay_id, evidence_cid)


def _evidence_of_replays(
    session: Session, unit: UnitSummary, subject: Sample | Canary | Comparison
) -> dict[str, object]:
    assert not isinstance(subject, Comparison)  # a cross-class check sanctions no verifier
    if isinstance(subject, Canary):
        return canaries.evidence(session, unit, subject, BY_OPERATOR)
    return evidence(session, unit, subject, BY_OPERATOR)


def _slash_verifier(session: Session, unit: UnitSummary, replay_id: int, evidence_cid: str) -> None:
    """Slash the replay's verifier unless slashed for this unit or jailed for another one."""
    replay = samples_repository.lock(session, Replay, replay_id)
    if replay.id not in repository.replays_to_slash(session):
        return
    verifier = providers.require(session, replay.verifier, lock=True)
    is_jailed = verifier.status == ProviderStatus.JAILED and verifier.reason == WRONG_REPLAY
    if is_jailed or penalties_repository.is_slashed_for(session, unit.id, replay.verifier):
        replay.reason = "verifier_jailed"
        return
    slash = operators_slash(unit, replay.verifier, WRONG_REPLAY, evidence_cid, BY_OPERATOR, replay_id)
    record_penalty(session, unit, slash)
    lifecycle.jail(session, replay.verifier, WRONG_REPLAY)


def operators_slash(
    unit: UnitSummary, wallet: str, offence: str, evidence_cid: str, route: Route, replay_id: int | None = None
) -> Slash:
    """Return a penalty for the operator's key to execute."""
    return Slash(
        job_id=unit.job_id,
        unit_id=unit.id,
        replay_id=replay_id,
        provider=wallet,
        offence=offence,
        evidence=to_hex(digest_of(evidence_cid)),
        evidence_cid=evidence_cid,
        path=route.path,
        path_reason=route.reason,
    )


def evidence(session: Session, unit: UnitSummary, sample: Sample, route: Route) -> dict[str, object]:
    """Return all data for an independent replay and verdict. Equal samples give equal bytes."""
    window = windows_repository.window(session, unit.window_id or 0)
    return {
        "kind": "zoo-evidence/5",
        "offence": sample.reason,
        "path": route.path,
        "path_reason": route.reason,
        "job_id": unit.job_id,
        "spec": unit.spec,
        "unit": {name: getattr(unit, name) for name in (*canaries.UNIT_START, *_DELIVERED)},
        "window": {"id": window.chain_id_in_contract, "root": window.root, "seed": window.seed},
        "sampling_bps": unit.sampling_bps,
        "segment": sample.segment,
        "state_cid": sample.state_cid,
        "inner": canaries.inner_state_request(sample),
        "reveal_deadline_at": None if sample.reveal_deadline_at is None else sample.reveal_deadline_at.isoformat(),
        "reveal_until_at": None if sample.reveal_until_at is None else sample.reveal_until_at.isoformat(),
        "refusal": sample.refusal,
        "replays": [replay.as_evidence() for replay in samples_repository.lock_replays(session, sample)],
    }
