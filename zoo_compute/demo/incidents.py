"""What happens to honest nodes while the demonstration's job is trained, one after another and steered by its events.

One node is held up between its commitment and its upload until the market has closed the round without it. Then
another one is stopped in the midst of a unit, and comes back two rounds later. They never happen together: with four
slots, of which one may be without a node, a round needs the three others.
"""

import re
import signal
import time

from zoo_compute.base.models import Event
from zoo_compute.devnet import processes
from zoo_compute.devnet.cheats import delayed_upload
from zoo_compute.devnet.stack import HELD_UP_NODE
from zoo_compute.devnet.state import StateDirectory
from zoo_compute.node.work.inputs import MADE
from zoo_compute.terminal.output import note

LEAVER = "provider-3"

HELD_UP_FROM = 1
"""The round, counted from 0, whose unit is held up; a later one if the node was given none of it."""

ROUNDS_AWAY = 2

LONGEST_AWAY_SECONDS = 20.0
"""On a slow machine it comes back earlier: what it delivered before may be drawn meanwhile, and who cannot show that
within four leases loses stake (decision 22)."""

_LEAVING_SECONDS = 8.0
_MADE = re.compile(re.sub("%d", r"(\\d+)", MADE))


class Incidents:
    """Does to the nodes of a devnet what the events of its job make due.

    Attributes:
        held_up: the round, counted from 0, of the unit that was held up; None before that.
        left_after: how many rounds were done when the leaver was stopped; None before that.

    Args:
        held_up_address: of the node that is held up.
        leaver_address: of the node that leaves.
    """

    def __init__(self, state: StateDirectory, held_up_address: str, leaver_address: str) -> None:
        self.held_up: int | None = None
        self.left_after: int | None = None
        self._state = state
        self._held_up_address, self._leaver_address = held_up_address, leaver_address
        self._done = 0  # rounds
        self._is_released = self._is_away = False
        self._left_at = 0.0
        self._log_before = 0  # bytes of the leaver's log when it had left

    def see(self, event: Event) -> None:
        """Take the next event in."""
        if event.kind == "round":
            self._done = event.data["round"]
        if self.held_up is None:
            self._note_held_up(event)
        elif self._done <= self.held_up:
            return
        elif not self._is_released:
            self._is_released = True
            delayed_upload.release(self._state.node(HELD_UP_NODE))
            note(f"round {self._done} was closed without {HELD_UP_NODE}, which delivers now")
        elif self.left_after is None:
            if event.kind == "step" and event.data["provider"] == self._leaver_address:
                self._leave()
        elif self._is_away and self._has_been_away_long_enough():
            self._is_away = False
            self._state.away(LEAVER).unlink()
            note(f"{LEAVER} comes back")

    def _note_held_up(self, event: Event) -> None:
        committed = event.kind == "unit" and event.data["status"] == "committed"
        if committed and event.data["provider"] == self._held_up_address and event.data["round"] >= HELD_UP_FROM:
            self.held_up = event.data["round"]

    def _has_been_away_long_enough(self) -> bool:
        assert self.left_after is not None  # it has left
        too_long = time.monotonic() - self._left_at >= LONGEST_AWAY_SECONDS
        return too_long or self._done >= self.left_after + ROUNDS_AWAY

    def caught_up(self) -> list[dict[str, int]]:
        """What the leaver logged of each model that it made from updates since it had left, in order: the model's
        round, that of the model which it had, how many updates, their bytes, and the bytes of the model."""
        log = self._state.log(LEAVER).read_bytes()[self._log_before :].decode(errors="replace")
        names = ("round", "from_round", "updates", "update_bytes", "model_bytes")
        return [dict(zip(names, map(int, found.groups()), strict=True)) for found in _MADE.finditer(log)]

    def _leave(self) -> None:
        """Stop the leaver. It gives back what it works on; the job goes on without."""
        recorded = self._state.load()
        assert recorded is not None  # it runs
        part = recorded.parts[LEAVER]
        self._state.away(LEAVER).touch()
        processes.stop([(part.identity, signal.Signals(part.stop_signal))], _LEAVING_SECONDS)
        self._log_before = self._state.log(LEAVER).stat().st_size
        self.left_after, self._is_away, self._left_at = self._done, True, time.monotonic()
        note(f"{LEAVER} has left")
