"""Logs of the market's processes."""

import pytest
import structlog
from structlog.testing import capture_logs

from market.platform.observability.logs import configure_logs


@pytest.mark.usefixtures("own_logs")
def test_used_logger_follows_new_configuration() -> None:
    log = structlog.get_logger(__name__)
    for at_once in ("first", "second"):  # a process of tests makes many apps, and each configures
        configure_logs("INFO", as_json=True)
        with capture_logs() as logs:
            log.error(at_once)
        assert [entry["event"] for entry in logs] == [at_once]
