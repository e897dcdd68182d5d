"""Nodes on slow links: a new measurement before a unit ends, and delivery of units."""

import pytest
from kit.nodes.node_work_fixtures import JOB, MODEL, Killed, Market, OneNode

from training_gym.compress.payload_format import payload_size
from training_gym.spec.config import TrainingSpec
from zoo_compute.base.link import Link
from zoo_compute.node.market.calls import Lease
from zoo_compute.node.work import worker as node_work
from zoo_compute.node.work.worker import LinkTooSlow, require_link


@pytest.mark.parametrize(
    ("mbps", "hidden_size", "taken"),
    [
        (None, 1024, True),  # not known yet
        (4.0, 1024, True),  # the rate that deadlines assume
        (3.9, 1024, True),  # the lease periods have room for a little less
        (2.0, 1024, False),
        (1.0, 1024, False),
        (1.0, 64, True),  # small states are there in the lease periods
    ],
)
def test_unit_with_states_unrevealable_in_time_is_declined(
    node: OneNode, mbps: float | None, hidden_size: int, taken: bool
) -> None:
    model = {**MODEL, "hidden_size": hidden_size}
    task = {**node.task, "spec": {**node.task["spec"], "model_config": model}}
    lease = Lease("l", "train", JOB, "t", task, 30.0)
    rate = None if mbps is None else round(mbps * 1e6 / 8)
    if taken:
        require_link(lease, rate)
        return
    with pytest.raises(LinkTooSlow, match=f"at {mbps} Mb/s") as refused:
        require_link(lease, rate)
    assert refused.value.code == "link_too_slow"


def test_slow_link_node_refuses_unit_before_training(node: OneNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_work, "reveal_timeout_seconds", lambda size, lease_seconds: 0.0)
    slow = Link()
    slow.up.add_sample(1 << 20, 10.0)
    market = Market(node.store)
    with pytest.raises(LinkTooSlow):
        node.train(market, link=slow)
    assert market.order() == ["put_piece"]  # as it is now


def test_slow_link_is_measured_again_before_refusal(node: OneNode, monkeypatch: pytest.MonkeyPatch) -> None:
    # A pause of the machine during the measurement must not refuse the unit.
    monkeypatch.setattr(node_work, "reveal_timeout_seconds", lambda size, lease_seconds: size / 100)
    link = Link()
    for _ in range(16):
        link.up.add_sample(1 << 20, 1e6)
    market = Market(node.store, link=link)
    node.train(market, link=link)
    assert market.order() == ["put_piece", "commit", "upload", "complete"]
    assert 0 < market.body("put_piece")["size"] <= payload_size(TrainingSpec.from_dict(node.task["spec"]))


def test_trained_unit_is_delivered_over_any_link(node: OneNode, monkeypatch: pytest.MonkeyPatch) -> None:
    killed = Market(node.store, at="upload", fault=Killed())
    with pytest.raises(Killed):
        node.train(killed)
    monkeypatch.setattr(node_work, "reveal_timeout_seconds", lambda size, lease_seconds: 0.0)
    slow, market = Link(), Market(node.store)
    slow.up.add_sample(1 << 20, 10.0)
    node.train(market, link=slow)
    assert market.order() == ["commit", "upload", "complete"]
