"""Search for the devnet's binaries."""

import os
import platform
import shutil
import sys
from pathlib import Path

_REPOSITORY = Path(__file__).resolve().parents[2]


def find_anvil() -> Path:
    """Return anvil: ``ZOO_ANVIL``, the npm package in ``contracts/``, or one on the PATH.

    Raises:
        FileNotFoundError: there is none.
    """
    named = os.environ.get("ZOO_ANVIL")
    if named:
        if not Path(named).is_file():
            raise FileNotFoundError(f"ZOO_ANVIL is {named}; expected a file")
        return Path(named)
    processor = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine().lower(), platform.machine().lower())
    packaged = _REPOSITORY / f"contracts/node_modules/@foundry-rs/anvil-{sys.platform}-{processor}/bin"
    for candidate in (packaged / "anvil", packaged / "anvil.exe"):
        if candidate.is_file():
            return candidate
    installed = shutil.which("anvil")
    if installed is None:
        raise FileNotFoundError("anvil is not installed: run `make setup`, or set ZOO_ANVIL to its path")
    return Path(installed)
