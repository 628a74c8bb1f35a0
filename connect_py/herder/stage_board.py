"""`StageBoard`: what the herder thread is doing, for the texts of requests that time out."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from connect_py.clock import Clock
from connect_py.herder.herder import Stage


class StageBoard:
    """Written by the threads that decide, read by any."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._stages: tuple[Stage, ...] = ()  # those under way, the last one began last
        self._last: Stage | None = None

    def current(self) -> Stage | None:
        """The innermost stage under way, else the last one completed."""
        stages = self._stages
        return stages[-1] if stages else self._last

    @contextmanager
    def stage(self, description: str) -> Iterator[None]:
        """Say what is being done: `reading to the end of the config topic`."""
        begun = Stage(description, self._clock.time_ms())
        with self._lock:
            self._stages = (*self._stages, begun)
        try:
            yield
        finally:
            with self._lock:
                self._stages = tuple(stage for stage in self._stages if stage is not begun)
                self._last = Stage(description, begun.started_ms, self._clock.time_ms())
