"""What referees' own signatures prove against them, shown to the contract as soon as the market has them.

The market's word counts for nothing here: the contract checks the signatures, and so does whoever shows them without us
(``zoo-compute dispute accuse``). What a penalty takes is burned.
"""

from collections.abc import Sequence

import structlog
from sqlalchemy.orm import Session

from market.chain.contracts.bindings import Disputes
from market.chain.contracts.codec import Call
from market.chain.requests import request_call
from market.verification.disputes.models import Verdict
from zoo_protocol.messages import REPLAYED

LEAST_MEMBERS = 3
"""Of a committee of fewer nobody is shown to be wrong."""


_log = structlog.get_logger(__name__)


def of_contradiction(session: Session, known: Verdict, signature: str) -> None:
    """Show that the referee has signed both verdicts; nothing where what it signed first was an objection.

    Args:
        known: what it signed first.
        signature: its of the opposite verdict.
    """
    if known.reason not in REPLAYED:
        return
    pair = (known.signature, signature) if known.provider_correct else (signature, known.signature)
    _show(session, known, Disputes.proveContradiction(known.dispute_id, known.draw, *pair))


def dissenting_verdict(committee: Sequence[str], verdicts: Sequence[Verdict]) -> Verdict | None:
    """The verdict of the member that signed one while every other member signed the opposite, if there is one."""
    given = {verdict.referee: verdict for verdict in verdicts if verdict.reason in REPLAYED}
    if len(committee) < LEAST_MEMBERS or len(given) < len(committee):
        return None
    for outcome in (True, False):
        signed = [verdict for verdict in given.values() if verdict.provider_correct is outcome]
        if len(signed) == 1:
            return signed[0]
    return None


def prove_wrong_verdict(session: Session, committee: Sequence[str], verdicts: Sequence[Verdict]) -> None:
    """Show who signed against all others of its committee, once all have signed.

    Args:
        committee: in the order of the contract.
    """
    odd = dissenting_verdict(committee, verdicts)
    if odd is None:
        return
    signatures = {verdict.referee: verdict.signature for verdict in verdicts}
    call = Disputes.proveWrongVerdict(
        odd.dispute_id,
        not odd.provider_correct,
        committee,
        [signatures[referee] for referee in committee],
        list(committee).index(odd.referee),
    )
    _show(session, odd, call)


def _show(session: Session, verdict: Verdict, call: Call) -> None:
    _log.warning("a referee is to be punished", referee=verdict.referee, call=call["function"])
    key = f"{call['function']}:{verdict.dispute_id}:{verdict.draw}:{verdict.referee}"
    request_call(session, key=key, kind="punish_referee", subject=f"dispute:{verdict.dispute_id}", **call)
