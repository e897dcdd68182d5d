"""Dependencies of routes that concern a lease."""

from typing import Annotated

from fastapi import Depends, Path

from market.platform.http.deps import ServicesDep
from market.training.leases.api_liveness import ApiLivenessReporter


async def _present(services: ServicesDep) -> None:
    """No lease is judged before it is known for how long nobody could keep it."""
    if services.part(ApiLivenessReporter).is_due:
        await services.part(ApiLivenessReporter).report_soon()


PRESENT = Depends(_present)
"""For routes that judge leases."""


LeaseId = Annotated[str, Path(max_length=36, description="The lease's id, as POST /v1/leases/next gave it.")]
