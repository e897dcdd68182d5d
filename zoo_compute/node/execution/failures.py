"""Failures of the training processes as messages to their parent. No torch."""

from training_gym.spec.errors import GymError
from zoo_compute.node.execution import sandbox


def describe(error: Exception) -> dict[str, str]:
    """Return a failure's code, field and message."""
    if isinstance(error, GymError):
        return {"code": error.code, "field": error.field, "message": error.message}
    text = f"{type(error).__name__}: {error}"[:500]
    if isinstance(error, MemoryError) or sandbox.is_allocation_failure(text):
        return {"code": "out_of_memory", "field": "task", "message": text}
    return {"code": "task_failed", "field": "task", "message": text}
