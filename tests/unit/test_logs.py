"""Logs of the market's processes."""

import logging
from collections.abc import Iterator

import pytest
import structlog
from structlog.testing import capture_logs

from market.observability.logs import configure_logs


@pytest.fixture
def own_configuration() -> Iterator[None]:
    """What a test configures is undone, since it is the whole process's."""
    root, before = logging.getLogger(), structlog.get_config()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.configure(**before)


@pytest.mark.usefixtures("own_configuration")
def test_a_logger_that_was_used_before_follows_a_new_configuration() -> None:
    log = structlog.get_logger(__name__)
    for at_once in ("first", "second"):  # a process of tests makes many apps, and each configures
        configure_logs("INFO", as_json=True)
        with capture_logs() as logs:
            log.error(at_once)
        assert [entry["event"] for entry in logs] == [at_once]
