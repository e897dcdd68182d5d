"""Zoo Compute for users and providers: the client, the command line, the provider node, the embedded stack."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zoo_compute.client.client import Client

__all__ = ["Client"]


def __getattr__(name: str) -> Any:
    """``Client`` on first use: the nodes and the embedded stack import this package and need none of it."""
    if name == "Client":
        from zoo_compute.client.client import Client

        return Client
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
