"""Errors of disputes."""

from market.platform.http.problem import Conflict, MarketError, MissingResource


class DisputeNotFound(MissingResource):
    code = "dispute-not-found"
    title = "There is no such dispute"
    default_remedy = "Check the id. A new dispute is found once its block is final."


class CommitteeNotJudging(Conflict):
    """The draw is not the current one, its committee is unknown, or the dispute is over."""

    code = "committee-not-judging"
    title = "This is not the committee at work"
    default_remedy = "GET the dispute for its current draw. Retry once the draw's block is final."


class NotInCommittee(MarketError):
    status = 403
    code = "not-in-committee"
    title = "The verdict is not signed by a member of the committee"
    default_remedy = (
        "Sign Verdict(disputeId, draw, providerCorrect) in the domain ZooDisputes with a drawn referee's key. "
        "For a reason other than a replay result, sign Objection(disputeId, draw)."
    )


class VerdictDiffers(Conflict):
    code = "verdict-differs"
    title = "The referee has signed another verdict"
    default_remedy = "A referee's first verdict in a committee is final. Signing both outcomes costs its stake."


class StepNotNamed(Conflict):
    """No state is requested yet, or none is any more."""

    code = "step-not-named"
    title = "The dispute requests no state"
    default_remedy = "The start state is requested from the selection of the segment until the dispute ends."


class NotDisputedProvider(MarketError):
    status = 403
    code = "not-disputed-provider"
    title = "The disputed unit belongs to another provider"
