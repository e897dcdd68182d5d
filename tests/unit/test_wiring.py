"""Connections between features that cannot import each other."""

import pytest

from market.jobs import replaying
from market.jobs.replaying import HooksMissing, hooks
from market.verification import replays
from market.wiring import connect_features


def test_hooks_are_refused_before_registration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replaying, "_registered", [])
    with pytest.raises(HooksMissing, match="connect_features"):
        hooks()
    connect_features()
    assert hooks().replay_committed is replays.replay_committed
