"""`ImmediateReporter`: what reporters share that have nothing to wait for."""

from __future__ import annotations

from collections.abc import Mapping


class ImmediateReporter:
    """The part of an `ErrorReporter` besides `report`: a report is made, or handed on, before that returns."""

    def pending(self) -> int:
        """Nothing waits."""
        return 0

    def flush(self, timeout: float) -> bool:
        """Nothing waits."""
        return True

    def values(self) -> Mapping[str, float]:
        """Nothing by Connect's names, unless overridden."""
        return {}

    def close(self) -> None:
        """Nothing is held."""
