"""Virtual time: actions run in the order of their times, then of their scheduling."""

from collections.abc import Callable
from heapq import heappop, heappush

Action = Callable[[], None]


class Timer:
    """One scheduled action, which can be cancelled."""

    __slots__ = ("_action",)

    def __init__(self, action: Action) -> None:
        self._action: Action | None = action

    def cancel(self) -> None:
        self._action = None

    def fire(self) -> bool:
        """Run the action once; return False if it ran before or was cancelled."""
        action, self._action = self._action, None
        if action is not None:
            action()
        return action is not None


class Clock:
    """Seconds since the start, and scheduled actions. ``events`` counts the actions that ran."""

    def __init__(self) -> None:
        self.now = 0.0
        self.events = 0
        self._coming: list[tuple[float, int, Timer]] = []
        self._asked = 0

    def after(self, seconds: float, action: Action) -> Timer:
        """Schedule an action in ``seconds``. Raises ValueError: ``seconds`` is negative."""
        if seconds < 0:
            raise ValueError(f"seconds is {seconds}; expected at least 0")
        timer = Timer(action)
        self._asked += 1
        heappush(self._coming, (self.now + seconds, self._asked, timer))
        return timer

    def run(self, over: Callable[[], bool]) -> None:
        """Run actions until ``over`` returns True or none is left."""
        while self._coming and not over():
            self.now, _, timer = heappop(self._coming)
            self.events += timer.fire()
