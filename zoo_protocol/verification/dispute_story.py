"""Sentences on a dispute: detection, transactions, committee, penalty.

The demonstration and the web console tell the same story. Amounts are passed as text.
"""

from collections.abc import Mapping
from typing import Any

COMMITTED = "the commitments of all providers are fixed before the sampling seed is known"
ON_CHAIN = "These transactions prove the result without trust in the verifiers or the market:"
REFEREES = "Referees are drawn from all staked verifiers, never the provider, the payer or the market."
_STEPS = {
    "DisputeOpened": "{challenger} opens a dispute with a bond",
    "TraceShown": "the provider reveals the trace that it signed",
    "StepNamed": "{challenger} selects the first wrong segment",
    "CommitteeDrawn": "the contract draws a committee of referees by a block hash",
}
_UPHELD = "a quorum of referees upholds the dispute; the same transaction slashes the provider"
_REJECTED = "a quorum of referees finds the segment correct; the bond pays the provider and the referees"
_ENDINGS = {
    "provider_lost": "the provider missed its deadline, which upholds the dispute; the same transaction slashes it",
    "challenger_lost": "the dispute is rejected without a committee; the bond pays the provider",
    "undecided": "no committee signed in time: the dispute is inconclusive, and the unit is not paid",
    "moot": "another dispute of the unit was upheld, so this one is closed",
}
_REASONS = {
    "step_false": "my replay of the segment does not end in the provider's state",
    "step_correct": "my replay of the segment ends in the provider's state",
    "diverged": "my replay of the segment does not end in a finite state",
}


def detection(first_step: int, last_step: int) -> str:
    """Return the sentences before the list of the verifiers whose replay mismatched."""
    return (
        "After the signature, a block hash selected some segments for replay, among them the steps "
        f"{first_step} to {last_step}. These verifiers replayed them independently, without access to each other's "
        "results:"
    )


def step(event: str, arguments: Mapping[str, Any], challenger: str = "the market") -> str | None:
    """Return what a final event of the dispute means; None for an event that the story omits."""
    if event == "VerdictGiven":
        return _REJECTED if arguments["providerCorrect"] else _UPHELD
    words = _STEPS.get(event)
    return None if words is None else words.format(challenger=challenger)


def ending(outcome: str) -> str:
    """Return how a dispute ended without a verdict; ``outcome`` is its last status."""
    return _ENDINGS[outcome]


def verdict(provider_correct: bool | None, reason: str = "") -> str:
    """Return what a referee signed; ``provider_correct`` is None without a signature."""
    if provider_correct is None:
        return "had not signed yet when there was a quorum"
    return f"signed {'for' if provider_correct else 'against'} the provider: {_REASONS.get(reason, reason)}"


def division(to_challenger: str, to_referees: str, burned: str, challenger: str = "the market") -> str:
    """Return where the slashed stake went. Arguments are amounts as text."""
    return (
        f"Of the slashed stake, {to_challenger} cover {challenger}'s costs, {to_referees} pay the referees with a "
        f"signature, and {burned} are burned."
    )
