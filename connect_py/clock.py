"""Clocks. No other module reads the time, so tests can run without waiting."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Provides a monotonic clock for durations and a wall clock for timestamps."""

    def monotonic(self) -> float:
        """Return a time in seconds that never decreases. Only differences are meaningful."""

    def time_ms(self) -> int:
        """Return the number of milliseconds since the Unix epoch."""

    def sleep(self, seconds: float) -> None:
        """Block the calling thread for the specified time."""


# only available on Linux; on other systems, time spent in system suspend is not included
_BOOT_TIME: int | None = getattr(time, "CLOCK_BOOTTIME", None)


class SystemClock:
    """Reads the system clocks, which all processes on this machine share."""

    def monotonic(self) -> float:
        """Return a time that advances during system suspends, because leases expire then too."""
        return time.monotonic() if _BOOT_TIME is None else time.clock_gettime(_BOOT_TIME)

    def time_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
