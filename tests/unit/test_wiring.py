"""Connections between features that cannot import each other."""

import pytest

from market.training.leases import verification_hooks
from market.training.leases.verification_hooks import HooksMissing, hooks
from market.verification.replays import service as replays
from market.wiring import connect_features


def test_hooks_are_refused_before_registration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification_hooks, "_registered", [])
    with pytest.raises(HooksMissing, match="connect_features"):
        hooks()
    connect_features()
    assert hooks().replay_committed is replays.replay_committed
