"""Errors of the training library: each has a stable code, the field or input at fault and a remedy."""

MOST_FIELD, MOST_MESSAGE = 200, 1000
"""Characters: both may quote what a stranger wrote."""


class GymError(ValueError):
    """Base of every error this library raises on purpose.

    Attributes:
        code: stable ``snake_case`` reason that programs may branch on.
        field: dotted path of the input at fault (``training_config.top_k``), or the name of the input file.
        message: what is wrong, and what to do.

    ``field`` and ``message`` can be printed, encoded and stored wherever text can, whatever they quote.
    """

    def __init__(self, code: str, field: str, message: str) -> None:
        self.code = code
        self.field = _printable(field, MOST_FIELD)
        self.message = _printable(message, MOST_MESSAGE)
        super().__init__(f"{self.field}: {self.message}")


def _printable(text: str, most: int) -> str:
    """``text`` of at most so many characters, with escapes for what is no printable one, such as half a surrogate."""
    cut = text if len(text) <= most else f"{text[: most - 1]}…"
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in cut)


class SpecError(GymError):
    """A training specification that is refused."""


class ManifestError(GymError):
    """A dataset or checkpoint manifest that is refused."""


class StateError(GymError):
    """A checkpoint, boundary state or error feedback file that is refused."""


class PayloadError(GymError):
    """A pseudo-gradient payload that is refused."""


class StartStateMismatch(GymError):
    """A replayed segment's start state is not the one the worker committed to."""


class ResultMismatch(GymError):
    """A worker's result that contradicts its own trace or its unit's input."""


class ProfileError(GymError):
    """This process does not run under the execution profile it claims."""


class TrainingDiverged(GymError):
    """Training produced a value that is not finite."""
