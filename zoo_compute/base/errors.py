"""Errors for users and providers, and exit codes of the command line."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Any


class ExitCode(IntEnum):
    """Stable exit codes of the command line."""

    OK = 0
    FAILED = 1  # an error without its own code below
    USAGE = 2  # invalid command line
    REFUSED = 3  # the market refused the request
    UNREACHABLE = 4  # no answer from the market, its storage or the chain
    JOB_UNSUCCESSFUL = 5  # the job ended without a trained model
    MISMATCH = 6  # a receipt, a block or a model differs from its hash or the chain
    DEVNET = 7  # the devnet is not running, or a part did not start
    INTERRUPTED = 130


class ZooError(Exception):
    """Base of errors: stable ``code``, readable ``detail`` and, if any, ``remedy``."""

    exit_code = ExitCode.FAILED

    def __init__(self, code: str, detail: str, *, remedy: str | None = None) -> None:
        super().__init__(f"{detail} [{code}]")
        self.code, self.detail, self.remedy = code, detail, remedy


class CodedError(Exception):
    """Failure that a caller handles by its stable ``code``."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class ApiError(ZooError):
    """The market refused a request (problem+json).

    Attributes:
        field: path of the invalid request field, if any.
        extra: other members of the problem document.
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
        has_field = field is None or detail.startswith(field)
        super().__init__(code, detail if has_field else f"{field}: {detail}", remedy=remedy)
        self.status, self.field, self.extra = status, field, extra or {}


class Unreachable(ZooError):
    """No usable answer: connection refused, timeout, or a server error after all retries."""

    exit_code = ExitCode.UNREACHABLE


class ConfigError(ZooError):
    """Invalid key, address or file from the user."""

    exit_code = ExitCode.USAGE


class JobUnsuccessful(ZooError):
    """The job ended without a settled, trained model."""

    exit_code = ExitCode.JOB_UNSUCCESSFUL


class Mismatch(ZooError):
    """Data differs from its hash, its signature or the chain."""

    exit_code = ExitCode.MISMATCH


@dataclass(frozen=True, slots=True)
class Finding:
    """Difference between an expected and a found value at ``where``; ``code`` is stable."""

    code: str
    where: str
    expected: str
    found: str


class DevnetError(ZooError):
    """The devnet cannot run the command."""

    exit_code = ExitCode.DEVNET
