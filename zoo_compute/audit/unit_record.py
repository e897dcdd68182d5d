"""Where a unit is on record: in what the lines of its job's settlements name, whose digests are on chain.

Until there is such a line the market tells of a decided unit in the same form. Who signed what and which window has it
is checked all the same; what the unit started from is the market's word alone till then.
"""

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from http.client import NOT_FOUND

from zoo_compute.audit.settlements import read_record
from zoo_compute.base.errors import ApiError, ConfigError, Mismatch, ZooError
from zoo_compute.chain.settlements import ChainReader
from zoo_compute.client.http import Connection
from zoo_compute.content.blockstore import BlockNotFound
from zoo_compute.content.gateway import GatewayClient, GatewayUnavailable
from zoo_protocol.content.cid import ContentError
from zoo_protocol.hashing import canonical_json
from zoo_protocol.messages import Domain, UnitCommitment, recover_strictly, typed_data
from zoo_protocol.payments.job_record import JobRecord, RecordError
from zoo_protocol.payments.receipt import JobSettlement

NAMED_BY = "Rounds and slots count from 0; the job's receipt lists its units."


@dataclass(frozen=True, slots=True)
class Place:
    """Which unit: its job (0x hex), outer round and slot, both from 0."""

    job_id: str
    round: int
    slot: int

    @classmethod
    def parse(cls, text: str) -> "Place":
        """The place in ``JOB:ROUND:SLOT``.

        Raises:
            ConfigError: it has another form.
        """
        if found := re.fullmatch(r"(0x[0-9a-fA-F]{64}):([0-9]{1,9}):([0-9]{1,9})", text):
            return cls(found[1].lower(), int(found[2]), int(found[3]))
        raise ConfigError("unit-malformed", f"{text!r:.100} names no unit", remedy="Give it as JOB:ROUND:SLOT.")


Tell = Callable[[Place], JobRecord | None]
"""What the market tells of a unit that is in no settlement; None: nothing, or nothing yet."""


def market_record_reader(connection: Connection) -> Tell:
    """What the market at the other end of ``connection`` tells."""

    def tell(place: Place) -> JobRecord | None:
        try:
            answer = connection.get(f"/v1/jobs/{place.job_id}/units/{place.round}/{place.slot}")
        except ApiError as error:
            if error.status == NOT_FOUND:
                return None
            raise
        try:
            return JobRecord.from_bytes(canonical_json(answer["record"]))
        except (KeyError, TypeError, RecordError) as error:
            raise Mismatch("bad-record", f"what the market tells is no record: {error!r:.200}") from error

    return tell


def records_of(
    place: Place, settlement: JobSettlement, chain: ChainReader, gateway: GatewayClient, tell: Tell
) -> list[JobRecord]:
    """The records that may have the unit, the one that counts most last.

    Raises:
        ZooError: ``unit-unsettled``.
        Mismatch: a record is none, or of another job, or what the market tells of was signed by somebody else.
        BlockNotFound, ContentError, GatewayUnavailable: a record cannot be had.
    """
    if lines := settlement.lines_with(place.round):
        return [read_record(gateway, line.record, place.job_id) for line in lines]
    told = tell(place)
    if told is None:
        raise ZooError(
            "unit-unsettled",
            f"round {place.round} of job {place.job_id} is in no settlement yet, and the market tells of no decided "
            "unit there",
            remedy="A unit can be checked once it is decided and its window is committed; try again later.",
        )
    if told.job_id != place.job_id:
        raise Mismatch("wrong-record", f"what the market tells is of job {told.job_id}")
    domain = Domain(chain.chain_id, chain.address("JobEscrow"))
    for unit in told.units:
        place_of = told.job_id, unit.round, unit.slot, unit.provider
        commitment = UnitCommitment(*place_of, unit.trace_root or "", unit.payload_hash or "")
        if unit.window is not None and not _signed(domain, commitment, unit.commitment_signature or ""):
            raise Mismatch("foreign-signature", f"{unit.provider} did not sign the commitment that the market shows")
    return [told]


def _signed(domain: Domain, commitment: UnitCommitment, signature: str) -> bool:
    try:
        return recover_strictly(typed_data(domain, commitment), signature) == commitment.provider
    except ValueError:
        return False


def record_of(
    place: Place, settlement: JobSettlement, chain: ChainReader, gateway: GatewayClient, tell: Tell
) -> JobRecord:
    """All that the records say that may matter for a replay of the unit; where two differ, the later one's counts.

    Those of lines before its own only help to make slot states again, so they may be gone.

    Raises alike.
    """
    own, records = records_of(place, settlement, chain, gateway, tell), []
    if settlement.last is None:
        for line in settlement.parts:
            if line.to_round <= place.round:
                with suppress(BlockNotFound, ContentError, GatewayUnavailable):
                    records.append(read_record(gateway, line.record, place.job_id))
    records += own
    return replace(
        records[-1],
        units=list({(u.round, u.slot, u.provider, u.trace_root): u for one in records for u in one.units}.values()),
        slashes=list({slash.evidence: slash for one in records for slash in one.slashes}.values()),
        windows=list({window.id: window for one in records for window in one.windows}.values()),
    )
