"""`UsedTopics`: reports the topics that a task reads from or writes to."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from connect_py.clock import Clock

REPEAT_SECONDS: Final = 3.0


class UsedTopics:
    """Reports a topic at its first use and every few seconds while it is in use.

    Reports are repeated because a user may reset the worker's list of active topics at any time.
    """

    def __init__(self, report: Callable[[str], None], clock: Clock) -> None:
        self._report = report
        self._clock = clock
        self._due: dict[str, float] = {}  # monotonic time of the next report

    def use(self, topics: Iterable[str]) -> None:
        """Report topics for which a report is due.

        Call this method after reading records or before writing records.
        """
        now = self._clock.monotonic()
        for topic in topics:
            if now >= self._due.get(topic, now):
                self._due[topic] = now + REPEAT_SECONDS
                self._report(topic)
