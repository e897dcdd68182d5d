"""Log searches at nodes that refuse long ranges, with counted requests."""

from typing import Any

import pytest
import requests
from web3.exceptions import Web3RPCError

from zoo_compute.chain import log_search
from zoo_compute.chain.log_search import FIRST_BLOCKS


class Event:
    def __init__(self, blocks: list[int], limit: int = 10**9, error: Exception | None = None) -> None:
        self.blocks, self.limit, self.error = blocks, limit, error or Web3RPCError("range too large")
        self.asked: list[tuple[int, int]] = []
        self.refused = 0

    def get_logs(self, argument_filters: Any, from_block: int, to_block: int) -> list[int]:
        assert 0 <= from_block <= to_block
        if to_block - from_block + 1 > self.limit:
            self.refused += 1
            raise self.error
        self.asked.append((from_block, to_block))
        return [block for block in self.blocks if from_block <= block <= to_block]


BLOCKS = [10, 11, 3_000, 77_777, 99_999]


@pytest.mark.parametrize("limit", [10**9, 5_000, 1_000, 999, 100])
def test_every_event_is_found_once_and_in_order(limit: int) -> None:
    event = Event(BLOCKS, limit)
    assert log_search.all_events(event, {}, 10, 99_999) == BLOCKS
    assert sum(last - first + 1 for first, last in event.asked) == 99_990
    assert min(first for first, _ in event.asked) == 10


def test_ranges_grow_and_are_refused_few_times() -> None:
    generous, strict = Event(BLOCKS), Event(BLOCKS, limit=5_000)
    log_search.all_events(generous, {}, 0, 10**6)
    log_search.all_events(strict, {}, 0, 10**6)
    assert len(generous.asked) < 12
    assert strict.refused <= 3
    assert len(strict.asked) < 2 * 10**6 / 5_000 + 10


def test_newest_event_is_found_without_older_ranges() -> None:
    event = Event([5, 9_990, 9_995])
    assert log_search.newest(event, {}, 0, 10_000) == 9_995
    assert event.asked == [(10_001 - FIRST_BLOCKS, 10_000)]
    assert log_search.newest(Event([5]), {}, 6, 10_000) is None
    assert log_search.newest(Event([5]), {}, 5, 10_000) == 5
    assert log_search.all_events(Event([5]), {}, 7, 6) == []


def test_node_refusing_single_block_is_abandoned() -> None:
    event = Event([5], limit=0)
    with pytest.raises(Web3RPCError):
        log_search.newest(event, {}, 0, 10_000)
    assert event.refused <= 11


def test_exhausted_node_is_not_asked_for_more() -> None:
    response = requests.Response()
    response.status_code = 429
    event = Event([5], limit=0, error=requests.HTTPError(response=response))
    with pytest.raises(requests.HTTPError):
        log_search.newest(event, {}, 0, 10_000)
    assert event.refused == 1
