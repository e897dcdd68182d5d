"""Which environment classes a network accepts."""

from market.providers.errors import EnvironmentNotAccepted
from market.settings import Settings


def require_accepted(settings: Settings, environment_class: str) -> None:
    """Refuse a class that the operator has not named, if it has named any.

    Only verifiers of a class replay its work. A class is what a node says it is, so who made one up and brought its
    verifiers too would judge itself (docs/decisions/0038).

    Raises:
        EnvironmentNotAccepted: it is none of them.
    """
    if settings.environment_classes is None:
        return
    accepted = settings.environment_classes.split(",")
    if environment_class not in accepted:
        raise EnvironmentNotAccepted(
            f"environment class {environment_class} is none of the {len(accepted)} that this network accepts",
            field="environment_class",
            extra={"accepted": accepted},
        )
