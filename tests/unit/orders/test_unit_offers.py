"""For which round a slot gets its next unit, and what a round does not wait for."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from market.domain.lifecycle import UnitStatus
from market.training.matching.spares import spare_count
from market.training.rounds.service import round_to_offer
from market.training.rounds.state import RoundState
from training_gym.exchange.deadlines import last_offer, latest_early_start, round_start

START = datetime(2026, 1, 1, tzinfo=UTC)
EARLY, LATE = START + timedelta(seconds=5), START + timedelta(seconds=15)
STATE = RoundState(
    nodes=6,
    open=2,
    delivered=3,
    started_at=START,
    deadline=timedelta(seconds=110),
    patience=timedelta(seconds=1000),
    last_offer=timedelta(seconds=10),
)
FEW = replace(STATE, open=0)
LEASED, COMMITTED, DELIVERED = UnitStatus.LEASED, UnitStatus.COMMITTED, UnitStatus.UPLOADED


def test_unit_is_offered_while_fastest_node_is_timely() -> None:
    assert last_offer([100.0, 104.0, 130.0], 110.0) == 10.0
    with pytest.raises(ValueError):
        last_offer([], 110.0)
    assert STATE.can_finish_in_time(EARLY)
    assert not STATE.can_finish_in_time(LATE)
    assert FEW.can_finish_in_time(LATE)  # three of six do not make a quorum
    assert replace(STATE, last_offer=None).can_finish_in_time(LATE)


def test_next_round_unit_is_offered_while_usually_timely() -> None:
    assert latest_early_start([100.0, 104.0, 130.0], 150.0) == 46.0
    with pytest.raises(ValueError):
        latest_early_start([], 110.0)
    state = replace(STATE, last_early_offer=timedelta(seconds=10))
    assert state.can_start_next_round(EARLY, START)
    assert not state.can_start_next_round(LATE, START)
    assert state.can_start_next_round(LATE, None)  # it has not begun
    assert replace(STATE, last_early_offer=None).can_start_next_round(LATE, START)


def test_sequentially_offered_round_begins_with_quorum() -> None:
    assert round_start([3.0, 1.0, 2.0, 9.0], 6) == 9.0
    assert round_start([3.0, 1.0, 2.0], 6) is None
    starts = [START + timedelta(seconds=seconds) for seconds in (7, 5, 0, 4, 900, 901)]
    assert round_start(starts, 6) == LATE - timedelta(seconds=8)


def test_round_closes_with_all_or_quorum_after_deadline() -> None:
    state, last = replace(STATE, nodes=8), START + STATE.deadline
    before = last - timedelta(seconds=1)
    assert replace(state, delivered=8, open=0).can_close(START)
    assert not replace(state, delivered=7, open=1).can_close(before)
    assert replace(state, delivered=6, open=2).can_close(last)
    assert not replace(state, delivered=5, open=3).can_close(last + timedelta(days=9))
    assert not replace(state, delivered=5, open=0).can_close(last + timedelta(days=9))


def test_quorum_does_not_wait_for_infeasible_unit() -> None:
    assert not replace(STATE, delivered=5, open=1).can_close(LATE)
    assert replace(STATE, delivered=5, open=1, infeasible=1).can_close(LATE)
    assert not replace(STATE, delivered=3, open=1, infeasible=1).can_close(LATE)
    assert not replace(STATE, delivered=4, open=2, infeasible=1).can_close(LATE)
    assert replace(STATE, delivered=4, open=2, infeasible=1).can_close(START + timedelta(seconds=110))


@pytest.mark.parametrize(
    ("state", "now", "own", "ahead", "may", "round_"),
    [
        (STATE, EARLY, None, None, False, 0),
        (STATE, LATE, None, None, False, None),  # it begins with the next round
        (STATE, LATE, None, None, True, 1),  # at once
        (STATE, EARLY, None, None, True, 0),
        (STATE, EARLY, LEASED, None, True, None),
        (STATE, EARLY, COMMITTED, None, True, None),
        (STATE, EARLY, DELIVERED, None, False, None),
        (STATE, EARLY, DELIVERED, None, True, 1),
        (STATE, EARLY, UnitStatus.VERIFIED, None, True, 1),
        (STATE, EARLY, DELIVERED, LEASED, True, None),
        (STATE, EARLY, DELIVERED, DELIVERED, True, None),  # never two rounds ahead
        (STATE, EARLY, None, DELIVERED, True, None),
        (STATE, EARLY, None, LEASED, True, None),
        (FEW, LATE, None, None, True, 0),  # without it there is no quorum
        (FEW, LATE, None, DELIVERED, True, 0),
        (FEW, LATE, None, LEASED, True, None),
    ],
)
def test_offered_round_follows_replica_state(
    state: RoundState, now: datetime, own: UnitStatus | None, ahead: UnitStatus | None, may: bool, round_: int | None
) -> None:
    assert round_to_offer(state, now, own, ahead, next_round_open=may) == round_


def test_one_hot_spare_serves_eight_nodes() -> None:
    assert [spare_count(nodes) for nodes in (1, 8, 9, 64)] == [1, 1, 2, 8]
