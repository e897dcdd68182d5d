"""Routes of attestations, which are optional and lower the sampling rate, never to zero."""

from typing import Annotated

from fastapi import APIRouter, Path

from market.accounts.deps import CurrentAccount
from market.accounts.idempotency import IDEMPOTENT_ROUTE, IdempotentRoute
from market.chain.contracts.codec import Deployment
from market.platform.db.rows import from_row
from market.platform.http.deps import ServicesDep, Uow
from market.platform.http.errors import ChainDown, StorageDown
from market.platform.http.refusals import refusals
from market.providers.attestation import service
from market.providers.attestation.schemas import AttestedView, ChallengeView, QuoteRequest
from market.providers.errors import (
    AttestationAnswered,
    AttestationExpired,
    AttestationNotFound,
    GpusNotAttested,
    InvalidQuote,
    MeasurementNotAccepted,
    NotRegistered,
    ProviderJailed,
)
from zoo_protocol.attestation.tee_quotes import gpu_nonce, report_data
from zoo_protocol.hashing import to_hex

router = APIRouter(prefix="/v1", tags=["providers"], route_class=IdempotentRoute)
ChallengeId = Annotated[str, Path(description="The challenge's id, from POST /v1/attestations.")]


@router.post(
    "/attestations",
    status_code=201,
    responses=refusals(NotRegistered, ProviderJailed),
    dependencies=[IDEMPOTENT_ROUTE],
)
def start_attestation(account: CurrentAccount, services: ServicesDep, session: Uow) -> ChallengeView:
    """Create a challenge with the bytes to be quoted. It replaces an open one."""
    challenge = service.start(session, account.address)
    deployment = services.part(Deployment)
    bound = deployment.chain_id, deployment.address("Attestations"), account.address, challenge.nonce
    data, nonce = to_hex(report_data(*bound)), to_hex(gpu_nonce(*bound))
    return from_row(ChallengeView, challenge, report_data=data, gpu_nonce=nonce)


@router.post(
    "/attestations/{challenge_id}/quote",
    status_code=202,
    responses=refusals(
        AttestationNotFound,
        AttestationAnswered,
        AttestationExpired,
        InvalidQuote,
        GpusNotAttested,
        MeasurementNotAccepted,
        ChainDown,
        StorageDown,
    ),
)
def answer_attestation(
    challenge_id: ChallengeId, body: QuoteRequest, account: CurrentAccount, services: ServicesDep
) -> AttestedView:
    """Answer a challenge with a quote, collateral and NVIDIA's statement; all become public."""
    return service.finish(services, account.address, challenge_id, body)
