"""Decisions about units: pass what every replay confirmed, convict what two verifiers refuted, and who refuted two.

A conviction needs its evidence in storage first; then one transaction jails the provider, rejects all that it
has delivered and was not verified, frees its slots and asks the chain for the slash. What makes it happen once: it is
applied only while the unit is being checked and its provider is not jailed, both under lock.
"""

from dataclasses import dataclass

from sqlalchemy.orm import Session

from market.chain.bindings import ProviderStaking
from market.chain.contracts import ChainEvent
from market.db.session import Database
from market.domain.lifecycle import (
    UNIT_DECIDED,
    ProviderStatus,
    SampleEvent,
    SampleStatus,
    UnitStatus,
    WindowEvent,
    WindowStatus,
)
from market.domain.verification import OFFENCE_IDS, Overruled
from market.events.service import emit
from market.jobs import service as jobs
from market.jobs.units import UnitFacts
from market.providers import service as providers
from market.storage.service import Storage
from market.verification import canaries, repository
from market.verification.calls import ask
from market.verification.comparing import TOLERANCE
from market.verification.models import Canary, Comparison, Sample, Slash
from market.verification.moves import move_sample, move_window
from zoo_protocol.cid import digest_of
from zoo_protocol.hashing import canonical_json, to_hex

PROVIDER_JAILED = "provider_jailed"
WRONG_REPLAY = Overruled.SLASHED.value


@dataclass(frozen=True, slots=True)
class SlashFacts:
    """A penalty asked for on account of one unit, of its provider or of a verifier. ``evidence`` is the SHA2-256 digest
    inside ``evidence_cid``."""

    round: int
    slot: int
    provider: str
    offence: str
    evidence: str
    evidence_cid: str


def decide_units(database: Database, storage: Storage) -> None:
    """Decide every unit of the latched windows that can be decided, each in its own transaction.

    Raises:
        StorageError: evidence could not be stored; the conviction waits for the next call.
    """
    with database.transaction() as session:
        windows = [window.id for window in repository.windows(session, WindowStatus.LATCHED)]
    for window_id in windows:
        with database.transaction() as session:
            units = jobs.window_units(session, window_id)
            samples = repository.samples_of_units(session, [unit.id for unit in units])
            watched = repository.units_with_a_canary(session, [unit.id for unit in units])
        for unit in units:
            if unit.status != UnitStatus.CHECKING:
                continue
            states = {SampleStatus(sample.status) for sample in samples.get(unit.id, [])}
            if SampleStatus.FAILED in states:
                _convict(database, storage, unit)
            elif states <= {SampleStatus.PASSED} and unit.id not in watched:
                tolerated = [sample.segment for sample in samples.get(unit.id, []) if sample.reason == TOLERANCE]
                with database.transaction() as session:
                    jobs.pass_unit(session, unit.id, tolerated)
        _close_if_decided(database, window_id)


def _close_if_decided(database: Database, window_id: int) -> None:
    with database.transaction() as session:
        window = repository.lock_window(session, window_id)
        undecided = any(unit.status not in UNIT_DECIDED for unit in jobs.window_units(session, window_id))
        if window is not None and window.status == WindowStatus.LATCHED and not undecided:
            move_window(session, window, WindowEvent.DECIDE)


def _convict(database: Database, storage: Storage, unit: UnitFacts) -> None:
    with database.transaction() as session:
        failed = _failed_sample(session, unit.id)
        document = _evidence(session, unit, failed)
    evidence_cid = storage.put_block(canonical_json(document)).cid
    with database.transaction() as session:
        provider = providers.require(session, unit.provider, lock=True)
        if jobs.unit_facts(session, unit.id).status != UnitStatus.CHECKING:
            return
        offence = failed.reason or ""
        if provider.status != ProviderStatus.JAILED:
            _slash(session, unit, unit.provider, offence, evidence_cid)
            providers.jail(session, unit.provider, offence)
            jobs.vacate(session, unit.provider, PROVIDER_JAILED)
        _reject(session, unit.id, offence)
        for other in jobs.unverified_units_of(session, unit.provider):
            _reject(session, other, PROVIDER_JAILED)


def _failed_sample(session: Session, unit_id: int) -> Sample:
    samples = repository.lock_samples_of_unit(session, unit_id)
    return next(sample for sample in samples if sample.status == SampleStatus.FAILED)


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
            if isinstance(posed, Canary):
                document = canaries.evidence(session, unit, posed)
            else:
                assert not isinstance(posed, Comparison)  # which blames nobody
                document = _evidence(session, unit, posed)
            document |= {"offence": WRONG_REPLAY, "verifier": replay.verifier}
        if unit.status in UNIT_DECIDED:
            evidence_cid = storage.put_block(canonical_json(document)).cid
            with database.transaction() as session:
                _punish(session, unit, replay_id, evidence_cid)


def _punish(session: Session, unit: UnitFacts, replay_id: int, evidence_cid: str) -> None:
    """Slash the replay's verifier, unless that was done or it is jailed for another one."""
    replay = repository.lock_replay(session, replay_id)
    assert replay is not None  # replays are not deleted
    if replay.id not in repository.replays_to_punish(session):
        return
    if providers.require(session, replay.verifier, lock=True).status == ProviderStatus.JAILED:
        replay.reason = "verifier_jailed"
        return
    _slash(session, unit, replay.verifier, WRONG_REPLAY, evidence_cid, replay_id)
    providers.jail(session, replay.verifier, WRONG_REPLAY)


def _slash(
    session: Session, unit: UnitFacts, wallet: str, offence: str, evidence_cid: str, replay_id: int | None = None
) -> None:
    slash = Slash(
        job_id=unit.job_id,
        unit_id=unit.id,
        replay_id=replay_id,
        provider=wallet,
        offence=offence,
        evidence=to_hex(digest_of(evidence_cid)),
        evidence_cid=evidence_cid,
    )
    session.add(slash)
    _ask_for_slash(session, slash)
    emit(
        session,
        unit.job_id,
        "slash",
        {
            "provider": wallet,
            "round": unit.round,
            "slot": unit.slot,
            "reason": offence,
            "evidence_cid": evidence_cid,
        },
    )


def execute_slashes(database: Database) -> None:
    """See to it that every penalty that the chain does not have is on its way there."""
    with database.transaction() as session:
        for slash in repository.unexecuted_slashes(session):
            _ask_for_slash(session, slash)


def _ask_for_slash(session: Session, slash: Slash) -> None:
    ask(
        session,
        key=f"slash:{slash.evidence}",
        kind="slash",
        subject=slash.job_id,
        **ProviderStaking.slash(slash.provider, OFFENCE_IDS[slash.offence], slash.evidence),
        amount=providers.at_risk(session, slash.provider),  # the penalty table may change before it is executed
    )


def _reject(session: Session, unit_id: int, reason: str) -> None:
    """Reject a unit and drop the samples that are of no more use."""
    jobs.reject_unit(session, unit_id, reason)
    for sample in repository.lock_samples_of_unit(session, unit_id):
        if sample.status in (SampleStatus.DRAWN, SampleStatus.REVEALED):
            move_sample(session, sample, SampleEvent.DROP, reason=reason)


def _evidence(session: Session, unit: UnitFacts, sample: Sample) -> dict[str, object]:
    """All that an outsider needs to replay the segment and judge again. The same sample always gives the same bytes."""
    window = repository.window(session, unit.window_id or 0)
    assert window is not None  # samples are drawn by a window's seed
    return {
        "kind": "zoo-evidence/2",
        "offence": sample.reason,
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
        "reveal_deadline_at": None if sample.reveal_deadline_at is None else sample.reveal_deadline_at.isoformat(),
        "replays": [replay.as_evidence() for replay in repository.lock_replays(session, sample.id)],
    }


def on_slashed(session: Session, event: ChainEvent) -> None:
    """Handler of the final Slashed event: what the penalty came to."""
    slash = repository.lock_slash(session, event.args["evidence"])
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
        },
    )


def job_slashes(session: Session, job_id: str) -> list[SlashFacts]:
    """The penalties that a job's units led to, oldest first."""
    found = []
    for slash in repository.slashes_of_job(session, job_id):
        unit = jobs.unit_facts(session, slash.unit_id)
        found.append(
            SlashFacts(unit.round, unit.slot, slash.provider, slash.offence, slash.evidence, slash.evidence_cid)
        )
    return found
