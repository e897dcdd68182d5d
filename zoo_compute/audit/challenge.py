"""Challenge of a unit from the job's public record, without the market."""

from datetime import UTC, datetime

from zoo_compute.audit.unit_record import NAMED_BY, MarketReader, Place, records_of
from zoo_compute.base.errors import Mismatch, ZooError
from zoo_compute.chain.disputes import Challenge
from zoo_compute.chain.settlements import ChainReader
from zoo_compute.content.gateway import GatewayClient
from zoo_protocol import merkle
from zoo_protocol.hashing import from_hex, to_hex
from zoo_protocol.messages import struct_hash
from zoo_protocol.payments.job_record import JobRecord, leaf_of, order_of


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
