"""Proofs of misconduct from referees' own signatures, sent to the contract at once.

The contract checks the signatures, so any other account can send them too (``zoo-compute dispute accuse``). The penalty
is burned.
"""

from collections.abc import Sequence

import structlog
from sqlalchemy.orm import Session

from market.chain.contracts.bindings import Disputes
from market.chain.contracts.codec import Call
from market.chain.service import request_call
from market.verification.disputes.models import Verdict
from zoo_protocol.messages import REPLAYED

MIN_MEMBERS = 3
"""Minimum committee for a proof of a wrong verdict."""

_log = structlog.get_logger(__name__)


def prove_equivocation(session: Session, known: Verdict, signature: str) -> None:
    """Prove that the referee of ``known`` signed the opposite too; no-op for an objection."""
    if known.reason not in REPLAYED:
        return
    pair = (known.signature, signature) if known.provider_correct else (signature, known.signature)
    _request(session, known, Disputes.proveContradiction(known.dispute_id, known.draw, *pair))


def dissenting_verdict(committee: Sequence[str], verdicts: Sequence[Verdict]) -> Verdict | None:
    """Return the verdict of one member that all others contradict, if there is one."""
    given = {verdict.referee: verdict for verdict in verdicts if verdict.reason in REPLAYED}
    if len(committee) < MIN_MEMBERS or len(given) < len(committee):
        return None
    for outcome in (True, False):
        signed = [verdict for verdict in given.values() if verdict.provider_correct is outcome]
        if len(signed) == 1:
            return signed[0]
    return None


def prove_wrong_verdict(session: Session, committee: Sequence[str], verdicts: Sequence[Verdict]) -> None:
    """Prove the dissenting verdict once all of ``committee`` (contract's order) have signed."""
    dissenting = dissenting_verdict(committee, verdicts)
    if dissenting is None:
        return
    signatures = {verdict.referee: verdict.signature for verdict in verdicts}
    call = Disputes.proveWrongVerdict(
        dissenting.dispute_id,
        not dissenting.provider_correct,
        committee,
        [signatures[referee] for referee in committee],
        list(committee).index(dissenting.referee),
    )
    _request(session, dissenting, call)


def _request(session: Session, verdict: Verdict, call: Call) -> None:
    _log.warning("referee_slash_requested", referee=verdict.referee, call=call["function"])
    key = f"{call['function']}:{verdict.dispute_id}:{verdict.draw}:{verdict.referee}"
    request_call(session, key=key, kind="punish_referee", subject=f"dispute:{verdict.dispute_id}", **call)
