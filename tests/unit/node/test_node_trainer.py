"""Limits of a node's training process."""

import weakref

import pytest

from training_gym.runtime.profile import CPU, ExecutionProfile
from training_gym.spec.errors import GymError
from zoo_compute.node.execution import trainer
from zoo_compute.node.execution.trainer import Trainer


@pytest.mark.parametrize("kind", ["train", "replay"])
def test_process_with_changed_results_delivers_nothing(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replays would refute its unit and slash an honest node."""
    classes = ["0x" + "11" * 32, "0x" + "11" * 32, "0x" + "22" * 32]
    drawn = iter([5, 0, 0])

    def probed(_: ExecutionProfile) -> str:
        return classes.pop(0)

    monkeypatch.setattr(trainer, "configure", lambda _: None)
    monkeypatch.setattr(trainer, "environment_class", probed)
    monkeypatch.setattr(trainer.secrets, "randbelow", lambda _: next(drawn))
    process = Trainer(CPU)
    found = []
    for _ in range(3):
        with pytest.raises(GymError) as refused:
            process.run({"kind": kind}, lambda _: None)
        found.append(refused.value.code)
    assert found == ["invalid_task", "invalid_task", "environment_changed"]
    assert not classes


def test_memory_pools_of_aborted_proof_are_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    alive = weakref.WeakSet[object]()

    class Pools:
        def __init__(self, *_: object) -> None:
            assert not alive, "two proofs' pools at once"
            alive.add(self)

    monkeypatch.setattr(trainer, "configure", lambda _: None)
    monkeypatch.setattr(trainer, "environment_class", lambda _: "0x" + "11" * 32)
    monkeypatch.setattr(trainer, "Prover", Pools)
    process = Trainer(CPU)
    work = {"size": 16, "pool": 1, "lanes": 1, "rounds": 1, "steps": 1, "opened": 1}
    ready = {"kind": "prove_ready", "work": work, "seed": "0x" + "22" * 32}
    for _ in range(2):
        process.run(ready, lambda _: None)
        assert alive
    with pytest.raises(GymError):
        process.run({"kind": "train"}, lambda _: None)
    assert not alive
