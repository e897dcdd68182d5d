"""What the payer of a job may want to change before signing it. Pure; nothing here refuses a job."""

from pydantic import BaseModel, Field

from training_gym.config import CHUNK, TrainingSpec


class Advice(BaseModel):
    """One point: a stable code, what is found, and what would help."""

    code: str
    detail: str
    remedy: str
    field: str = Field(description="The setting to look at first.")


def advice_on(spec: TrainingSpec) -> list[Advice]:
    """Everything about a specification that its payer may not expect."""
    return [found for found in (_few_rounds(spec),) if found is not None]


def _few_rounds(spec: TrainingSpec) -> Advice | None:
    """Sparse updates move that many entries of each chunk in a round, so few rounds leave most of a model as it was."""
    training = spec.training
    most = training.rounds * training.down_top_k
    if not 0 < most < CHUNK:
        return None
    return Advice(
        code="few_rounds",
        detail=f"{training.rounds} rounds that move {training.down_top_k} of {CHUNK} parameters each change at most "
        f"{most / CHUNK:.1%} of the model.",
        remedy=f"Take at least {-(-CHUNK // training.down_top_k)} rounds, a larger top_k and down_top_k, or the method "
        "default, which sends every entry.",
        field="training_config.rounds",
    )
