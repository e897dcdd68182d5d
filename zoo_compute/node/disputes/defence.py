"""Answering disputes of this node's units: whoever lets the turn pass loses, however right its work was.

New disputes are found by the contract's log, from the last final block on, so that none is missed where the chain's end
is reorganised. Each is noted in a file until a final block has its end; what the chain says of it decides what is done,
so a restart, or somebody else's answer, changes nothing. The market is not asked for anything.
"""

import json
import logging
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from zoo_compute.base.amounts import format_zen
from zoo_compute.base.errors import ZooError
from zoo_compute.chain.disputes import Dispute, DisputeChain, Opened, Turn
from zoo_compute.chain.wallet import NOT_MINED, Block
from zoo_compute.node.disk.durable_files import write_json
from zoo_compute.node.disk.traces import TraceLost, Traces

log = logging.getLogger(__name__)


LATE = "turn_over"


_COIN_SECONDS = 3600.0


_MOST_RAISES = 10  # to nine times the usual fee


@dataclass(frozen=True, slots=True)
class Finding:
    """A dispute and where it stands. ``problem``: why the trace that is asked for cannot be shown, if it cannot."""

    opened: Opened
    state: Dispute
    problem: str | None = None

    def as_json(self) -> dict[str, Any]:
        """For programs; ``until`` in Unix seconds."""
        return {
            "dispute_id": self.opened.dispute_id,
            "unit_id": self.opened.unit_id,
            "challenger": self.opened.challenger,
            "turn": self.state.turn.name.lower(),
            "until": self.state.until,
            "step": self.state.step if self.state.turn > Turn.STEP else None,
            "problem": self.problem,
        }


class Disputes:
    """The disputes of one node's units.

    Args:
        directory: where they are noted.
        traces: what is shown.
        connect: gives the chain; called when it is first needed.
        interval: seconds between two looks of ``watch``.

    Attributes:
        keep_seconds: for how long after its commitment a unit may be disputed; None until ``watch`` has learned it.
        now: Unix time by which that may be over, as ``watch`` last saw it: of this machine, or of the chain if that is
            earlier. A clock that jumps ahead must not have thrown away what is still asked for.
    """

    def __init__(
        self, directory: Path, traces: Traces, connect: Callable[[], DisputeChain], interval: float = 0.0
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._traces = traces
        self._connect = connect
        self._chain: DisputeChain | None = None
        self._interval = interval
        self._next_at = self._coin_at = 0.0
        self._next_block: int | None = None
        self._looked_at: int | None = None
        self._unmined = 0
        self._told: dict[str, Finding] = {}
        self._unwritten: dict[str, Opened] = {}
        self.keep_seconds: int | None = None
        self.now = 0.0

    def watch(self) -> None:
        """Look for new disputes, and do what is due in each; unless done a short while ago, or nothing is new.

        What fails is logged and tried again at the next look.

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
        finally:  # those that are known have deadlines, whatever became of the search
            done = self._attend_all(latest)
        if done:
            self._looked_at = latest.number
        self._move_on(self.chain.final_block(), latest)
        self.keep_seconds = self.chain.keep_seconds
        self.now = min(time.time(), latest.timestamp)
        self._traces.tidy(self.keep_seconds, self.now)
        self._warn_of_coin()

    def look(self) -> list[Finding]:
        """Every dispute that is not over, and those that ended lately, now. Raises Unreachable."""
        latest = self.chain.latest_block()
        self._search(latest)
        return [self._assess(opened, latest) for opened in self._noted()]

    def noted(self) -> list[tuple[str, str]]:
        """(dispute id, unit id) of every dispute that is not known to be over, as the last look left them."""
        return [(opened.dispute_id, opened.unit_id) for opened in self._noted()]

    @property
    def chain(self) -> DisputeChain:
        """The contract."""
        self._chain = self._chain or self._connect()
        return self._chain

    def _search(self, latest: Block) -> None:
        """Note what was opened since the last final block; at first since a turn ago: before, it is too late."""
        if self._next_block is None or self._next_block > latest.number + 1:  # or the chain was put back
            self._next_block = self.chain.first_block_since(latest.timestamp - self.chain.terms.turn_period, latest)
        known = {opened.dispute_id for opened in self._noted()} - self._unwritten.keys()
        for opened in [*self._unwritten.values(), *self.chain.opened(self._next_block, latest.number)]:
            if opened.dispute_id not in known:
                self._note(opened)

    def _note(self, opened: Opened) -> None:
        """In a file; while the disk refuses, in memory: the answer needs no disk, and a restart searches again."""
        try:
            write_json(self._file(opened), asdict(opened))
            self._unwritten.pop(opened.dispute_id, None)
        except OSError as error:
            log.error("dispute %s cannot be noted: %s", opened.dispute_id, error)
            self._unwritten[opened.dispute_id] = opened

    def _move_on(self, final: Block, searched: Block) -> None:
        """What a final block has is not searched again, and a dispute that ended there (or is gone) is forgotten.

        While disputes are answered, blocks can become final that are newer than the last that was searched.
        """
        assert self._next_block is not None
        self._next_block = max(self._next_block, min(final.number, searched.number) + 1)
        for opened in self._noted():
            if opened.block <= final.number:
                turn = self.chain.dispute(opened.dispute_id, final).turn
                if turn is Turn.NONE or (turn.is_end and not self._is_owed(turn)):
                    self._file(opened).unlink(missing_ok=True)
                    self._unwritten.pop(opened.dispute_id, None)
                    self._told.pop(opened.dispute_id, None)

    def _attend_all(self, latest: Block) -> bool:
        """Do what is due in every dispute; whether all of it worked."""
        done = True
        for opened in self._noted():
            try:
                self._attend(opened, latest)
            except ZooError as error:
                log.error("dispute %s: %s %s", opened.dispute_id, error, error.remedy or "")
                done = False
                if error.code == NOT_MINED:  # what was sent next would wait behind it
                    self._unmined = min(self._unmined + 1, _MOST_RAISES)
                    break
        return done

    def _attend(self, opened: Opened, latest: Block) -> None:
        found = self._assess(opened, latest)
        self._tell(found)
        state = found.state
        if state.turn is Turn.TRACE and not state.convicted and found.problem is None:
            self._show(opened)
        elif state.turn is Turn.STEP and not state.convicted and latest.timestamp > state.deadline:
            tx = self.chain.expire(opened.dispute_id)
            log.info("dispute %s: the challenger named no step in time; ended in %s", opened.dispute_id, tx)
        elif self._is_owed(state.turn):
            amount = self.chain.credits()
            log.info("withdrew %s ZEN that disputes brought, in %s", format_zen(amount), self.chain.withdraw())

    def _assess(self, opened: Opened, latest: Block) -> Finding:
        state = self.chain.dispute(opened.dispute_id, latest)
        if state.turn is not Turn.TRACE:
            return Finding(opened, state)
        if latest.timestamp > state.deadline:
            return Finding(opened, state, LATE)
        try:
            self._traces.find(opened.unit_id)
        except TraceLost as error:
            return Finding(opened, state, error.code)
        return Finding(opened, state)

    def _show(self, opened: Opened) -> None:
        trace = self._traces.find(opened.unit_id)
        percent = 100 * 5**self._unmined // 4**self._unmined
        tx = self.chain.show(opened.dispute_id, trace.unit, trace.environment, trace.states, percent)
        self._unmined = 0
        unit = trace.unit
        place = f"round {unit.round}, slot {unit.slot} of job {unit.jobId}"
        log.info("dispute %s: showed the trace of %s in %s", opened.dispute_id, place, tx)

    def _is_owed(self, turn: Turn) -> bool:
        return turn is Turn.CHALLENGER_LOST and self.chain.credits() > 0

    def _warn_of_coin(self) -> None:
        """Say in time that an answer could not be paid for."""
        if time.monotonic() < self._coin_at:
            return
        self._coin_at = time.monotonic() + _COIN_SECONDS
        held, needed = self.chain.coin()
        if held < needed:
            log.warning(
                "the wallet has %s of the chain's coin; to answer a dispute may cost %s. Unanswered ones are lost: "
                "send some.",
                format_zen(held),
                format_zen(needed),
            )

    def _tell(self, found: Finding) -> None:
        """Log where a dispute stands, once."""
        if self._told.get(found.opened.dispute_id) == found:
            return
        self._told[found.opened.dispute_id] = found
        level = logging.ERROR if found.problem or found.state.turn is Turn.PROVIDER_LOST else logging.WARNING
        log.log(level, "dispute %s of unit %s: %s", found.opened.dispute_id, found.opened.unit_id, describe(found))

    def _noted(self) -> list[Opened]:
        """Disputes that are not over, the oldest first: its turn ends first."""
        found = list(self._unwritten.values())
        for path in self._directory.glob("*.json"):
            try:
                found.append(Opened(**json.loads(path.read_text())))
            except FileNotFoundError:  # another thread has forgotten it meanwhile
                continue
            except (OSError, ValueError, TypeError) as error:  # one of a turn's time is found by a search again
                log.error("%s, which notes a dispute, cannot be read: %s", path, error)
        return sorted(found, key=lambda opened: (opened.block, opened.dispute_id))

    def _file(self, opened: Opened) -> Path:
        return self._directory / f"{opened.dispute_id}.json"


def describe(found: Finding) -> str:
    """Where a dispute stands, in words."""
    until = "" if found.state.until is None else datetime.fromtimestamp(found.state.until, UTC).isoformat()
    if found.state.convicted and not found.state.turn.is_end:
        return "the unit lost another dispute"
    if found.problem == LATE:
        return f"its trace was not shown by {until}: the unit, and half of all that is at risk, can be taken now"
    if found.problem is not None:
        return f"its trace is asked for by {until}, and cannot be shown: {_PROBLEMS[found.problem]} [{found.problem}]"
    return {
        Turn.NONE: "not on chain any more",
        Turn.TRACE: f"{found.opened.challenger} rejects it; its trace has to be shown by {until}",
        Turn.STEP: f"its trace was shown; the challenger has to name a step by {until}",
        Turn.DRAWING: f"the challenger rejects step {found.state.step}; a committee is to be drawn",
        Turn.JUDGING: f"a committee replays step {found.state.step} until {until}",
        Turn.PROVIDER_LOST: "lost: the unit is not paid, and half of all that was at risk is gone",
        Turn.CHALLENGER_LOST: "won: the challenger has lost its bond",
        Turn.UNDECIDED: "no committee ruled in time: nobody is punished, the unit is not paid",
        Turn.MOOT: "ended without a ruling: the unit lost another dispute",
    }[found.state.turn]


_PROBLEMS = {
    "trace_unknown": "this state directory has never held it, or has lost it",
    "trace_damaged": "its file does not lead to what was signed",
}
