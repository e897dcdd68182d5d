"""The model that ``job download`` takes, and the error of a job without a final one."""

from unittest.mock import MagicMock

import pytest
from kit.errors import raises_code

from zoo_compute.base.errors import ExitCode, JobUnsuccessful, ZooError
from zoo_compute.base.models import Checkpoint, JobState
from zoo_compute.client.job import Job


def ended_job(monkeypatch: pytest.MonkeyPatch, *, final: str | None, losses: list[str | None]) -> Job:
    """Return a failed job with a checkpoint, ``model-ROUND``, for each of its ``losses``."""
    rows = [
        {
            "round": round_,
            "cid": f"manifest-{round_}",
            "model_cid": f"model-{round_}",
            "validation_loss": loss,
            "pins": [],
        }
        for round_, loss in enumerate(losses)
    ]
    job = Job(MagicMock(), "0x" + "11" * 32)
    state = MagicMock(spec=JobState, final_model_cid=final, status="failed", is_over=True)
    monkeypatch.setattr(job, "state", lambda: state)
    monkeypatch.setattr(job, "checkpoints", lambda: [Checkpoint.model_validate(row) for row in rows])
    return job


def test_model_of_named_round_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    job = ended_job(monkeypatch, final="model-final", losses=["5.0", "3.0", "9.0"])
    assert (job.model_cid(), job.model_cid(1), job.model_cid(0)) == ("model-final", "model-1", "model-0")
    with raises_code(ZooError, "no-model-yet") as raised:
        job.model_cid(3)
    assert raised.value.remedy == "Take a round from 0 to 2."
    assert raised.value.exit_code == ExitCode.FAILED


@pytest.mark.parametrize(
    ("losses", "best"),
    [(["5.0", "3.0", "9.0"], 1), (["5.0", "5.0"], 0), (["5.0", None], 0), ([None, None], 1), ([], None)],
)
def test_failed_job_names_its_best_model(
    monkeypatch: pytest.MonkeyPatch, losses: list[str | None], best: int | None
) -> None:
    with raises_code(JobUnsuccessful, "no-model-yet") as raised:
        ended_job(monkeypatch, final=None, losses=losses).model_cid()
    assert raised.value.exit_code == ExitCode.JOB_UNSUCCESSFUL == 5
    assert (f"--after {best}" in (raised.value.remedy or "")) == (best is not None)
