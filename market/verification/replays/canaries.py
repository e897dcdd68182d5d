"""Canary segments: replay tasks with an altered start state, to detect copying.

A canary is a sampled segment with a start state that the market has altered slightly. No claim exists for its end, so
only a full replay gives the end leaf of other honest verifiers. Canaries do not decide units, and the provider does not
see them. The unit waits for its canaries; otherwise its decision would reveal them to verifiers.
"""

import secrets
from collections.abc import Sequence
from typing import Any

import structlog
from sqlalchemy.orm import Session

from market.domain.lifecycle import UnitStatus
from market.domain.network import BPS
from market.domain.verification import canaries as rules
from market.domain.verification.dispute_routes import Route
from market.domain.verification.lifecycle import CanaryEvent, CanaryStatus, SampleStatus
from market.platform.db.session import Database
from market.platform.storage.client import Storage
from market.platform.storage.errors import StorageError
from market.settings import Settings
from market.training.deliveries import replay_inputs
from market.training.units import service as units
from market.training.units.facts import UnitSummary
from market.verification.replays.verifier_choice import (
    ReplayRequest,
    eligible_verifiers,
    has_open_request,
    overrule_replay,
    pay_replay,
    request_replay,
)
from market.verification.samples import repository as samples_repository
from market.verification.samples.models import Canary, Sample
from market.verification.samples.transitions import transition_canary
from training_gym.spec.errors import GymError
from zoo_protocol.content.unixfs import cid_of_file
from zoo_protocol.hashing import to_hex

UNIT_START = (
    "round",
    "slot",
    "environment_class",
    "start_checkpoint_cid",
    "start_slot_state_cid",
    "start_restored_payload_cid",
    "start_eager_payload_cid",
)
"""Fields of a unit that evidence of its replays contains."""

_log = structlog.get_logger(__name__)


def schedule_canary(settings: Settings, unit: UnitSummary, drawn: Sequence[int], sample: Sample) -> None:
    """Decide by a secret random draw whether a sampled segment is tested for copying.

    A first segment gets a duplicate replay, any other a canary. Every replay of a first segment returns the digest of
    an inner state, with or without a duplicate.
    """
    is_due = rules.is_due(secrets.randbelow(BPS), settings.canary_bps)
    if sample.segment > 0:
        sample.canary_due = is_due
    elif settings.canary_bps:
        steps = int(unit.spec["training_config"]["segment_steps"])
        is_end_revealed = unit.segments == 1 or 1 in drawn
        sample.inner_step = rules.inner_step(secrets.randbits(64), steps, is_end_revealed=is_end_revealed)
        if sample.inner_step is not None:
            sample.inner_nonce, sample.second_opinion = to_hex(secrets.token_bytes(32)), is_due


def inner_state_request(sample: Sample) -> dict[str, Any] | None:
    """Return the inner state that a first segment's replay digests; None for no request."""
    return None if sample.inner_nonce is None else {"step": sample.inner_step, "nonce": sample.inner_nonce}


def create_canaries(database: Database, storage: Storage, settings: Settings) -> None:
    """Create the due canaries of samples with a start state, before verifiers replay them.

    One worker creates one at a time. A canary that is found prepared was interrupted: it is dropped, and its state
    released like others (:mod:`market.verification.decisions.state_release`).
    """
    with database.transaction() as session:
        for canary in samples_repository.lock_canaries(session, CanaryStatus.PREPARED):
            transition_canary(session, canary, CanaryEvent.DROP)
        due = samples_repository.samples_due_for_a_canary(session)
    for sample_id in due:
        with database.transaction() as session:
            sample = samples_repository.lock(session, Sample, sample_id)
            unit = units.unit_facts(session, sample.unit_id)
            sample.canary_due = False
            segment, state_cid = sample.segment, sample.state_cid
            suitable = (
                sample.status == SampleStatus.REVEALED
                and unit.status == UnitStatus.CHECKING
                and len(eligible_verifiers(session, settings, unit)) >= rules.MIN_VERIFIERS
            )
        if suitable and state_cid is not None:
            _create(database, storage, unit, segment, state_cid)


def _create(database: Database, storage: Storage, unit: UnitSummary, segment: int, state_cid: str) -> None:
    try:
        altered = replay_inputs.altered_state(database, storage, unit.id, segment, state_cid)
    except (StorageError, GymError) as error:  # the segment gets no canary: units must not wait for one
        _log.warning("canary_not_created", unit=unit.id, segment=segment, error=str(error))
        return
    if altered is None:
        return
    state, start_leaf = altered
    with database.transaction() as session:
        canary = Canary(unit_id=unit.id, segment=segment, status=CanaryStatus.PREPARED, start_leaf=start_leaf)
        canary.state_cid = str(cid_of_file(state))
        session.add(canary)
        session.flush()
        canary_id = canary.id
    event = CanaryEvent.PLANT
    try:
        storage.put(state, max_bytes=len(state))
    except StorageError as error:
        _log.warning("canary_not_created", unit=unit.id, segment=segment, error=str(error))
        event = CanaryEvent.DROP
    with database.transaction() as session:
        transition_canary(session, samples_repository.lock(session, Canary, canary_id), event)


def assign(session: Session, settings: Settings, canary_id: int) -> None:
    """Request one more replay unless one is open; evaluate without it if none is possible."""
    canary = samples_repository.lock(session, Canary, canary_id)
    if canary.status != CanaryStatus.PLANTED:
        return
    replays = samples_repository.lock_replays(session, canary)
    if has_open_request(replays):
        return
    unit = units.unit_facts(session, canary.unit_id)
    sample = samples_repository.lock_sample_of(session, canary.unit_id, canary.segment)
    request = ReplayRequest(
        unit=unit,
        segment=canary.segment,
        state_cid=canary.state_cid,
        start_leaf=canary.start_leaf,
        replays=replays,
        of_the_other=[] if sample is None else samples_repository.lock_replays(session, sample),
        canary_id=canary.id,
    )
    is_open = unit.status == UnitStatus.CHECKING  # after the decision a replay task is visibly a canary
    if not is_open or not request_replay(session, settings, request):
        evaluate_canary(session, canary, unit, no_verifier_left=True)


def evaluate_canary(session: Session, canary: Canary, unit: UnitSummary, *, no_verifier_left: bool = False) -> None:
    """Pay right results and overrule wrong ones; without a right result, only copies.

    A copy is the provider's claim for the unaltered segment.
    """
    if canary.status != CanaryStatus.PLANTED:
        return
    replays = samples_repository.lock_replays(session, canary)
    claimed = unit.leaves[canary.segment + 1]
    results = [known.end_leaf for known in replays if known.end_leaf is not None]
    right = rules.answer(results, claimed, no_verifier_left=no_verifier_left)
    if right is None and not no_verifier_left:
        return
    transition_canary(session, canary, CanaryEvent.DROP if right is None else CanaryEvent.ANSWER)
    for known in replays:
        copied = known.end_leaf == claimed
        if known.end_leaf is None or (right is None and not copied):
            continue
        if known.end_leaf == right:
            pay_replay(session, known, unit)
        else:
            _log.warning("canary_failed", verifier=known.verifier, canary=canary.id, copied=copied)
            overrule_replay(session, known, copied=copied)


def evidence(session: Session, unit: UnitSummary, canary: Canary, route: Route) -> dict[str, object]:
    return {
        "kind": "zoo-canary/3",
        "path": route.path,
        "path_reason": route.reason,
        "job_id": unit.job_id,
        "spec": unit.spec,
        "unit": {name: getattr(unit, name) for name in UNIT_START},
        "segment": canary.segment,
        "state_cid": canary.state_cid,
        "start_leaf": canary.start_leaf,
        "claimed_leaf": unit.leaves[canary.segment + 1],  # end of the unaltered segment, from the unit's trace
        "replays": [replay.as_evidence() for replay in samples_repository.lock_replays(session, canary)],
    }
