"""Errors of the training library: each has a stable code, the field or input at fault and a remedy."""


class GymError(ValueError):
    """Base of every error this library raises on purpose.

    Attributes:
        code: stable ``snake_case`` reason that programs may branch on.
        field: dotted path of the input at fault (``training_config.top_k``), or the name of the input file.
    """

    def __init__(self, code: str, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.code = code
        self.field = field
        self.message = message


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
