"""The demonstration's delayed node commits, and delivers once released."""

import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kit.engines.ipfs_processes import StoreProcess
from kit.nodes.node_work_fixtures import Market, lease, task_to_train, work
from kit.waiting import wait_until

from zoo_compute.base.link import Link
from zoo_compute.devnet.adversaries.delayed_upload import DelayedUploadWorker, release
from zoo_compute.node.execution.executor import Executor


def _held_up(directory: Path, from_round: int) -> Any:
    return partial(DelayedUploadWorker, from_round=from_round, until=directory / "go-on")


def test_delayed_unit_is_committed_and_delivered_after_release(
    store: StoreProcess, tmp_path: Path, executor: Executor
) -> None:
    market, held = Market(store), lease("train", task_to_train(store, executor.environment_class))
    arguments = (market, tmp_path, executor, held, None, _held_up(tmp_path, 0))
    node = threading.Thread(target=work, args=arguments)
    node.start()
    wait_until(lambda: market.order() == ["commit"])
    beats = len(market.calls)
    wait_until(lambda: len(market.calls) > beats)  # it keeps its lease
    assert market.order() == ["commit"]
    release(tmp_path)
    node.join(60)
    assert market.order() == ["commit", "upload", "complete"]


def test_earlier_round_unit_is_not_delayed(store: StoreProcess, tmp_path: Path, executor: Executor) -> None:
    market = Market(store)
    task = task_to_train(store, executor.environment_class)
    work(market, tmp_path, executor, lease("train", task), None, _held_up(tmp_path, 1))
    assert market.order() == ["commit", "upload", "complete"]


def test_delayed_node_can_be_stopped(store: StoreProcess, tmp_path: Path, executor: Executor) -> None:
    market, link = Market(store), Link()
    link.stop()
    task = task_to_train(store, executor.environment_class)
    with pytest.raises(ConnectionAbortedError):
        work(market, tmp_path, executor, lease("train", task), link, _held_up(tmp_path, 0))
    assert market.order() == ["commit"]
