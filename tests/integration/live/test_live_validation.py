"""Units evaluate checkpoints: real training, replays, disputes and receipts."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kit.chain.deployed_chain import wallet
from kit.disputes.dispute_fixtures import ZEN, settings_of_disputes  # noqa: F401  (fixtures)
from kit.disputes.job_end_fixtures import EndingsWorld, world_of_endings  # noqa: F401  (fixtures)
from kit.disputes.referee_fixtures import provider
from kit.verification.live_fixtures import CHEAT_ACCOUNT, HONEST_ACCOUNT, Node, executors

from market.training.checkpoints import repository as checkpoints_repository
from market.training.checkpoints.models import Checkpoint
from market.training.checkpoints.service import load_parameters, model_loss, validation_split
from market.training.evaluation import service as evaluation
from market.training.leases.schemas import LeaseKind
from training_gym.evaluate.loss import sums_of
from training_gym.evaluate.sums import LossSums
from training_gym.model.network import Network
from training_gym.spec.config import TrainingSpec
from zoo_compute.audit.receipt import verify_job
from zoo_compute.chain.settlements import ChainReader
from zoo_compute.content.base_models import BaseFiles
from zoo_compute.content.gateway import GatewayClient
from zoo_compute.node.execution.executor import Executor
from zoo_compute.terminal.receipts import model_loss as recomputed_loss

SAMPLES = 8
TRAINING = {"inner_steps": 4, "segment_steps": 2}


class BoastingExecutor(Executor):
    def child_command(self) -> list[str]:
        _, *arguments = super().child_command()
        return ["tests.kit.nodes.boasting_child", *arguments]


@pytest.fixture
def by_market(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Rounds of the checkpoints that the market evaluates itself."""
    rounds = []

    def noted(*arguments: Any) -> Any:
        rounds.append(arguments[-1])
        return model_loss(*arguments)

    for module in ("aggregation.final_model", "evaluation.service", "rounds.first_checkpoint"):
        monkeypatch.setattr(f"market.training.{module}.model_loss", noted)
    return rounds


def trained(
    live: EndingsWorld, nodes: Sequence[Node], rounds: int, evaluators: Sequence[Node] = (), **training: int
) -> str:
    """Return a job after its rounds; ``evaluators`` evaluate the final model."""
    job_id = live.job_of(nodes, validation_samples=SAMPLES, rounds=rounds, **TRAINING, **training)
    for round_ in range(rounds):
        for node in nodes:
            live.work_off(node, LeaseKind.TRAIN)
        if evaluators and round_ + 1 == rounds:
            live.aggregate(job_id)
            for node in evaluators:
                live.work_off(node, LeaseKind.EVALUATE)
        live.end_round(job_id)
        evaluation.validate(live.database, live.settings, live.storage, job_id)
    return job_id


def checkpoint(live: EndingsWorld, job_id: str, round_: int) -> Checkpoint:
    found: Checkpoint = live.call(checkpoints_repository.checkpoint, job_id, round_)
    return found


def library_sums(live: EndingsWorld, job_id: str, round_: int, numbers: range) -> LossSums:
    spec = TrainingSpec.from_dict(live.read(job_id).spec)
    parameters = load_parameters(live.storage, spec, checkpoint(live, job_id, round_).cid)
    return sums_of(spec, Network(spec, parameters, "cpu"), validation_split(live.storage, spec), numbers, "cpu")


@pytest.mark.parametrize("final_by", ["market", "verifiers"])
def test_nodes_evaluate_checkpoints_to_receipt(live: EndingsWorld, by_market: list[int], final_by: str) -> None:
    live.deployed.anvil.rpc("anvil_impersonateAccount", wallet(10).address)  # the chain knows ten wallets
    nodes = [provider(live, account) for account in (HONEST_ACCOUNT, CHEAT_ACCOUNT, wallet(10))]
    verifiers = [live.staked_verifier_node(wallet(index), live.executor) for index in (8, 9)]
    if final_by == "market":
        job_id = trained(live, nodes, rounds=2)
    else:
        job_id = trained(live, nodes, rounds=2, evaluators=verifiers, batch_size=160)
    assert by_market == ([2] if final_by == "market" else [])
    live.decide(job_id, nodes, verifiers)
    assert {unit.status for unit in live.units(job_id)} == {"verified"}
    assert (live.slashes(), [node.failures for node in nodes]) == ([], [[], [], []])

    for round_ in range(2):
        found, row = library_sums(live, job_id, round_, range(3 * SAMPLES)), checkpoint(live, job_id, round_)
        assert found.samples == row.validation_samples == 3 * SAMPLES
        stated = float(row.validation_loss or "nan"), float(row.validation_error or "nan")
        assert stated == pytest.approx((found.loss, found.error), abs=2e-6)

    live.settle_job(job_id)
    live.check_paid(job_id)
    reader = ChainReader(live.deployed.anvil.url, live.deployed.deployment.contracts)
    with GatewayClient([live.gateway]) as gateway, BaseFiles(gateway) as bases:
        checked = verify_job(job_id, reader, gateway, partial(recomputed_loss, bases))
    assert {finding.code for finding in checked.findings} == {"foreign_signature"}  # jobs here are not signed
    losses = [(one["validation_loss"], one["validation_error"]) for one in checked.receipt["checkpoints"]]
    assert losses == [
        (float(row.validation_loss or "nan"), float(row.validation_error or "nan"))
        for row in live.call(checkpoints_repository.checkpoints, job_id)
    ]


def test_receipt_shows_worse_final_model(live: EndingsWorld) -> None:
    """The rates grow until the last round spoils the model."""
    node = provider(live, HONEST_ACCOUNT)
    verifiers = [live.staked_verifier_node(wallet(index), live.executor) for index in (8, 9)]
    high = {"learning_rate": 1.0, "muon_learning_rate": 1.0, "warmup_steps": 8, "final_rate_share": 1}
    job_id = trained(live, [node], rounds=2, **high)
    best, final = (checkpoint(live, job_id, round_) for round_ in (1, 2))
    assert (final.rolled_back_to, final.model_cid) == (1, best.model_cid)
    live.decide(job_id, [node], verifiers)
    live.settle_job(job_id)
    reader = ChainReader(live.deployed.anvil.url, live.deployed.deployment.contracts)
    with GatewayClient([live.gateway]) as gateway, BaseFiles(gateway) as bases:
        honest, lying = (
            verify_job(job_id, reader, gateway, loss)
            for loss in (partial(recomputed_loss, bases), lambda *_: (float(final.validation_loss or "nan"), 0.0))
        )
    assert honest.receipt["rollbacks"] == [{"round": 2, "to": 1, "reason": "final_loss"}]
    assert {finding.code for finding in honest.findings} == {"foreign_signature"}  # jobs here are not signed
    assert "wrong_rollback" in {finding.code for finding in lying.findings}


def test_false_record_of_losses_is_slashed(live: EndingsWorld, tmp_path: Path) -> None:
    with executors(tmp_path, BoastingExecutor) as (boasting,):
        live.give_account()
        live.referees_here = live.referees()
        verifiers = [live.verifier_node() for _ in range(2)]
        boaster = provider(live, CHEAT_ACCOUNT, boasting)
        job_id = trained(live, [boaster], rounds=1)
        [false] = live.units(job_id)
        true = library_sums(live, job_id, 0, range(SAMPLES))
        assert LossSums.from_bytes((false.evaluation or "").encode()).loss == pytest.approx(true.loss / 2, rel=1e-5)
        live.until_decided(job_id, [boaster], verifiers)

    [false] = live.units(job_id)
    assert (false.status, false.reason) == ("rejected", "incorrect_computation")
    refuted = {sample.segment for sample in live.samples() if sample.status == "failed"}
    assert refuted == {1}  # the unit's training matches in every replay
    [slash] = live.slashes()
    assert (slash.path, slash.evidence) == ("dispute", false.dispute_id)
    assert live.chain_of(boaster).dispute(slash.evidence).step == 1
    assert live.deployed.views.stake_of(boaster.address) == 500 * ZEN
