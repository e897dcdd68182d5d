"""Completeness of aggregation records: payloads that a round must list."""

from collections import defaultdict
from collections.abc import Callable, Sequence

from training_gym.exchange.deadlines import MAX_STALENESS
from zoo_protocol.payments.job_record import PAYLOAD_LOST, AggregationRecord, JobRecord, UnitRecord


def units_left_out(
    record: JobRecord, done: Sequence[AggregationRecord], starts: Callable[[int], set[str]], round_delay: int
) -> list[tuple[UnitRecord, int]]:
    """Return the verified units that no aggregation lists, each with a round that had to.

    No record shows when a payload arrived. But a replica gets no unit while an older one of it is not uploaded. So its
    next unit shows that the payload was there in that unit's round, at the latest during its aggregation. The payload
    of a replica's last unit may have come too late, and so may one whose next unit is too late for it.

    Args:
        done: the job's aggregations by round.
        starts: returns the CIDs of the checkpoints whose units a round may list.
    """
    listed = {(one.round, one.slot, one.payload) for each in done for one in each.payloads}
    offered: dict[int, list[int]] = defaultdict(list)
    for unit in record.units:
        offered[unit.slot].append(unit.round)
    found = []
    for unit in record.paid_units():
        if (unit.round, unit.slot, unit.payload_cid) in listed or unit.reason == PAYLOAD_LOST:
            continue
        # With overlapped rounds the next round's unit is offered before the upload.
        earliest, latest = unit.round + round_delay + 1, unit.round + MAX_STALENESS
        following = min((one for one in offered[unit.slot] if earliest <= one <= latest), default=len(done))
        for round_ in range(following, len(done)):
            # A payload that came during the aggregation of the next unit's round is in a later one.
            is_later = any(
                one.round > following or (one.round, one.slot) == (following, unit.slot)
                for one in done[round_].payloads
            )
            if is_later and unit.start_checkpoint_cid in starts(round_):
                found.append((unit, round_))
                break
    return found
