"""Evaluations of a job's first and final model by verifiers, in the market's own process."""

from typing import Any

from sqlalchemy import select, update

from kit.jobs.jobs_fixtures import SPEC
from kit.verification.verification_fixtures import VerificationWorld
from market.providers.models import ProviderEpoch
from market.training.checkpoints.models import Checkpoint
from market.training.checkpoints.service import load_parameters, model_loss
from market.training.evaluation import service as evaluation
from market.training.leases.schemas import CompleteEvaluation, LeaseKind, LeaseView
from training_gym.evaluate.sums import LossSums
from training_gym.spec.config import TrainingSpec

SPLIT_SAMPLES = 219


def record_of(loss: float, samples: int = SPLIT_SAMPLES) -> str:
    """Return a record of samples of eight targets, of ``loss`` and ``loss`` + 0.5 in turn."""
    losses = [loss, loss + 0.5] * samples
    return LossSums.of(losses[:samples], [8] * samples).to_bytes().decode()


RECORDS = [record_of(loss) for loss in (36.0, 40.0, 44.0, 48.0)]


def trained(world: VerificationWorld, rounds: int = 1, *, first_loss: str | None = "5.548400", **data: int) -> str:
    """Return a large job whose first round is delivered; ``first_loss`` is already known."""
    job_id = world.delivered_job([world.node(), world.node()], document=large_document(world, rounds, **data))
    know_first_loss(world, job_id, first_loss)
    return job_id


def know_first_loss(world: VerificationWorld, job_id: str, loss: str | None) -> None:
    row = update(Checkpoint).where(Checkpoint.job_id == job_id, Checkpoint.round == 0)
    world.execute(row.values(validation_loss=loss, validation_samples=None if loss is None else SPLIT_SAMPLES))


def large_document(world: VerificationWorld, rounds: int, **data: int) -> dict[str, Any]:
    """Return a job's document that is large enough for verifiers."""
    training = {**SPEC["training_config"], "rounds": rounds, "batch_size": 512}
    data_config = {"dataset": world.spec.dataset, **data}
    return {**world.spec.to_dict(), "training_config": training, "data_config": data_config}


def asked(world: VerificationWorld, job_id: str) -> dict[str, LeaseView]:
    """Let the market ask; return the evaluations that verifiers pull now."""
    world.aggregate(job_id)
    return pulled(world)


def answer(world: VerificationWorld, leases: dict[str, LeaseView], *records: str) -> list[str]:
    """Let each verifier deliver its record; return the verifiers."""
    for (verifier, lease), record in zip(leases.items(), records, strict=True):
        world.complete(lease, verifier, CompleteEvaluation(token=lease.token, record=record))
    return list(leases)


def pulled(world: VerificationWorld) -> dict[str, LeaseView]:
    """Return the evaluations that verifiers pull now."""
    found = {verifier: world.pull(verifier, LeaseKind.EVALUATE) for verifier in world.verifiers}
    return {verifier: lease for verifier, lease in found.items() if lease is not None}


def validate(world: VerificationWorld, job_id: str) -> None:
    evaluation.validate(world.database, world.settings, world.storage, job_id)


def counts(world: VerificationWorld, verifier: str) -> tuple[int, int, int]:
    """Return the verifier's right and wrong results, and the price of the right ones in wei."""
    query = select(ProviderEpoch.replays, ProviderEpoch.rejected, ProviderEpoch.replayed_wei)
    return next(iter(world.tuples(query.where(ProviderEpoch.provider == verifier))), (0, 0, 0))


def loss_of(world: VerificationWorld, job_id: str, round_: int) -> tuple[str | None, int | None]:
    query = select(Checkpoint.validation_loss, Checkpoint.validation_samples)
    row: tuple[str | None, int | None]
    [row] = world.tuples(query.where(Checkpoint.job_id == job_id, Checkpoint.round == round_))
    return row


def by_market(world: VerificationWorld, job_id: str) -> tuple[str | None, int | None]:
    spec = TrainingSpec.from_dict(world.read(job_id).spec)
    parameters = load_parameters(world.storage, spec, world.checkpoint(job_id))
    found = model_loss(world.storage, world.settings, spec, parameters, 1)
    return found.validation_loss, found.validation_samples
