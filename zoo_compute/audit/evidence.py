"""Error translation for evidence from storage and the chain."""

from collections.abc import Iterator
from contextlib import contextmanager

from zoo_compute.base.errors import Mismatch
from zoo_compute.chain.settlements import ChainDisagrees
from zoo_compute.chain.wallet import chain_errors
from zoo_compute.client.client import storage_errors


@contextmanager
def evidence_errors() -> Iterator[None]:
    """Translate errors of storage and the chain to those of this package."""
    try:
        with storage_errors(), chain_errors():
            yield
    except ChainDisagrees as error:
        raise Mismatch(error.code.replace("_", "-"), str(error)) from error
