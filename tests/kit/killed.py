"""Simulated end of a process."""

from typing import Any

import pytest

from market.chain.rpc.client import ChainClient


class Killed(Exception):
    """Raised where a process ends."""


def kill_at_transactions(monkeypatch: pytest.MonkeyPatch, is_sent: bool) -> set[bytes]:
    """End the process before or after each first sending; return the transactions."""
    send_raw, killed = ChainClient.send_raw, set()

    def dies(client: ChainClient, raw: bytes) -> Any:
        first = raw not in killed
        killed.add(raw)
        if first and not is_sent:
            raise Killed
        answer = send_raw(client, raw)
        if first:
            raise Killed
        return answer

    monkeypatch.setattr(ChainClient, "send_raw", dies)
    return killed
