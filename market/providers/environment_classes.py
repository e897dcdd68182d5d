"""Accepted environment classes of a network."""

from market.providers.errors import EnvironmentNotAccepted
from market.providers.models import Provider
from market.settings import Settings

NOT_ACCEPTED = "environment_not_accepted"
"""Reason why a node of any status gets no work."""


def reason_of(settings: Settings, provider: Provider) -> str | None:
    """Return the reason of a node's status; an unaccepted environment class comes first."""
    accepted = settings.accepted_classes
    return provider.reason if accepted is None or provider.environment_class in accepted else NOT_ACCEPTED


def require_accepted(settings: Settings, environment_class: str) -> None:
    """Refuse a class that the operator's list of classes lacks, if there is a list.

    Only verifiers of a class replay its units, and nodes declare their class. An owner of providers and verifiers in
    an invented class would verify its own work (decision 9).

    Raises:
        EnvironmentNotAccepted: the list does not contain the class.
    """
    accepted = settings.accepted_classes
    if accepted is not None and environment_class not in accepted:
        raise EnvironmentNotAccepted(
            f"environment_class is {environment_class}; expected one of the {len(accepted)} accepted classes",
            field="environment_class",
            extra={"accepted": accepted},
        )
