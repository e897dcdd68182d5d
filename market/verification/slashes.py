"""Penalties: who is punished for what, by whose decision, on what evidence, and what the chain made of it."""

from sqlalchemy.orm import Session

from market.chain.bindings import ProviderStaking
from market.chain.contracts import ChainEvent
from market.db.session import Database
from market.disputes.route import Path, Reason, Route
from market.domain.lifecycle import UNIT_DECIDED, ProviderStatus
from market.domain.verification import OFFENCE_IDS, Overruled
from market.events.service import emit
from market.jobs import service as jobs
from market.jobs.units import UnitFacts
from market.providers import service as providers
from market.storage.service import Storage
from market.verification import canaries, repository
from market.verification.calls import ask
from market.verification.models import Canary, Comparison, LatePenalty, Sample, Slash
from zoo_protocol.cid import digest_of
from zoo_protocol.hashing import canonical_json, to_hex
from zoo_protocol.record import SlashRecord

WRONG_REPLAY = Overruled.SLASHED.value
BY_OPERATOR = Route(Path.OPERATOR, Reason.NOT_REPLAYABLE)


def slash_verifiers(database: Database, storage: Storage) -> None:
    """Slash and jail every verifier that was overruled again after its warning, each in its own transaction.

    The evidence has the unit's whole trace, which is nobody's business before the unit is decided.

    Raises:
        StorageError: evidence could not be stored; the penalty waits for the next call.
    """
    with database.transaction() as session:
        due = repository.replays_to_punish(session)
    for replay_id in due:
        with database.transaction() as session:
            posed = repository.lock_posed(session, replay_id)
            replay = repository.lock_replay(session, replay_id)
            assert replay is not None  # replays are not deleted
            unit = jobs.unit_facts(session, posed.unit_id)
            document = _evidence_of_replays(session, unit, posed)
            document |= {"offence": WRONG_REPLAY, "verifier": replay.verifier}
        if unit.status in UNIT_DECIDED:
            evidence_cid = storage.put_block(canonical_json(document)).cid
            with database.transaction() as session:
                _punish(session, unit, replay_id, evidence_cid)


def _evidence_of_replays(session: Session, unit: UnitFacts, posed: Sample | Canary | Comparison) -> dict[str, object]:
    assert not isinstance(posed, Comparison)  # which blames nobody
    if isinstance(posed, Canary):
        return canaries.evidence(session, unit, posed, BY_OPERATOR)
    return evidence(session, unit, posed, BY_OPERATOR)


def _punish(session: Session, unit: UnitFacts, replay_id: int, evidence_cid: str) -> None:
    """Slash the replay's verifier, unless that was done or it is jailed for another one, or has paid for this unit;
    being jailed for less buys nothing off."""
    replay = repository.lock_replay(session, replay_id)
    assert replay is not None  # replays are not deleted
    if replay.id not in repository.replays_to_punish(session):
        return
    verifier = providers.require(session, replay.verifier, lock=True)
    is_jailed = verifier.status == ProviderStatus.JAILED and verifier.reason == WRONG_REPLAY
    if is_jailed or repository.is_slashed_for(session, unit.id, replay.verifier):
        replay.reason = "verifier_jailed"
        return
    slash = operators_slash(unit, replay.verifier, WRONG_REPLAY, evidence_cid, BY_OPERATOR, replay_id)
    bring(session, unit, slash)
    providers.jail(session, replay.verifier, WRONG_REPLAY)


def operators_slash(
    unit: UnitFacts,
    wallet: str,
    offence: str,
    evidence_cid: str,
    route: Route,
    replay_id: int | None = None,
) -> Slash:
    """A penalty that the operator's key is to bring."""
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


def bring(session: Session, unit: UnitFacts, slash: Slash | LatePenalty) -> None:
    """Note a penalty, tell the job's subscribers of it and who decided it, and have it executed unless it was."""
    session.add(slash)
    data: dict[str, object] = {
        "provider": slash.provider,
        "round": unit.round,
        "slot": unit.slot,
        "reason": slash.offence,
        "evidence_cid": slash.evidence_cid,
        "path": slash.path,
        "path_reason": slash.path_reason,
    }
    if slash.tx is not None:
        data |= {"amount_wei": str(slash.amount_wei), "tx": slash.tx}
    emit(session, unit.job_id, "slash", data)
    if slash.tx is None:
        _ask_for_slash(session, slash)


def execute_slashes(database: Database) -> None:
    """See to it that every penalty that the chain does not have is on its way there."""
    with database.transaction() as session:
        for slash in repository.unexecuted_penalties(session):
            _ask_for_slash(session, slash)


def _ask_for_slash(session: Session, slash: Slash | LatePenalty) -> None:
    ask(
        session,
        key=f"slash:{slash.evidence}",
        kind="slash",
        subject=slash.job_id,
        **ProviderStaking.slash(slash.provider, OFFENCE_IDS[slash.offence], slash.evidence),
        amount=providers.at_risk(session, slash.provider),  # the penalty table may change before it is executed
    )


def evidence(session: Session, unit: UnitFacts, sample: Sample, route: Route) -> dict[str, object]:
    """All that an outsider needs to replay the segment and judge again. The same sample always gives the same bytes."""
    window = repository.window(session, unit.window_id or 0)
    assert window is not None  # samples are drawn by a window's seed
    return {
        "kind": "zoo-evidence/5",
        "offence": sample.reason,
        "path": route.path,
        "path_reason": route.reason,
        "job_id": unit.job_id,
        "spec": unit.spec,
        "unit": {
            "round": unit.round,
            "slot": unit.slot,
            "provider": unit.provider,
            "environment_class": unit.environment_class,
            "start_checkpoint_cid": unit.start_checkpoint_cid,
            "start_slot_state_cid": unit.start_slot_state_cid,
            "start_restored_payload_cid": unit.start_restored_payload_cid,
            "start_eager_payload_cid": unit.start_eager_payload_cid,
            "trace_root": unit.trace_root,
            "leaves": unit.leaves,
            "payload_hash": unit.payload_hash,
            "salt": unit.salt,
            "payload_cid": unit.payload_cid,
            "commitment_signature": unit.commitment_signature,
        },
        "window": {"id": window.chain_id_in_contract, "root": window.root, "seed": window.seed},
        "sampling_bps": unit.sampling_bps,
        "segment": sample.segment,
        "state_cid": sample.state_cid,
        "inner": canaries.inner_of(sample),
        "reveal_deadline_at": None if sample.reveal_deadline_at is None else sample.reveal_deadline_at.isoformat(),
        "reveal_until_at": None if sample.reveal_until_at is None else sample.reveal_until_at.isoformat(),
        "refusal": sample.refusal,
        "replays": [replay.as_evidence() for replay in repository.lock_replays(session, sample.id)],
    }


def on_slashed(session: Session, event: ChainEvent) -> None:
    """Handler of the final Slashed event: what the penalty came to."""
    slash = repository.lock_penalty(session, event.args["evidence"])
    if slash is None or slash.tx is not None:
        return
    slash.amount_wei, slash.tx = event.args["amount"], event.tx_hash
    emit(
        session,
        slash.job_id,
        "slash",
        {
            "provider": slash.provider,
            "reason": slash.offence,
            "amount_wei": str(slash.amount_wei),
            "tx": slash.tx,
            "path": slash.path,
            "path_reason": slash.path_reason,
        },
    )


def job_slashes(session: Session, job_id: str) -> list[SlashRecord]:
    """The penalties that a job's units led to, oldest first."""
    found = []
    for slash in repository.slashes_of_job(session, job_id):
        unit = jobs.unit_facts(session, slash.unit_id)
        found.append(
            SlashRecord(
                unit.round,
                unit.slot,
                slash.provider,
                slash.offence,
                slash.evidence,
                slash.evidence_cid,
                slash.path,
                slash.path_reason,
            )
        )
    return found
