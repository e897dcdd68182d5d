"""Defence of disputes of this node's units, by their response deadlines.

Opened disputes are read from the contract's log, from the last final block on, so that a reorg hides none. Each is
recorded in a file until its end is final. The chain's state determines the response, so restarts and other senders are
harmless. The market is not involved.
"""

import json
import logging
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from zoo_compute.base.amounts import format_zen
from zoo_compute.base.errors import ZooError
from zoo_compute.chain.disputes import Dispute, DisputeChain, DisputePhase, Opened
from zoo_compute.chain.wallet import NOT_MINED, Block
from zoo_compute.node.disk.files import write_json
from zoo_compute.node.disk.traces import Inclusion, TraceLost, Traces

log = logging.getLogger(__name__)
LATE = "turn_over"

_BALANCE_SECONDS = 3600.0
_MAX_RAISES = 10  # of the fee, to nine times the usual one


@dataclass(frozen=True, slots=True)
class Finding:
    """State of a dispute.

    Attributes:
        problem: reason if the requested trace cannot be revealed.
        earlier: window that rejects the dispute, because its dispute period was over.
    """

    opened: Opened
    state: Dispute
    problem: str | None = None
    earlier: Inclusion | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the JSON form; ``until`` in Unix seconds."""
        return {
            "dispute_id": self.opened.dispute_id,
            "unit_id": self.opened.unit_id,
            "challenger": self.opened.challenger,
            "turn": self.state.phase.name.lower(),
            "until": self.state.until,
            "step": self.state.step if self.state.phase > DisputePhase.STEP else None,
            "problem": self.problem,
        }


class Disputes:
    """Disputes of one node's units.

    Args:
        directory: records of open disputes.
        interval: minimum seconds between two runs of ``watch``.

    Attributes:
        trace_retention_seconds: period after a commitment in which a unit can be disputed; at first None.
        now: Unix time for retention: the earlier of this machine's clock and the chain's, as of the last ``watch``.
            A clock that jumps ahead must not delete what can still be requested.
    """

    def __init__(
        self, directory: Path, traces: Traces, connect: Callable[[], DisputeChain], interval: float = 0.0
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._traces = traces
        self._connect = connect
        self._interval = interval
        self._next_at = self._balance_at = 0.0
        self._next_block: int | None = None
        self._looked_at: int | None = None
        self._unmined = 0
        self._logged: dict[str, Finding] = {}
        self._unwritten: dict[str, Opened] = {}
        self.trace_retention_seconds: int | None = None
        self.now = 0.0

    def watch(self) -> None:
        """Find new disputes and respond; no-op within ``interval`` or without a new block.

        Errors of single disputes are logged; the next run tries again.

        Raises:
            Unreachable: the chain does not answer; try again later.
        """
        if time.monotonic() < self._next_at:
            return
        self._next_at = time.monotonic() + self._interval
        latest = self.chain.latest_block()
        if latest.number == self._looked_at:
            return
        try:
            self._search(latest)
        finally:  # known disputes have deadlines even if the search failed
            done = self._respond_to_all(latest)
        if done:
            self._looked_at = latest.number
        self._forget_final(self.chain.final_block(), latest)
        self.trace_retention_seconds = self.chain.trace_retention_seconds
        self.now = min(time.time(), latest.timestamp)
        self._traces.tidy(self.trace_retention_seconds, self.now)
        self._warn_of_low_balance()

    def look(self) -> list[Finding]:
        """Return the state of every dispute that is open or ended recently. Raises Unreachable."""
        latest = self.chain.latest_block()
        self._search(latest)
        return [self._assess(opened, latest) for opened in self._noted()]

    def open_disputes(self) -> list[tuple[str, str]]:
        """Return (dispute id, unit id) of every open dispute, as of the last search."""
        return [(opened.dispute_id, opened.unit_id) for opened in self._noted()]

    @cached_property
    def chain(self) -> DisputeChain:
        return self._connect()

    def _search(self, latest: Block) -> None:
        """Record disputes opened since the last final block, at first one response period."""
        if self._next_block is None or self._next_block > latest.number + 1:  # first run, or a reorg
            self._next_block = self.chain.first_block_since(
                latest.timestamp - self.chain.terms.response_seconds, latest
            )
        known = {opened.dispute_id for opened in self._noted()} - self._unwritten.keys()
        for opened in [*self._unwritten.values(), *self.chain.opened(self._next_block, latest.number)]:
            if opened.dispute_id not in known:
                self._note(opened)

    def _note(self, opened: Opened) -> None:
        """Record a dispute; in memory while the disk refuses, because a response needs no disk."""
        try:
            write_json(self._file(opened), asdict(opened))
            self._unwritten.pop(opened.dispute_id, None)
        except OSError as error:
            log.error("dispute_not_recorded dispute=%s error=%s", opened.dispute_id, error)
            self._unwritten[opened.dispute_id] = opened

    def _forget_final(self, final: Block, searched: Block) -> None:
        """Advance the search to the final block; delete disputes whose end is final."""
        # Blocks newer than the last searched one can become final while disputes are answered.
        assert self._next_block is not None
        self._next_block = max(self._next_block, min(final.number, searched.number) + 1)
        for opened in self._noted():
            if opened.block <= final.number:
                phase = self.chain.dispute(opened.dispute_id, final).phase
                if phase is DisputePhase.NONE or (phase.is_end and not self._must_respond(phase)):
                    self._file(opened).unlink(missing_ok=True)
                    self._unwritten.pop(opened.dispute_id, None)
                    self._logged.pop(opened.dispute_id, None)

    def _respond_to_all(self, latest: Block) -> bool:
        done = True
        for opened in self._noted():
            try:
                self._respond(opened, latest)
            except ZooError as error:
                log.error("dispute_failed dispute=%s error=%s remedy=%s", opened.dispute_id, error, error.remedy or "")
                done = False
                if error.code == NOT_MINED:  # later transactions would queue behind it
                    self._unmined = min(self._unmined + 1, _MAX_RAISES)
                    break
        return done

    def _respond(self, opened: Opened, latest: Block) -> None:
        found = self._assess(opened, latest)
        self._log_change(found)
        state = found.state
        if state.phase is DisputePhase.TRACE and not state.convicted and found.problem is None:
            self._answer(found)
        elif state.phase is DisputePhase.STEP and not state.convicted and latest.timestamp > state.deadline:
            tx = self.chain.expire(opened.dispute_id)
            log.info("dispute_expired dispute=%s tx=%s", opened.dispute_id, tx)
        elif self._must_respond(state.phase):
            amount = self.chain.credits()
            log.info("credits_withdrawn zen=%s tx=%s", format_zen(amount), self.chain.withdraw())

    def _assess(self, opened: Opened, latest: Block) -> Finding:
        state = self.chain.dispute(opened.dispute_id, latest)
        if state.phase is not DisputePhase.TRACE:
            return Finding(opened, state)
        if latest.timestamp > state.deadline:
            return Finding(opened, state, LATE)
        earlier = self._traces.inclusion(opened.unit_id)
        if earlier is not None and self.chain.is_late(state, earlier.root):
            return Finding(opened, state, earlier=earlier)
        try:
            self._traces.find(opened.unit_id)
        except TraceLost as error:
            return Finding(opened, state, error.code)
        return Finding(opened, state)

    def _answer(self, found: Finding) -> None:
        percent = 100 * 5**self._unmined // 4**self._unmined
        if found.earlier is None:
            self._reveal(found.opened, percent)
        else:
            tx = self.chain.reject_late(found.opened.dispute_id, found.earlier.root, found.earlier.proof, percent)
            log.info("late_dispute_rejected dispute=%s tx=%s", found.opened.dispute_id, tx)
        self._unmined = 0

    def _reveal(self, opened: Opened, percent: int) -> None:
        trace = self._traces.find(opened.unit_id)
        tx = self.chain.reveal_trace(opened.dispute_id, trace.unit, trace.environment, trace.states, percent)
        place = trace.unit.jobId, trace.unit.round, trace.unit.slot
        log.info("trace_revealed dispute=%s job=%s round=%d replica=%d tx=%s", opened.dispute_id, *place, tx)

    def _must_respond(self, phase: DisputePhase) -> bool:
        return phase is DisputePhase.CHALLENGER_LOST and self.chain.credits() > 0

    def _warn_of_low_balance(self) -> None:
        if time.monotonic() < self._balance_at:
            return
        self._balance_at = time.monotonic() + _BALANCE_SECONDS
        held, needed = self.chain.native_balance()
        if held < needed:
            log.warning(
                "balance_low native_tokens=%s may_need=%s: disputes without a response are lost. Fund the wallet.",
                format_zen(held),
                format_zen(needed),
            )

    def _log_change(self, found: Finding) -> None:
        if self._logged.get(found.opened.dispute_id) == found:
            return
        self._logged[found.opened.dispute_id] = found
        level = logging.ERROR if found.problem or found.state.phase is DisputePhase.PROVIDER_LOST else logging.WARNING
        text = "dispute_state dispute=%s unit=%s: %s"
        log.log(level, text, found.opened.dispute_id, found.opened.unit_id, describe(found))

    def _noted(self) -> list[Opened]:
        found = list(self._unwritten.values())
        for path in self._directory.glob("*.json"):
            try:
                found.append(Opened(**json.loads(path.read_text())))
            except FileNotFoundError:  # another thread deleted it
                continue
            except (OSError, ValueError, TypeError) as error:  # a new search finds it again within its deadline
                log.error("dispute_unreadable path=%s error=%s", path, error)
        return sorted(found, key=lambda opened: (opened.block, opened.dispute_id))

    def _file(self, opened: Opened) -> Path:
        return self._directory / f"{opened.dispute_id}.json"


def describe(found: Finding) -> str:
    """Return a sentence on the state of a dispute."""
    until = "" if found.state.until is None else datetime.fromtimestamp(found.state.until, UTC).isoformat()
    if found.state.convicted and not found.state.phase.is_end:
        return "another dispute of the unit was upheld"
    if found.problem == LATE:
        return f"no trace was revealed by {until}: the unit's pay and half of the slashable balance can be taken now"
    if found.problem is not None:
        return f"the trace is due by {until} and is not available: {_PROBLEMS[found.problem]} [{found.problem}]"
    return {
        DisputePhase.NONE: "not on chain any more",
        DisputePhase.TRACE: f"opened by {found.opened.challenger}; the trace is due by {until}",
        DisputePhase.STEP: f"trace revealed; the challenger selects a segment by {until}",
        DisputePhase.DRAWING: f"segment {found.state.step} is disputed; the committee is not drawn yet",
        DisputePhase.JUDGING: f"the committee replays segment {found.state.step} until {until}",
        DisputePhase.PROVIDER_LOST: "upheld: the unit is not paid, and half of the slashable balance is forfeited",
        DisputePhase.CHALLENGER_LOST: "rejected: the challenger forfeits its bond",
        DisputePhase.UNDECIDED: "inconclusive: no slash, and the unit is not paid",
        DisputePhase.MOOT: "ended without a ruling: another dispute of the unit was upheld",
    }[found.state.phase]


_PROBLEMS = {
    "trace_unknown": "this state directory does not contain it",
    "trace_damaged": "its file does not match the signed root",
}
