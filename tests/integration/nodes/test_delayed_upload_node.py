"""The demonstration's delayed node commits, and delivers once released."""

import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kit.nodes.node_work_fixtures import Market, OneNode
from kit.waiting import wait_until

from zoo_compute.base.link import Link
from zoo_compute.devnet.adversaries.delayed_upload import DelayedUploadWorker, release


def _held_up(directory: Path, from_round: int) -> Any:
    return partial(DelayedUploadWorker, from_round=from_round, until=directory / "go-on")


def test_delayed_unit_is_committed_and_delivered_after_release(node: OneNode) -> None:
    market = Market(node.store)
    training = threading.Thread(target=lambda: node.train(market, make=_held_up(node.directory, 0)))
    training.start()
    wait_until(lambda: market.order() == ["commit"])
    beats = len(market.calls)
    wait_until(lambda: len(market.calls) > beats)  # it keeps its lease
    assert market.order() == ["commit"]
    release(node.directory)
    training.join(60)
    assert market.order() == ["commit", "upload", "complete"]


def test_earlier_round_unit_is_not_delayed(node: OneNode) -> None:
    market = Market(node.store)
    node.train(market, make=_held_up(node.directory, 1))
    assert market.order() == ["commit", "upload", "complete"]


def test_delayed_node_can_be_stopped(node: OneNode) -> None:
    market, link = Market(node.store), Link()
    link.stop()
    with pytest.raises(ConnectionAbortedError):
        node.train(market, link=link, make=_held_up(node.directory, 0))
    assert market.order() == ["commit"]
