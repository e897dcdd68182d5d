"""The container image's files and commands, without Docker."""

import tempfile
from pathlib import Path

import pytest

from tools.image import main


@pytest.mark.long
def test_image_runs_every_service(capsys: pytest.CaptureFixture[str]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        status = main([str(Path(directory, "image"))])
    lines = capsys.readouterr().out
    assert status == 0, lines
    services = ("deploy", "migrate", "api", "console", "worker", "webhooks", "beat", "provider", "verifier")
    assert {line.split(":")[0] for line in lines.splitlines()} == set(services)
