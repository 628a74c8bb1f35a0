"""`StageBoard`: records the herder's current activity, which timeout errors report."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from connect_py.clock import Clock
from connect_py.herder.herder import Stage


class StageBoard:
    """Records the stages in progress, which are reported if a request times out. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._stages: tuple[Stage, ...] = ()  # stages in progress, in start order
        self._last: Stage | None = None

    def current(self) -> Stage | None:
        """Return the stage in progress that started last, or the last completed stage."""
        stages = self._stages
        return stages[-1] if stages else self._last

    @contextmanager
    def stage(self, description: str) -> Iterator[None]:
        """Record a stage, such as `reading the config topic`, while a `with` block runs."""
        current = Stage(description, self._clock.time_ms())
        with self._lock:
            self._stages = (*self._stages, current)
        try:
            yield
        finally:
            with self._lock:
                self._stages = tuple(stage for stage in self._stages if stage is not current)
                self._last = Stage(description, current.started_ms, self._clock.time_ms())
