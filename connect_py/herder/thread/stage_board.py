"""`StageBoard`: current activity of the herder, for errors of requests that time out."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from connect_py.clock import Clock
from connect_py.herder.herder import Stage


class StageBoard:
    """Stages in progress. Written by the deciding threads, read by any thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._stages: tuple[Stage, ...] = ()  # stages in progress, in order of their start
        self._last: Stage | None = None

    def current(self) -> Stage | None:
        """Return the innermost stage in progress, or else the last completed one."""
        stages = self._stages
        return stages[-1] if stages else self._last

    @contextmanager
    def stage(self, description: str) -> Iterator[None]:
        """Show a stage such as `reading to the end of the config topic` while the block runs."""
        current = Stage(description, self._clock.time_ms())
        with self._lock:
            self._stages = (*self._stages, current)
        try:
            yield
        finally:
            with self._lock:
                self._stages = tuple(stage for stage in self._stages if stage is not current)
                self._last = Stage(description, current.started_ms, self._clock.time_ms())
