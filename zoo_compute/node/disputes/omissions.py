"""Omission claims: verify that acknowledged commitments were included in time.

The contracts decide at one final block. The market provides only the proof of inclusion, which it cannot forge: the
root must be on chain by the acknowledged deadline.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any

from zoo_compute.base.errors import ApiError, Unreachable, ZooError
from zoo_compute.chain.omissions import ClaimState, OmissionChain, Terms
from zoo_compute.chain.wallet import Block
from zoo_compute.client.http import Connection
from zoo_compute.node.disk.traces import Inclusion, Traces
from zoo_compute.node.work.acknowledgements import Journal, StoredAcknowledgement
from zoo_protocol import merkle
from zoo_protocol.hashing import from_hex

log = logging.getLogger(__name__)


class Status(StrEnum):
    """Status of an acknowledgement."""

    WAITING = "waiting"  # the deadline is in the future
    INCLUDED = "included"  # the leaf is in a window that was committed in time
    OMITTED = "omitted"  # the deadline passed without such a window
    UNANSWERED = "unanswered"  # the deadline passed, and the market does not answer
    CLAIMED = "claimed"  # claimed on chain; the operator can still respond
    DUE = "due"  # the operator did not respond in time
    COMPENSATED = "compensated"
    ANSWERED = "answered"  # the operator proved inclusion: the claim's stake is forfeited
    EXPIRED = "expired"  # the claim period is over


@dataclass(frozen=True, slots=True)
class Finding:
    """Status of an acknowledgement.

    ``until``: its deadline (Unix); ``over``: final; ``window``: of the commitment.
    """

    acknowledgement: StoredAcknowledgement
    status: Status
    until: int | None = None
    over: bool = False
    window: Inclusion | None = None

    def as_json(self) -> dict[str, Any]:
        stored = self.acknowledgement
        return {
            "unit_id": stored.unit_id,
            "job_id": stored.unit.jobId,
            "round": stored.unit.round,
            "slot": stored.unit.slot,
            "include_by": stored.include_by,
            "status": self.status,
            "until": self.until,
        }


@dataclass(eq=False)
class Omissions:
    """Acknowledgements of one node. ``interval``: minimum seconds between two runs of ``watch``."""

    journal: Journal
    traces: Traces
    connection: Connection
    connect: Callable[[], OmissionChain]
    interval: float = 0.0
    _next_at: float = field(default=0.0, init=False)

    def watch(self) -> None:
        """Assess acknowledgements, claim omissions, delete final ones; no-op within ``interval``.

        Raises:
            Unreachable: the chain does not answer; try again later.
        """
        if time.monotonic() < self._next_at:
            return
        self._next_at = time.monotonic() + self.interval
        for finding in self.look():
            try:
                self.act(finding)
            except ZooError as error:
                log.error(
                    "claim_failed unit=%s status=%s error=%s", finding.acknowledgement.unit_id, finding.status, error
                )

    def look(self) -> list[Finding]:
        """Return the status of every acknowledgement. Raises Unreachable: the chain does not answer."""
        acknowledgements = self.journal.all()
        if not acknowledgements:
            return []
        chain = self.chain
        final, latest, terms = chain.final_block(), chain.latest_block(), chain.terms()
        return [self._assess(stored, final, latest, terms) for stored in acknowledgements]

    def act(self, finding: Finding, *, at_once: bool = False) -> str | None:
        """Claim an omission, resolve a claim or delete an acknowledgement; return any hash.

        While the market does not answer, a claim waits for half of the claim period. The operator takes the claim's
        stake if it proves inclusion.

        Args:
            at_once: do not wait.

        Raises:
            ZooError: the contract refuses, or a transaction fails.
        """
        stored, status = finding.acknowledgement, finding.status
        tx: str | None = None
        if status is Status.OMITTED or (status is Status.UNANSWERED and (at_once or self._waited_enough(stored))):
            tx = self.chain.open_claim(stored.unit, stored.include_by, stored.signature)
            log.error("omission_claimed unit=%s tx=%s", stored.unit_id, tx)
        elif status is Status.DUE:
            tx = self.chain.resolve(stored.unit_id)
            log.info("omission_compensated unit=%s tx=%s", stored.unit_id, tx)
        if finding.window is not None:
            self.traces.keep_inclusion(stored.unit_id, finding.window)
        if finding.over:
            level = _LEVELS.get(status, logging.DEBUG)
            log.log(level, "acknowledgement_closed unit=%s status=%s", stored.unit_id, status)
            self.journal.drop(stored)
        return tx

    @cached_property
    def chain(self) -> OmissionChain:
        return self.connect()

    def _assess(self, stored: StoredAcknowledgement, final: Block, latest: Block, terms: Terms) -> Finding:
        state, deadline = self.chain.claim_state(stored.unit_id, latest)
        if state is ClaimState.OPEN:
            return Finding(stored, Status.DUE if latest.timestamp > deadline else Status.CLAIMED, deadline)
        if state is not ClaimState.NONE:
            status = Status.COMPENSATED if state is ClaimState.COMPENSATED else Status.ANSWERED
            return Finding(stored, status, over=self.chain.claim_state(stored.unit_id, final)[0] is state)
        answered, window, included_at = self._inclusion(stored, final)
        if included_at is not None and included_at <= stored.include_by:
            return Finding(stored, Status.INCLUDED, over=True, window=window)
        if final.timestamp <= stored.include_by:
            return Finding(stored, Status.WAITING, stored.include_by)
        end = stored.include_by + terms.claim_period
        if latest.timestamp > end:
            return Finding(stored, Status.EXPIRED, over=True)
        return Finding(stored, Status.OMITTED if answered else Status.UNANSWERED, end)

    def _inclusion(self, stored: StoredAcknowledgement, final: Block) -> tuple[bool, Inclusion | None, int | None]:
        """Return whether the market answered, its window, and when that was final on chain."""
        try:
            shown: Any = self.connection.get(f"/v1/commitments/{stored.unit_id}")
        except ApiError as error:
            return error.code == "commitment-not-found", None, None
        except Unreachable:
            return False, None, None
        try:
            window = Inclusion(str(shown["window_root"]), list(shown["proof"]))
            proof = [from_hex(node) for node in window.proof]
            proven = merkle.verify(from_hex(window.root), from_hex(stored.unit_id), proof)
        except (KeyError, TypeError, ValueError, AttributeError):  # no window yet, or malformed
            return True, None, None
        return True, window, self.chain.committed_at(window.root, final) if proven else None

    def _waited_enough(self, stored: StoredAcknowledgement) -> bool:
        return self.chain.time() > stored.include_by + self.chain.terms().claim_period // 2


_LEVELS = {Status.COMPENSATED: logging.INFO, Status.ANSWERED: logging.ERROR, Status.EXPIRED: logging.WARNING}
