"""Errors of the training library: a stable code, the field or input at fault, and a remedy."""

MAX_FIELD_LENGTH, MAX_MESSAGE_LENGTH = 200, 1000
"""Characters; both may quote untrusted input."""


class GymError(ValueError):
    """Base of every error that this library raises on purpose.

    Attributes:
        code: stable ``snake_case`` reason that programs may branch on.
        field: dotted path of the input at fault (``training_config.top_k``), or the name of the input file.
        message: the fault, and a remedy.

    ``field`` and ``message`` are printable text, even if they quote untrusted input.
    """

    def __init__(self, code: str, field: str, message: str) -> None:
        self.code = code
        self.field = _printable(field, MAX_FIELD_LENGTH)
        self.message = _printable(message, MAX_MESSAGE_LENGTH)
        super().__init__(f"{self.field}: {self.message}")


def _printable(text: str, limit: int) -> str:
    cut = text if len(text) <= limit else f"{text[: limit - 1]}…"
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in cut)


class SpecError(GymError):
    """Refusal of a training specification."""


class ManifestError(GymError):
    """Refusal of a dataset or checkpoint manifest."""


class DataError(GymError):
    """Refusal of training data; ``field`` names its file and line."""


class StateError(GymError):
    """Refusal of a checkpoint, boundary state or replica state file."""


class PayloadError(GymError):
    """Refusal of a payload."""


class StartStateMismatch(GymError):
    """A replayed segment's start state differs from the committed one."""


class ResultMismatch(GymError):
    """A result contradicts its own trace or its unit's input."""


class ProfileError(GymError):
    """This process does not run under its execution profile."""


class TrainingDiverged(GymError):
    """Training produced a value that is not finite."""
