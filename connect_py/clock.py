"""The only module that reads the time. Tests replace it to run without waiting."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Two clocks: one for durations, one for timestamps."""

    def monotonic(self) -> float:
        """Return seconds that never decrease; only differences are meaningful."""

    def time_ms(self) -> int:
        """Return milliseconds since the epoch."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


# exists on Linux; elsewhere, time in system sleep is not counted
_BOOT_TIME: int | None = getattr(time, "CLOCK_BOOTTIME", None)


class SystemClock:
    """The machine's clocks, which are the same in all processes."""

    def monotonic(self) -> float:
        """Return seconds, including system sleep: a worker that slept has lost its lease."""
        return time.monotonic() if _BOOT_TIME is None else time.clock_gettime(_BOOT_TIME)

    def time_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
