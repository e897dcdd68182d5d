"""Atomic file writes that survive a power cut."""

import json
import os
from pathlib import Path
from typing import Any

from zoo_compute.content.packs import force_to_disk


def write_json(path: Path, document: dict[str, Any]) -> None:
    """Write a JSON file atomically, as :func:`write_file` does."""
    write_file(path, json.dumps(document).encode())


def write_file(path: Path, content: bytes) -> None:
    """Write a file atomically: after a power cut it is complete or absent."""
    partial = path.with_name(path.name + ".part")
    with partial.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    force_to_disk(path.parent)  # the name must be durable too: a signed decision must not be made again
