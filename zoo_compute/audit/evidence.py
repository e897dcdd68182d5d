"""Evidence from storage and the chain, with the errors of this package."""

from collections.abc import Iterator
from contextlib import contextmanager

from zoo_compute.base.errors import Mismatch
from zoo_compute.base.models import Network
from zoo_compute.chain.settlements import ChainDisagrees, ChainReader
from zoo_compute.chain.wallet import chain_errors
from zoo_compute.client.client import storage_errors
from zoo_compute.content.gateway import GatewayClient


@contextmanager
def evidence_of(network: Network) -> Iterator[tuple[ChainReader, GatewayClient]]:
    """Yield readers of the network's chain and storage. Raises as :func:`evidence_errors`."""
    with evidence_errors(), GatewayClient(network.gateways) as gateway:
        yield ChainReader(network.rpc_url, network.contracts, network.start_block), gateway


@contextmanager
def evidence_errors() -> Iterator[None]:
    """Translate errors of storage and the chain to those of this package."""
    try:
        with storage_errors(), chain_errors():
            yield
    except ChainDisagrees as error:
        raise Mismatch(error.code.replace("_", "-"), str(error)) from error
