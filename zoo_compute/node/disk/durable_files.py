"""Files that a power cut leaves whole or absent."""

import json
import os
from pathlib import Path
from typing import Any

from zoo_compute.content.packs import force_to_disk


def write_json(path: Path, document: dict[str, Any]) -> None:
    """Write a JSON file as :func:`write_file` does."""
    write_file(path, json.dumps(document).encode())


def write_file(path: Path, content: bytes) -> None:
    """Write a file that is either there in full, also after a power cut, or not at all."""
    partial = path.with_name(path.name + ".part")
    with partial.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    force_to_disk(path.parent)  # its name: what was signed by what is written here must not be decided anew
