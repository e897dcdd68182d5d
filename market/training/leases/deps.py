"""Dependencies of routes that concern a lease."""

from typing import Annotated

from fastapi import Depends, Path

from market.platform.http.deps import ServicesDep
from market.training.leases.api_liveness import ApiLivenessReporter


async def _report_liveness(services: ServicesDep) -> None:
    """Record API liveness first, so that an outage extends leases before they are checked."""
    if services.part(ApiLivenessReporter).is_due:
        await services.part(ApiLivenessReporter).report_soon()


REPORTS_LIVENESS = Depends(_report_liveness)
"""Dependency of routes that check leases."""

LeaseId = Annotated[str, Path(max_length=36, description="The lease's id, as POST /v1/leases/next gave it.")]
