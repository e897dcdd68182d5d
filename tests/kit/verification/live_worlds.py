"""Fixtures of live markets: warm training children, and a maker of worlds on a chain."""

import logging
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from fastapi import FastAPI

from kit.chain.deployed_chain import Chain
from kit.verification.live_fixtures import AnyLiveWorld, LiveMaker, executors
from market.platform.storage.client import Storage
from market.settings import Settings
from zoo_compute.devnet.adversaries.adversary import executor_of
from zoo_compute.node.execution.executor import Executor


@pytest.fixture(scope="session", name="executor")
def honest_executor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Executor]:
    """A node's warm training child, shared by all tests."""
    with executors(tmp_path_factory.mktemp("training"), Executor) as running:
        yield running[0]


@pytest.fixture(scope="session", name="cheating")
def cheating_executor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Executor]:
    """An executor that skips the last step of every segment."""
    with executors(tmp_path_factory.mktemp("cheating"), executor_of("skip-step")) as running:
        yield running[0]


@pytest.fixture(name="live_of")
def live_market_maker(
    database_url: str,
    storage: Storage,
    settings: Settings,
    chain: Chain,
    ipfs: dict[str, str],
    executor: Executor,
    server: tuple[FastAPI, str],
    app: FastAPI,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> Iterator[LiveMaker]:
    """Make a live market of a given class, with stakes and windows on the chain."""
    caplog.set_level(logging.INFO, "zoo_compute")
    with ExitStack() as at_the_end:

        def make(kind: type[AnyLiveWorld]) -> AnyLiveWorld:
            world = kind(database_url, storage, settings, chain, ipfs["gateway"], tmp_path)
            world.executor, world.api_url = executor, server[1]
            at_the_end.callback(world.database.dispose)
            return world

        yield make
