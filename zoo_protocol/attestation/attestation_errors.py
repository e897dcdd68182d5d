"""Refusals of TEE quotes and of GPU statements."""


class QuoteRefused(ValueError):
    """Refusal of a quote or statement.

    Attributes:
        code: stable: ``malformed``, ``unverified`` or ``unbound``.
        part: refused part: ``quote`` (of the environment, with its collateral) or ``gpu_statement``.
    """

    def __init__(self, code: str, message: str, part: str = "quote") -> None:
        super().__init__(message)
        self.code = code
        self.part = part
