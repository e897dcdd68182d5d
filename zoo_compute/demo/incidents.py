"""Incidents of honest nodes during the demonstration's job, started by its events.

First, one node delays an upload until the market has closed the round without it. Then another node stops during a unit
and returns a round later. The incidents do not overlap: with four replicas, one without a node, a round needs three.
"""

import re
import signal
import time

from zoo_compute.base.models import Event
from zoo_compute.devnet import processes
from zoo_compute.devnet.adversaries import delayed_upload
from zoo_compute.devnet.stack import DELAYED_NODE
from zoo_compute.devnet.state import StateDirectory
from zoo_compute.node.work.inputs import MODEL_MADE
from zoo_compute.terminal.output import print_note

LEAVER = "provider-3"
DELAYED_FROM_ROUND = 1  # first round, from 0, with a delayed unit
ROUNDS_STOPPED = 1

MAX_STOPPED_SECONDS = 20.0
"""Time limit for the absence on a slow machine: a sampled state must be revealed within four leases."""

_LEAVING_SECONDS = 8.0
_MODEL_MADE = re.compile(re.sub("%d", r"(\\d+)", MODEL_MADE))


class Incidents:
    """Starts and ends the incidents of a devnet's nodes.

    Attributes:
        delayed: round, from 0, of the delayed unit; None before it.
        left_after: completed rounds when the leaver stopped; None before it.
    """

    def __init__(self, state: StateDirectory, delayed_address: str, leaver_address: str) -> None:
        self.delayed: int | None = None
        self.left_after: int | None = None
        self._state = state
        self._delayed_address, self._leaver_address = delayed_address, leaver_address
        self._done = 0  # rounds
        self._is_released = self._is_leaver_stopped = False
        self._left_at = 0.0
        self._log_before = 0  # bytes of the leaver's log when it left

    def process(self, event: Event) -> None:
        """Process the next event."""
        if event.kind == "round":
            self._done = event.data["round"]
        if self.delayed is None:
            self._record_delayed_unit(event)
        elif self._done <= self.delayed:
            return
        elif not self._is_released:
            self._is_released = True
            delayed_upload.release(self._state.node(DELAYED_NODE))
            print_note(f"round {self._done} closed without {DELAYED_NODE}, which delivers now")
        elif self.left_after is None:
            if event.kind == "step" and event.data["provider"] == self._leaver_address:
                self._leave()
        elif self._is_leaver_stopped and self._can_restart_leaver():
            self._is_leaver_stopped = False
            self._state.away(LEAVER).unlink()
            print_note(f"{LEAVER} returns")

    def _record_delayed_unit(self, event: Event) -> None:
        committed = event.kind == "unit" and event.data["status"] == "committed"
        if committed and event.data["provider"] == self._delayed_address and event.data["round"] >= DELAYED_FROM_ROUND:
            self.delayed = event.data["round"]

    def _can_restart_leaver(self) -> bool:
        assert self.left_after is not None  # it has left
        too_long = time.monotonic() - self._left_at >= MAX_STOPPED_SECONDS
        return too_long or self._done >= self.left_after + ROUNDS_STOPPED

    def catch_up_entries(self) -> list[dict[str, int]]:
        """Return the leaver's log entries on models built from updates since its stop."""
        log = self._state.log(LEAVER).read_bytes()[self._log_before :].decode(errors="replace")
        names = ("round", "from_round", "updates", "update_bytes", "model_bytes")
        return [dict(zip(names, map(int, found.groups()), strict=True)) for found in _MODEL_MADE.finditer(log)]

    def _leave(self) -> None:
        recorded = self._state.load()
        assert recorded is not None  # it runs
        part = recorded.parts[LEAVER]
        self._state.away(LEAVER).touch()
        processes.stop([(part.identity, signal.Signals(part.stop_signal))], _LEAVING_SECONDS)
        self._log_before = self._state.log(LEAVER).stat().st_size
        self.left_after, self._is_leaver_stopped, self._left_at = self._done, True, time.monotonic()
        print_note(f"{LEAVER} has stopped")
