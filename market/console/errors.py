"""Problems of the console."""

from market.platform.http.problem import MarketError


class SignInNeeded(MarketError):
    status = 401
    code = "console-sign-in-needed"
    title = "Sign in to see this page"
    default_remedy = "Sign in with your wallet. A session ends after an hour without a request."


class RoleMissing(MarketError):
    status = 403
    code = "console-role-missing"
    title = "Your wallet lacks the role for this page"
    default_remedy = "Sign in with a wallet that has the role, or ask an admin of the contracts for it."


class ForgedRequest(MarketError):
    """The request does not come from a page of the console in this session."""

    status = 403
    code = "console-request-forged"
    title = "The request does not come from this page"
    default_remedy = "Reload the page and try again."


class DevnetOnly(MarketError):
    status = 403
    code = "console-devnet-only"
    title = "This exists on a devnet only"
    default_remedy = "Sign in with your own wallet."
