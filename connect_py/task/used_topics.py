"""`UsedTopics`: tells the worker which topics a task reads from or writes to."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from connect_py.clock import Clock

AGAIN_SECONDS: Final = 3.0


class UsedTopics:
    """Says so at the first use, and again every few seconds: a user may have the worker forget them
    at any time."""

    def __init__(self, tell: Callable[[str], None], clock: Clock) -> None:
        self._tell = tell
        self._clock = clock
        self._due: dict[str, float] = {}  # monotonic, when to say so again

    def use(self, topics: Iterable[str]) -> None:
        """A record of each of these topics was read, or is about to be written."""
        now = self._clock.monotonic()
        for topic in topics:
            if now >= self._due.get(topic, now):
                self._due[topic] = now + AGAIN_SECONDS
                self._tell(topic)
