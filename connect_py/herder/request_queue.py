"""`RequestQueue`: what the herder thread has been asked to do, now or later."""

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
    number: int  # requests that are due at the same time run in the order they came
    action: Callable[[], None] = field(compare=False)


class RequestQueue:
    """Actions by the time they are due. Filled by any thread, emptied by one."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._entries: list[_Entry] = []
        self._numbers = itertools.count()
        self._condition = threading.Condition()
        self._woken = False

    def put(self, action: Callable[[], None], delay_seconds: float = 0.0) -> None:
        """Have `action` run on the herder's thread, at the earliest after the delay."""
        due = self._clock.monotonic() + delay_seconds if delay_seconds else 0.0
        with self._condition:
            heapq.heappush(self._entries, _Entry(due, next(self._numbers), action))
            self._condition.notify()

    def wake(self) -> None:
        """End a wait: there is something to look at that is no request."""
        with self._condition:
            self._woken = True
            self._condition.notify()

    def due(self) -> list[Callable[[], None]]:
        """Take what may run now, in order."""
        now = self._clock.monotonic()
        taken = []
        with self._condition:
            while self._entries and self._entries[0].due <= now:
                taken.append(heapq.heappop(self._entries).action)
        return taken

    def wait(self, seconds: float) -> None:
        """Return when something is due or `wake` was called, after `seconds` at the latest."""
        with self._condition:
            if self._entries:
                seconds = min(seconds, max(0.0, self._entries[0].due - self._clock.monotonic()))
            if not self._woken and seconds > 0:
                self._condition.wait(seconds)
            self._woken = False

    def drain(self) -> list[Callable[[], None]]:
        """Take everything, due or not."""
        with self._condition:
            taken = [entry.action for entry in sorted(self._entries)]
            self._entries.clear()
        return taken
