import pytest

from training_gym.aggregate.aggregation import WEIGHT_ONE
from training_gym.exchange.deadlines import MAX_STALENESS, deadline, quorum, staleness_weight


def test_deadline_follows_arrivals_and_no_single_straggler() -> None:
    assert deadline([10, 11, 12, 13, 14]) == 12 + 3 * 1
    assert deadline([10, 11, 12, 13, 10_000]) == 12 + 3 * 1
    assert deadline([10.0] * 5) == 11.0
    assert deadline([10.0] * 5, min_slack_seconds=30.0) == 40.0
    with pytest.raises(ValueError):
        deadline([])


def test_quorum_is_two_thirds() -> None:
    assert [quorum(count) for count in (1, 2, 3, 4, 8, 9)] == [1, 2, 2, 3, 6, 6]


def test_late_payload_weight_falls_to_zero() -> None:
    weights = [staleness_weight(late) for late in range(MAX_STALENESS + 2)]
    assert weights[0] == WEIGHT_ONE
    assert weights[-1] == 0
    for late, weight in enumerate(weights[:-1]):
        assert weight == pytest.approx(WEIGHT_ONE / (1 + late) ** 0.5, abs=1)
    with pytest.raises(ValueError):
        staleness_weight(-1)
