"""Virtual time: actions in the order of their times, those of one time in the order in which they were asked for."""

from collections.abc import Callable
from heapq import heappop, heappush

Action = Callable[[], None]


class Timer:
    """One action to come, unless it is cancelled first."""

    __slots__ = ("_action",)

    def __init__(self, action: Action) -> None:
        self._action: Action | None = action

    def cancel(self) -> None:
        self._action = None

    def fire(self) -> bool:
        """Act, once; False if there is nothing to do any more."""
        action, self._action = self._action, None
        if action is not None:
            action()
        return action is not None


class Clock:
    """Seconds since the start, and what is still to happen. ``events`` counts what happened."""

    def __init__(self) -> None:
        self.now = 0.0
        self.events = 0
        self._coming: list[tuple[float, int, Timer]] = []
        self._asked = 0

    def after(self, seconds: float, action: Action) -> Timer:
        """Act in so many ``seconds``.

        Raises:
            ValueError: that was in the past.
        """
        if seconds < 0:
            raise ValueError("nothing can be done in the past")
        timer = Timer(action)
        self._asked += 1
        heappush(self._coming, (self.now + seconds, self._asked, timer))
        return timer

    def run(self, over: Callable[[], bool]) -> None:
        """Let time pass until ``over`` or until nothing is to come."""
        while self._coming and not over():
            self.now, _, timer = heappop(self._coming)
            self.events += timer.fire()
