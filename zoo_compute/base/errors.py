"""Every error that a user or provider meets: a stable code, what is wrong, and what to do about it."""

from enum import IntEnum
from typing import Any


class ExitCode(IntEnum):
    """What the command line ends with. Scripts may rely on these."""

    OK = 0
    FAILED = 1  # an error that has no code of its own below
    USAGE = 2  # the command line itself is wrong
    REFUSED = 3  # the market refused the request and says why
    UNREACHABLE = 4  # no answer from the market, its storage or the chain
    JOB_UNSUCCESSFUL = 5  # the job ended without a trained model
    MISMATCH = 6  # a receipt, a block or a model is not what it should be
    DEVNET = 7  # the embedded stack is not running, or a part of it did not start
    INTERRUPTED = 130


class ZooError(Exception):
    """Base of all errors that this package raises on purpose.

    Attributes:
        code: stable, for programs.
        detail: what is wrong, for people.
        remedy: what to do about it, where something can be done.
    """

    exit_code = ExitCode.FAILED

    def __init__(self, code: str, detail: str, *, remedy: str | None = None) -> None:
        super().__init__(f"{detail} [{code}]")
        self.code, self.detail, self.remedy = code, detail, remedy


class ApiError(ZooError):
    """The market refused a request (problem+json).

    Attributes:
        status: HTTP status.
        field: path of the request field at fault, if one is.
        extra: whatever else the problem document says.
    """

    exit_code = ExitCode.REFUSED

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        field: str | None = None,
        remedy: str | None = None,
        extra: dict[str, Any] | None = None,
    ) -> None:
        said = field is None or detail.startswith(field)
        super().__init__(code, detail if said else f"{field}: {detail}", remedy=remedy)
        self.status, self.field, self.extra = status, field, extra or {}


class Unreachable(ZooError):
    """No usable answer: connection refused, timed out, or a server error that outlived the retries."""

    exit_code = ExitCode.UNREACHABLE


class ConfigError(ZooError):
    """A key, an address or a file that the user gave cannot be used."""

    exit_code = ExitCode.USAGE


class JobUnsuccessful(ZooError):
    """The job ended, but not with a settled, trained model."""

    exit_code = ExitCode.JOB_UNSUCCESSFUL


class Mismatch(ZooError):
    """Something is not what its hash, its signature or the chain says."""

    exit_code = ExitCode.MISMATCH


class DevnetError(ZooError):
    """The embedded stack cannot do what was asked."""

    exit_code = ExitCode.DEVNET
