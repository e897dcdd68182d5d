"""Journal of inclusion acknowledgements, verified and kept until they are fulfilled."""

import logging
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from zoo_compute.base.errors import ZooError
from zoo_compute.base.models import Network
from zoo_compute.chain.omissions import OmissionChain
from zoo_compute.node.disk.files import read_json, write_json
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
_ROLE_SECONDS = 600.0  # cache of a signer's role; longer while the chain does not answer
_CLOCKS_SECONDS = 60  # tolerated difference between the market's clock and ours


class NotAcknowledged(Exception):
    """The market gave no valid acknowledgement; the message gives the reason."""

    code = "not_acknowledged"


@dataclass(frozen=True, slots=True)
class StoredAcknowledgement:
    """Signed commitment, and the market's signature over ``include_by`` (Unix seconds)."""

    unit: UnitCommitment
    include_by: int
    signature: str

    @property
    def unit_id(self) -> str:
        return to_hex(leaf_of(self.unit))


class Journal:
    """Acknowledgements as atomically written files ``<directory>/<unit id>.json``."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    def keep(self, stored: StoredAcknowledgement) -> None:
        write_json(self._file(stored), asdict(stored))

    def drop(self, stored: StoredAcknowledgement) -> None:
        self._file(stored).unlink(missing_ok=True)

    def all(self) -> list[StoredAcknowledgement]:
        """Return all acknowledgements, the earliest deadline first."""
        kept = (read_json(path, partial(_parse, path)) for path in self._directory.glob("*.json"))
        found = [stored for stored in kept if stored is not None]
        return sorted(found, key=lambda stored: (stored.include_by, stored.unit_id))

    def _file(self, stored: StoredAcknowledgement) -> Path:
        return self._directory / f"{stored.unit_id}.json"


def _parse(path: Path, document: Any) -> StoredAcknowledgement:
    """Parse the file's content; raises as ``read_json`` expects if the file was changed."""
    stored = StoredAcknowledgement(UnitCommitment(**document["unit"]), document["include_by"], document["signature"])
    if path.stem != stored.unit_id or type(stored.include_by) is not int or not isinstance(stored.signature, str):
        raise ValueError("content differs from the file name or format")
    return stored


class Acknowledgements:
    """Verifier of acknowledgements. Caches signers whose role the chain confirmed."""

    def __init__(self, journal: Journal, network: Network, connect: Callable[[], OmissionChain]) -> None:
        self._journal = journal
        self._domain = omissions_domain(network.chain_id, network.contracts["Omissions"])
        self._connect = connect
        self._known: dict[str, float] = {}

    @cached_property
    def _chain(self) -> OmissionChain:
        return self._connect()

    def take(self, unit: UnitCommitment, answer: Any) -> None:
        """Verify the market's answer to a commitment and store it.

        Raises:
            NotAcknowledged: missing, malformed, too late, or not signed by an acknowledger for this commitment.
        """
        if not isinstance(answer, dict):
            raise NotAcknowledged("the market gave no acknowledgement")
        include_by, signature = answer.get("include_by"), answer.get("signature")
        if type(include_by) is not int or not isinstance(signature, str):
            raise NotAcknowledged("the acknowledgement lacks include_by or signature")
        now = int(time.time())
        if not now < include_by <= now + MAX_PROMISE_SECONDS + _CLOCKS_SECONDS:
            raise NotAcknowledged(f"include_by is {include_by}; expected a time within a day of {now}")
        stored = StoredAcknowledgement(unit, include_by, signature)
        message = Acknowledgement(stored.unit_id, include_by)
        try:
            signer = recover_strictly(typed_data(self._domain, message), signature)
        except ValueError as error:
            raise NotAcknowledged(str(error)) from error
        if not self._counts(signer):
            raise NotAcknowledged(
                f"the signature over this commitment recovers to {signer}, which is not an acknowledger on chain"
            )
        self._journal.keep(stored)

    def _counts(self, signer: str) -> bool:
        if time.monotonic() < self._known.get(signer, 0.0):
            return True
        try:
            if not self._chain.is_acknowledger(signer):
                self._known.pop(signer, None)
                return False
            bond, owed = self._chain.bond(), self._chain.terms().compensation
            if bond < owed:
                log.warning("operator_bond_low bond_wei=%s compensation_wei=%s", bond, owed)
        except ZooError as error:
            if signer in self._known:  # rely on the chain's last answer: without it the unit is lost
                log.warning("acknowledger_unconfirmed signer=%s error=%s", signer, error)
                return True
            raise NotAcknowledged(f"the role of {signer} cannot be read: {error}") from error
        self._known[signer] = time.monotonic() + _ROLE_SECONDS
        return True
