"""The market's acknowledgements as a node keeps them: checked when they are given, durable until they are kept."""

import logging
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from zoo_compute.base.errors import ZooError
from zoo_compute.base.models import Network
from zoo_compute.chain.omissions import OmissionChain
from zoo_compute.node.disk.corruption import read_json
from zoo_compute.node.disk.durable_files import write_json
from zoo_protocol.hashing import to_hex
from zoo_protocol.messages import (
    MAX_PROMISE_SECONDS,
    Acknowledgement,
    UnitCommitment,
    omissions_domain,
    recover_strictly,
    typed_data,
)
from zoo_protocol.payments.job_record import leaf_of

log = logging.getLogger(__name__)


_ROLE_SECONDS = 600.0  # for so long a signer that held its role is taken to hold it; longer while the chain is away


_CLOCKS_SECONDS = 60  # how far the market's clock may be from ours


class NotAcknowledged(Exception):
    """The market gave no acknowledgement that would count; the message says why."""

    code = "not_acknowledged"


@dataclass(frozen=True, slots=True)
class Promise:
    """A commitment of ours, and the market's signature that it is in a window by ``include_by`` (Unix seconds)."""

    unit: UnitCommitment
    include_by: int
    signature: str

    @property
    def unit_id(self) -> str:
        """The commitment's leaf, 0x hex."""
        return to_hex(leaf_of(self.unit))


class Journal:
    """Promises as files, ``<directory>/<unit id>.json``. Each is there in full or not at all; several may read them."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    def keep(self, promise: Promise) -> None:
        """Write a promise down."""
        write_json(self._file(promise), asdict(promise))

    def drop(self, promise: Promise) -> None:
        """Forget a promise."""
        self._file(promise).unlink(missing_ok=True)

    def all(self) -> list[Promise]:
        """Every promise, the earliest due first."""
        kept = (read_json(path, partial(_promise, path)) for path in self._directory.glob("*.json"))
        found = [promise for promise in kept if promise is not None]
        return sorted(found, key=lambda promise: (promise.include_by, promise.unit_id))

    def _file(self, promise: Promise) -> Path:
        return self._directory / f"{promise.unit_id}.json"


def _promise(path: Path, document: Any) -> Promise:
    """The promise in a file. Raises as ``read_json`` wants if the file was changed."""
    promise = Promise(UnitCommitment(**document["unit"]), document["include_by"], document["signature"])
    if path.stem != promise.unit_id or type(promise.include_by) is not int or not isinstance(promise.signature, str):
        raise ValueError("it is not what was written")
    return promise


class Acknowledgements:
    """Takes acknowledgements in. The chain says whose count; it is asked now and then.

    Args:
        connect: gives the chain; called when it is first needed.
    """

    def __init__(self, journal: Journal, network: Network, connect: Callable[[], OmissionChain]) -> None:
        self._journal = journal
        self._domain = omissions_domain(network.chain_id, network.contracts["Omissions"])
        self._connect = connect
        self._chain: OmissionChain | None = None
        self._known: dict[str, float] = {}

    def take(self, unit: UnitCommitment, answer: Any) -> None:
        """Check what the market answered to a commitment, and keep it.

        Raises:
            NotAcknowledged: it is missing, malformed, too late, or not signed by an acknowledger for this commitment.
        """
        if not isinstance(answer, dict):
            raise NotAcknowledged("the market gave no acknowledgement")
        include_by, signature = answer.get("include_by"), answer.get("signature")
        if type(include_by) is not int or not isinstance(signature, str):
            raise NotAcknowledged("the acknowledgement lacks include_by or signature")
        now = int(time.time())
        if not now < include_by <= now + MAX_PROMISE_SECONDS + _CLOCKS_SECONDS:
            raise NotAcknowledged(f"the promised time {include_by} is over, or more than a day away ({now} now)")
        promise = Promise(unit, include_by, signature)
        message = Acknowledgement(promise.unit_id, include_by)
        try:
            signer = recover_strictly(typed_data(self._domain, message), signature)
        except ValueError as error:
            raise NotAcknowledged(str(error)) from error
        if not self._counts(signer):
            raise NotAcknowledged(
                f"the signature over this commitment recovers to {signer}, which is no acknowledger on chain"
            )
        self._journal.keep(promise)

    def _counts(self, signer: str) -> bool:
        if time.monotonic() < self._known.get(signer, 0.0):
            return True
        try:
            self._chain = self._chain or self._connect()
            if not self._chain.is_acknowledger(signer):
                self._known.pop(signer, None)
                return False
            bond, owed = self._chain.bond(), self._chain.terms().compensation
            if bond < owed:
                log.warning("the operator's bond is %s wei; a broken promise should bring %s", bond, owed)
        except ZooError as error:
            if signer in self._known:  # as it was when the chain last answered: a unit is lost without it
                log.warning("whether %s may still acknowledge cannot be asked: %s", signer, error)
                return True
            raise NotAcknowledged(f"whether {signer} may acknowledge cannot be asked: {error}") from error
        self._known[signer] = time.monotonic() + _ROLE_SECONDS
        return True
