"""Proofs of referee misconduct: equivocation, or a verdict against all others."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from zoo_compute.chain.disputes import DisputeChain
from zoo_protocol.messages import REPLAYED

WRONG_VERDICT, CONTRADICTION = 5, 6  # rows of the penalty table

_MIN_MEMBERS = 3  # the contract slashes no member of a smaller committee

Votes = Mapping[tuple[int, str], Mapping[bool, str]]
"""Signature of each signed verdict, by committee and signer."""


@dataclass(frozen=True, slots=True)
class MisconductProof:
    """Proof against one referee.

    Attributes:
        signatures: both signatures by verdict (equivocation), or those of all members by address.
        provider_correct: verdict of the other members.
    """

    draw: int
    referee: str
    offence: int
    signatures: Mapping[Any, str]
    provider_correct: bool = False


def votes(chain: DisputeChain, dispute_id: str, given: Iterable[Mapping[str, Any]]) -> Votes:
    """Return verdicts by recovered signer, without objections and foreign disputes."""
    found: dict[tuple[int, str], dict[bool, str]] = {}
    for one in given:
        if one.get("dispute_id", dispute_id) != dispute_id or one["reason"] not in REPLAYED:
            continue
        draw, correct = one["draw"], one["provider_correct"]
        signer = chain.signer(dispute_id, draw, correct, one["reason"], one["signature"])
        if signer is not None:
            found.setdefault((draw, signer), {})[correct] = one["signature"]
    return found


def prove_misconduct(found: Votes, draw: int, members: Sequence[str]) -> list[MisconductProof]:
    """Return what the verdicts prove.

    Args:
        draw, members: the newest committee; the contract stores no other one.
    """
    proven = [
        MisconductProof(number, signer, CONTRADICTION, signed)
        for (number, signer), signed in found.items()
        if len(signed) == 2
    ]
    for correct in (True, False):
        others = {
            member: found[draw, member][correct] for member in members if correct in found.get((draw, member), {})
        }
        odd = [member for member in members if member not in others]
        if len(members) < _MIN_MEMBERS or len(odd) != 1 or (draw, odd[0]) not in found:
            continue
        signatures = {**others, odd[0]: found[draw, odd[0]][not correct]}
        proven.append(MisconductProof(draw, odd[0], WRONG_VERDICT, signatures, correct))
    return proven
