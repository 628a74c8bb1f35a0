"""`RequestQueue`: queues immediate and delayed actions for the herder's thread."""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from connect_py.clock import Clock


@dataclass(order=True, slots=True)
class _Entry:
    due: float  # monotonic seconds
    number: int  # arrival number, which orders entries that are due at the same time
    action: Callable[[], None] = field(compare=False)


class RequestQueue:
    """Queue of actions ordered by due time. Any thread may add actions; one thread removes them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._entries: list[_Entry] = []
        self._numbers = itertools.count()
        self._condition = threading.Condition()
        self._woken = False

    def put(self, action: Callable[[], None], delay_seconds: float = 0.0) -> None:
        """Queue an action that the herder's thread runs after the delay has passed."""
        due = self._clock.monotonic() + delay_seconds if delay_seconds else 0.0
        with self._condition:
            heapq.heappush(self._entries, _Entry(due, next(self._numbers), action))
            self._condition.notify()

    def wake(self) -> None:
        """End the current or next `wait`, because the state has changed."""
        with self._condition:
            self._woken = True
            self._condition.notify()

    def due(self) -> list[Callable[[], None]]:
        """Remove the due actions and return them in order."""
        now = self._clock.monotonic()
        actions = []
        with self._condition:
            while self._entries and self._entries[0].due <= now:
                actions.append(heapq.heappop(self._entries).action)
        return actions

    def wait(self, seconds: float) -> None:
        """Wait until an action is due or `wake` is called, for at most `seconds`."""
        with self._condition:
            if self._entries:
                seconds = min(seconds, max(0.0, self._entries[0].due - self._clock.monotonic()))
            if not self._woken and seconds > 0:
                self._condition.wait(seconds)
            self._woken = False

    def drain(self) -> list[Callable[[], None]]:
        """Remove and return all actions, including those that are not due."""
        with self._condition:
            actions = [entry.action for entry in sorted(self._entries)]
            self._entries.clear()
        return actions
