"""Progress bars on standard error, for a terminal only."""

import sys
from collections.abc import Callable
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn


class ByteProgress:
    """Bars of bytes, one a stage, while the context is entered."""

    def __init__(self) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        self._bars = Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty())

    def __enter__(self) -> "ByteProgress":
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bars.stop()

    def start(self, label: str, total: int | None) -> Callable[[int], object]:
        """Begin a stage of ``total`` bytes, if known; return the receiver of its bytes."""
        bar = self._bars.add_task(label, total=total)
        return lambda count: self._bars.advance(bar, count)
