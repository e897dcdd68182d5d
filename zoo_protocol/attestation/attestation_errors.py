"""Why a quote, or what comes with it, is refused."""


class QuoteRefused(ValueError):
    """It does not hold.

    Attributes:
        code: stable: ``malformed``, ``unverified`` or ``unbound``.
        part: what does not hold: ``quote`` (the environment's, with its collateral) or
            ``gpu_statement``.
    """

    def __init__(self, code: str, message: str, part: str = "quote") -> None:
        super().__init__(message)
        self.code = code
        self.part = part
