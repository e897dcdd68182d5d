"""Interface between a job handle and its client."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from zoo_compute.base.models import Quote
from zoo_compute.client.http import Connection

Approve = Callable[[Quote, int], None]
"""Consent to a quote and a budget in wei; refuses by an exception."""


class JobSource(Protocol):
    """Access to one market and its storage. :class:`zoo_compute.Client` implements it."""

    @property
    def connection(self) -> Connection:
        """The connection to the market's API."""

    def submit_proposed(self, job_id: str, what: str, changes: dict[str, Any], approve: Approve | None = None) -> str:
        """Sign and submit a proposed ``what`` (``clone`` or ``extend``); return its id."""

    def fetch(self, cid: str, *, max_bytes: int) -> bytes:
        """Return a file from storage, every block checked against its CID."""

    def download(self, cid: str, path: Path) -> int:
        """Write a file from storage to ``path`` and return its size in bytes."""
