"""What disputes on chain mean for settlement: a unit that lost one is not paid, one that is contested waits.

The contract itself withholds and strikes units of a batch that stands. This is for the units that are to be settled:
those of a vetoed batch, and those that were disputed before they were settled.
"""

from collections.abc import Sequence
from enum import IntEnum

from sqlalchemy.orm import Session

from market.chain.contracts import ChainEvent
from market.jobs import service as jobs
from market.jobs.service import UnitFacts
from market.settlement import repository
from zoo_protocol.hashing import to_hex
from zoo_protocol.record import unit_leaf

LOST = "dispute_lost"


class Outcome(IntEnum):
    """Those of ``IDisputes.Status`` that decide over a unit's pay; a moot one was decided by another dispute."""

    PROVIDER_LOST = 5
    CHALLENGER_LOST = 6
    UNDECIDED = 7


def undisputed(session: Session, units: Sequence[UnitFacts]) -> tuple[list[UnitFacts], bool]:
    """Those units that may be paid, and whether others wait for a dispute. Units that lost one are rejected here."""
    keys = {_key(unit): unit for unit in units}
    lost = repository.contested(session, keys.keys())
    for key in (key for key, is_lost in lost.items() if is_lost):
        jobs.strike_unit(session, keys[key].id, LOST)
    return [unit for key, unit in keys.items() if key not in lost], not all(lost.values())


def on_unit_withheld(session: Session, event: ChainEvent) -> None:
    """A dispute keeps a unit's pay back."""
    repository.contest(session, event.args["unitId"], lost=False)


def on_unit_restored(session: Session, event: ChainEvent) -> None:
    """The unit's pay is no longer withheld; where its batch was vetoed, that is so whoever won."""
    repository.clear(session, event.args["unitId"])


def on_dispute_ended(session: Session, event: ChainEvent) -> None:
    """A dispute without a verdict leaves the unit unpaid too, as the contract says."""
    if event.args["outcome"] in (Outcome.PROVIDER_LOST, Outcome.UNDECIDED):
        repository.contest(session, event.args["unitId"], lost=True)
    elif event.args["outcome"] == Outcome.CHALLENGER_LOST:
        repository.clear(session, event.args["unitId"])


def _key(unit: UnitFacts) -> str:
    return to_hex(unit_leaf(unit.job_id, unit.round, unit.slot, unit.provider, unit.trace_root, unit.payload_hash))
