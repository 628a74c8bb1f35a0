"""The one place that asks what time it is, so that everything else can be tested without
waiting."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Two clocks: one to measure with, one to print."""

    def monotonic(self) -> float:
        """Seconds that never go back; differences only."""

    def time_ms(self) -> int:
        """Milliseconds since the epoch."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


# Linux's; where it is missing, sleep is not counted
_BOOT_TIME: int | None = getattr(time, "CLOCK_BOOTTIME", None)


class SystemClock:
    """The machine's clocks. All its processes see the same times."""

    def monotonic(self) -> float:
        """Also counts the time that the machine slept: a worker that slept has lost its lease."""
        return time.monotonic() if _BOOT_TIME is None else time.clock_gettime(_BOOT_TIME)

    def time_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
