"""Record of a unit, from settlement lines on chain or from the market; its challenge.

The market's answer has the same form. Signatures and windows are verified in both cases, but before settlement only the
market names the unit's inputs.
"""

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from http.client import NOT_FOUND
from typing import TYPE_CHECKING

from zoo_compute.audit.settlements import merged, read_record, signer_of
from zoo_compute.base.errors import ApiError, ConfigError, Mismatch, ZooError
from zoo_compute.chain.disputes import Challenge
from zoo_compute.chain.settlements import ChainReader
from zoo_compute.client.http import Connection
from zoo_compute.content.gateway import UNAVAILABLE, GatewayClient
from zoo_protocol import merkle
from zoo_protocol.hashing import canonical_json, from_hex, to_hex
from zoo_protocol.messages import struct_hash
from zoo_protocol.payments.job_record import JobRecord, RecordError, leaf_of, order_of
from zoo_protocol.payments.receipt import JobSettlement

if TYPE_CHECKING:
    from zoo_compute.client.client import Client

NAMED_BY = "Rounds and slots count from 0; the job's receipt lists its units."


@dataclass(frozen=True, slots=True)
class Place:
    """Place of a unit: its job (0x hex), outer round and replica, both from 0.

    From :meth:`parse` until :meth:`resolve`, the job may be the start of an id, or a name.
    """

    job_id: str
    round: int
    slot: int

    @classmethod
    def parse(cls, text: str) -> "Place":
        """Parse ``JOB:ROUND:SLOT``. Raises ConfigError: it has another form."""
        if found := re.fullmatch(r"(0x[0-9a-fA-F]{1,64}|[a-z0-9][a-z0-9-]{0,47}):([0-9]{1,9}):([0-9]{1,9})", text):
            return cls(found[1].lower(), int(found[2]), int(found[3]))
        raise ConfigError("unit-malformed", f"{text!r:.100} is not a unit", remedy="Give it as JOB:ROUND:SLOT.")

    @classmethod
    def parse_round(cls, text: str) -> "Place":
        """Parse ``JOB:ROUND`` into its first unit's place. Raises ConfigError: it has another form."""
        try:
            return cls.parse(f"{text}:0")
        except ConfigError:
            remedy = "Give it as JOB:ROUND; rounds count from 0."
            raise ConfigError("round-malformed", f"{text!r:.100} is not a round", remedy=remedy) from None

    def resolve(self, client: "Client") -> "Place":
        """Return the place with its job's id. Raises ConfigError: no job or several jobs match."""
        return replace(self, job_id=client.find_job(self.job_id).id)


MarketReader = Callable[[Place], JobRecord | None]
"""Returns the market's record of a unit without settlement; None if the market has none."""


def market_record_reader(connection: Connection) -> MarketReader:
    """Return a reader of the market's unit records."""

    def read_market(place: Place) -> JobRecord | None:
        try:
            answer = connection.get(f"/v1/jobs/{place.job_id}/units/{place.round}/{place.slot}")
        except ApiError as error:
            if error.status == NOT_FOUND:
                return None
            raise
        try:
            return JobRecord.from_bytes(canonical_json(answer["record"]))
        except (KeyError, TypeError, RecordError) as error:
            raise Mismatch("bad-record", f"the market's answer is not a record: {error!r:.200}") from error

    return read_market


def records_of(
    place: Place, settlement: JobSettlement, chain: ChainReader, gateway: GatewayClient, read_market: MarketReader
) -> list[JobRecord]:
    """Return the records that can contain the unit, the authoritative one last.

    Raises:
        ZooError: ``unit-unsettled``.
        Mismatch: a record is malformed or of another job, or the market's one has a foreign signature.
        BlockNotFound, ContentError, GatewayUnavailable: a record is not available.
    """
    if lines := settlement.lines_with(place.round):
        return [read_record(gateway, line.record, place.job_id) for line in lines]
    record = read_market(place)
    if record is None:
        raise ZooError(
            "unit-unsettled",
            f"round {place.round} of job {place.job_id} has no settlement, and the market reports no decided unit",
            remedy="Try again once the unit is decided and its window is committed.",
        )
    if record.job_id != place.job_id:
        raise Mismatch("wrong-record", f"the market's record names job {record.job_id}; expected {place.job_id}")
    for unit in record.units:
        commitment = unit.commitment(place.job_id)
        if unit.window is None:
            continue
        if commitment is None or signer_of(chain, commitment, unit.commitment_signature or "") != unit.provider:
            raise Mismatch("foreign-signature", f"{unit.provider} did not sign the commitment in the market's record")
    return [record]


def record_of(
    place: Place, settlement: JobSettlement, chain: ChainReader, gateway: GatewayClient, read_market: MarketReader
) -> JobRecord:
    """Merge all records that matter for a replay of the unit; later records take precedence.

    Records of earlier rounds only serve to restore replica states, so they may be missing. Raises as
    :func:`records_of`.
    """
    own, records = records_of(place, settlement, chain, gateway, read_market), []
    if settlement.last is None:
        for line in settlement.parts:
            if line.to_round <= place.round:
                with suppress(*UNAVAILABLE):
                    records.append(read_record(gateway, line.record, place.job_id))
    records += own
    return merged(records)


def find_challenge(
    place: Place, provider: str | None, chain: ChainReader, gateway: GatewayClient, read_market: MarketReader
) -> Challenge:
    """Build the challenge of a settled or reported unit while it can be disputed.

    Args:
        provider: provider of the attempt; needed only if several attempted the unit.
        read_market: called for a unit without a settlement.

    Raises:
        ZooError: ``unit-unsettled``, ``unit-unknown``, ``provider-ambiguous`` or ``dispute-period-over``.
        Mismatch: a record differs from the chain.
        BlockNotFound, ContentError, GatewayUnavailable: a record is not available.
    """
    records = records_of(place, chain.settled(place.job_id), chain, gateway, read_market)
    found = [challenge for record in records for challenge in challenges_in(record, place)]
    challenge = _only({challenge.unit_id: challenge for challenge in found}, place, provider)
    if (end := chain.disputable_until(challenge.window_root)) < chain.now():
        raise ZooError(
            "dispute-period-over",
            f"the unit could be disputed until {datetime.fromtimestamp(end, UTC).isoformat()}",
            remedy="The period starts when a unit's window is committed; verify units earlier.",
        )
    return challenge


def challenges_in(record: JobRecord, place: Place) -> list[Challenge]:
    """Return a challenge for each attempt at the unit in the record's windows.

    Raises:
        Mismatch: the record contradicts itself.
    """
    order = order_of(record.order)
    if not struct_hash(order) == record.job_id == place.job_id:
        raise Mismatch("wrong-record", f"the record's order differs from that of job {place.job_id}")
    windows, found = {window.id: window for window in record.windows}, []
    for unit in record.units:
        window = windows.get(-1 if unit.window is None else unit.window)
        commitment, index = unit.commitment(record.job_id), unit.window_index
        if (unit.round, unit.slot) != (place.round, place.slot) or window is None:
            continue
        if commitment is None or index is None:
            continue
        leaves = [from_hex(leaf) for leaf in window.leaves]
        if leaves[index : index + 1] != [leaf_of(commitment)] or to_hex(merkle.root(leaves)) != window.root:
            raise Mismatch("not-in-window", f"the commitment of {unit.provider} is not in window {window.id}")
        proof = [to_hex(node) for node in merkle.proof(leaves, index)]
        found.append(Challenge(order, commitment, unit.commitment_signature or "", window.root, proof))
    return found


def _only(found: dict[str, Challenge], place: Place, provider: str | None) -> Challenge:
    named = [
        challenge
        for challenge in found.values()
        if provider is None or challenge.unit.provider.lower() == provider.lower()
    ]
    if len(named) == 1:
        return named[0]
    where = f"round {place.round}, slot {place.slot} of job {place.job_id}"
    if not named:
        whose = "" if provider is None else f" by {provider}"
        raise ZooError("unit-unknown", f"{where}: no commitment{whose} is on chain", remedy=NAMED_BY)
    providers = ", ".join(challenge.unit.provider for challenge in named)
    raise ZooError("provider-ambiguous", f"{where} was done by {providers}", remedy="Name one with --provider.")
