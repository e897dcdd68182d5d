"""Failures of the training processes as messages to their parent. No torch."""

from training_gym.spec.errors import GymError

_ALLOCATION_FAILURES = ("can't allocate memory", "not enough memory", "out of memory")


def describe(error: Exception) -> dict[str, str]:
    """Return a failure's code, field and message."""
    if isinstance(error, GymError):
        return {"code": error.code, "field": error.field, "message": error.message}
    text = f"{type(error).__name__}: {error}"[:500]
    if isinstance(error, MemoryError) or any(phrase in text.lower() for phrase in _ALLOCATION_FAILURES):
        return {"code": "out_of_memory", "field": "task", "message": text}
    return {"code": "task_failed", "field": "task", "message": text}
