"""Refusals of disputes; each code is stable and says what to do."""

from market.platform.http.problem import MarketError


class DisputeNotFound(MarketError):
    """No final block has it."""

    status = 404
    code = "dispute-not-found"
    title = "There is no such dispute"
    default_remedy = "Check the id; one that was opened just now is known once its block is final."


class CommitteeNotJudging(MarketError):
    """The draw is not the present one, its committee is not known yet, or the dispute is over."""

    status = 409
    code = "committee-not-judging"
    title = "This committee does not judge now"
    default_remedy = "GET the dispute: it says which draw is the present one. Try again once the draw's block is final."


class NotInCommittee(MarketError):
    """Who signed is no member."""

    status = 403
    code = "not-in-committee"
    title = "The verdict is not signed by a member of the committee"
    default_remedy = (
        "Sign Verdict(disputeId, draw, providerCorrect) in the domain ZooDisputes with a drawn referee's key; "
        "for another reason than what a replay gave, Objection(disputeId, draw), which is never for the provider."
    )


class VerdictDiffers(MarketError):
    """The referee signed something else before."""

    status = 409
    code = "verdict-differs"
    title = "The referee has signed another verdict"
    default_remedy = (
        "A referee judges once in a committee: what it signed first stays. Two contradicting verdicts cost its stake."
    )


class StepNotNamed(MarketError):
    """Nobody knows yet which state is wanted, or none is any more."""

    status = 409
    code = "step-not-named"
    title = "The dispute waits for no state"
    default_remedy = "The start state is wanted from when the step is named until the dispute ends."


class NotDisputedProvider(MarketError):
    """Only the provider says where its state is."""

    status = 403
    code = "not-disputed-provider"
    title = "The disputed unit is another provider's"
