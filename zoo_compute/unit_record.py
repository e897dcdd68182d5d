"""Where a unit is on record: in what the lines of its job's settlements name, whose digests are on chain."""

import re
from contextlib import suppress
from dataclasses import dataclass, replace

from zoo_compute.blockstore import BlockNotFound
from zoo_compute.errors import ConfigError, ZooError
from zoo_compute.gateway import GatewayClient, GatewayUnavailable
from zoo_compute.settlement_check import read_record
from zoo_protocol.cid import ContentError
from zoo_protocol.receipt import JobSettlement
from zoo_protocol.record import JobRecord

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


def unsettled(place: Place) -> ZooError:
    """That no line on chain names a record of the unit."""
    return ZooError(
        "unit-unsettled",
        f"round {place.round} of job {place.job_id} is in no settlement yet",
        remedy="What a unit is known by is its job's record, which is public once it is settled; try again later.",
    )


def settled_record(place: Place, settlement: JobSettlement, gateway: GatewayClient) -> JobRecord:
    """All that the settled records say that may matter for the unit; where two differ, the later line's counts.

    Those of lines before its own only help to make slot states again, so they may be gone.

    Raises:
        ZooError: ``unit-unsettled``.
        Mismatch: a record is none, or of another job.
        BlockNotFound, ContentError, GatewayUnavailable: a record that should have the unit cannot be had.
    """
    lines = settlement.lines_with(place.round)
    if not lines:
        raise unsettled(place)
    records = []
    if not lines[-1].last:
        for line in settlement.parts:
            if line.to_round <= place.round:
                with suppress(BlockNotFound, ContentError, GatewayUnavailable):
                    records.append(read_record(gateway, line.record, place.job_id))
    records += [read_record(gateway, line.record, place.job_id) for line in lines]
    return replace(
        records[-1],
        units=list({(u.round, u.slot, u.provider, u.trace_root): u for one in records for u in one.units}.values()),
        slashes=list({slash.evidence: slash for one in records for slash in one.slashes}.values()),
        windows=list({window.id: window for one in records for window in one.windows}.values()),
    )
