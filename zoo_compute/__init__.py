"""Zoo Compute for users and providers: client, command line, node, development stack."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zoo_compute.client.client import Client

__all__ = ["Client"]


def __getattr__(name: str) -> Any:
    """Import ``Client`` on first use: nodes and the development stack do not need it."""
    if name == "Client":
        from zoo_compute.client.client import Client

        return Client
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
