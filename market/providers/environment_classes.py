"""Which environment classes a network accepts."""

from market.providers.errors import EnvironmentNotAccepted
from market.providers.models import Provider
from market.settings import Settings

NOT_ACCEPTED = "environment_not_accepted"
"""Why a node of whatever status gets no work."""


def reason_of(settings: Settings, provider: Provider) -> str | None:
    """Why a node has its status; above all, that its class does not count."""
    accepted = settings.accepted_classes
    return provider.reason if accepted is None or provider.environment_class in accepted else NOT_ACCEPTED


def require_accepted(settings: Settings, environment_class: str) -> None:
    """Refuse a class that the operator has not named, if it has named any.

    Only verifiers of a class replay its work. A class is what a node says it is, so who made one up and brought its
    verifiers too would judge itself (decision 9).

    Raises:
        EnvironmentNotAccepted: it is none of them.
    """
    accepted = settings.accepted_classes
    if accepted is not None and environment_class not in accepted:
        raise EnvironmentNotAccepted(
            f"environment class {environment_class} is none of the {len(accepted)} that this network accepts",
            field="environment_class",
            extra={"accepted": accepted},
        )
