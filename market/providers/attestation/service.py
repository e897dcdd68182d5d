"""Attestation of a wallet: challenge, bound TEE quote, and call to the registry.

The market checks the quote. The contract limits the market to software that the network's admins accepted, and to a
limited time. Anyone can check the public evidence again (``zoo-compute verify attestation``). An attestation must cover
all GPUs of a node, because they compute outside the attested processor.
"""

import secrets
import uuid
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path

from sqlalchemy.orm import Session

from market.chain.contracts.bindings import Attestations
from market.chain.contracts.codec import Deployment
from market.chain.service import queue_intent
from market.chain.views import ChainViews
from market.domain.lifecycle import ProviderStatus
from market.platform.db.base import from_unix, utc_now
from market.platform.db.rows import from_row
from market.platform.http.services import Services
from market.platform.storage.client import Storage
from market.providers import repository as providers_repository
from market.providers import service as providers
from market.providers.attestation.schemas import AttestedView, GpuView, QuoteRequest
from market.providers.errors import (
    AttestationAnswered,
    AttestationExpired,
    AttestationNotFound,
    GpusNotAttested,
    InvalidQuote,
    MeasurementNotAccepted,
    ProviderJailed,
)
from market.providers.models import AttestationChallenge
from zoo_protocol.attestation.gpu_attestation import NVIDIA_KEYS, GpuStatement, QuoteRefused
from zoo_protocol.attestation.tee_quotes import Evidence, Verified, key_of
from zoo_protocol.hashing import sha256, to_hex

ANSWER_WITHIN = timedelta(minutes=10)

MIN_VALIDITY = timedelta(hours=1)
"""Minimum remaining validity of an attestation, because the call that records it must be mined."""


def start(session: Session, address: str) -> AttestationChallenge:
    """Create a challenge for a wallet; it replaces an unanswered one.

    Raises:
        NotRegistered, ProviderJailed: the wallet cannot be attested.
    """
    provider = providers.require(session, address, lock=True)
    if provider.status == ProviderStatus.JAILED:
        raise ProviderJailed(f"{address} is jailed")
    providers_repository.forget_open_attestation(session, address)
    challenge = AttestationChallenge(
        id=str(uuid.uuid4()),
        provider=address,
        nonce=to_hex(secrets.token_bytes(32)),
        deadline_at=utc_now() + ANSWER_WITHIN,
    )
    session.add(challenge)
    session.flush()
    return challenge


def finish(services: Services, address: str, challenge_id: str, request: QuoteRequest) -> AttestedView:
    """Check a quote, publish its evidence, and queue its record in the registry.

    Raises:
        AttestationNotFound, AttestationAnswered, AttestationExpired: there is no open challenge.
        InvalidQuote: the quote is invalid, or ends too soon.
        GpusNotAttested: the quote covers fewer GPUs than the provider registered or its tier has.
        MeasurementNotAccepted: the network does not accept the software.
        ChainError, StorageUnavailable: the challenge stays open.
    """
    now = utc_now()
    with services.database.transaction() as session:
        nonce = _open_challenge(session, challenge_id, address, now).nonce
        needed = providers.gpus_to_attest(session, services.network, address)
    deployment = services.part(Deployment)
    registry = deployment.address("Attestations")
    gpus = None if request.gpu_statement is None else from_row(GpuStatement, request.gpu_statement)
    quote, collateral = bytes.fromhex(request.quote), request.collateral.model_dump(exclude_none=True)
    evidence = Evidence(deployment.chain_id, registry, address, nonce, quote, collateral, gpus)
    verified = _verified(services, evidence, needed, now)
    until = min(from_unix(verified.valid_until), now + timedelta(seconds=services.network.attestation_seconds))
    if until < now + MIN_VALIDITY:
        raise InvalidQuote(
            f"the collateral expires too soon, at {until:%Y-%m-%d %H:%M} UTC",
            field="collateral",
            extra={"reason": "ending"},
        )
    content = evidence.to_bytes()
    report, cid = to_hex(sha256(content)), services.part(Storage).put_block(content).cid
    with services.database.transaction() as session:
        challenge = _open_challenge(session, challenge_id, address, now)
        challenge.answered_at = now
        challenge.measurement = verified.measurement
        challenge.report = report
        challenge.report_cid = cid
        challenge.attested_until = until
        challenge.gpus = [gpu.serial for gpu in verified.gpus]
        call = Attestations.attest(address, key_of(address), verified.measurement, int(until.timestamp()), report)
        queue_intent(session, key=f"attest:{challenge.id}", kind="attest", subject=address, **call)
    return from_row(
        AttestedView,
        verified,
        advisories=list(verified.advisories),
        attested_gpus=[from_row(GpuView, gpu) for gpu in verified.gpus],
        attested_until=until,
        report=report,
        report_cid=cid,
    )


def _verified(services: Services, evidence: Evidence, needed: int, now: datetime) -> Verified:
    root_ca, keys = services.settings.attestation_root_ca, services.settings.gpu_attestation_keys
    trusted = keys.split(",") if keys else NVIDIA_KEYS
    try:
        verified = evidence.verify(int(now.timestamp()), _root_ca(root_ca), trusted)
    except QuoteRefused as error:
        raise InvalidQuote(str(error), field=error.part, extra={"reason": error.code}) from error
    if len(verified.gpus) < needed:
        raise GpusNotAttested(
            f"the quote covers {len(verified.gpus)} GPUs; expected {needed}, as registered or as your tier has",
            field="gpu_statement",
        )
    if not services.part(ChainViews).accepts_measurement(verified.measurement):
        raise MeasurementNotAccepted(
            f"measurement {verified.measurement} is not accepted", extra={"measurement": verified.measurement}
        )
    return verified


@cache
def _root_ca(path: str | None) -> bytes | None:
    """Return the DER of the quotes' root of trust; None: Intel's."""
    return None if path is None else Path(path).read_bytes()


def _open_challenge(session: Session, challenge_id: str, address: str, now: datetime) -> AttestationChallenge:
    challenge = providers_repository.lock_attestation(session, challenge_id, address)
    if challenge is None:
        raise AttestationNotFound(f"no challenge {challenge_id}", field="challenge_id")
    if challenge.answered_at is not None:
        raise AttestationAnswered(f"challenge {challenge_id} was answered at {challenge.answered_at:%Y-%m-%d %H:%M}")
    if challenge.deadline_at < now:
        raise AttestationExpired(f"challenge {challenge_id} had to be answered by {challenge.deadline_at:%H:%M:%S} UTC")
    return challenge
