"""`Once`: tells a record that fails again, because a task went back and read it again, from a new
one."""

from __future__ import annotations

from typing import Final

from connect_py.api.record import RecordOrigin

REMEMBERED: Final = 100_000  # records; then it forgets, and one that comes again counts as new


class Once:
    """Remembers places of records. Used on one thread."""

    def __init__(self) -> None:
        self._seen: set[tuple[str, int, int]] = set()

    def first(self, origin: RecordOrigin) -> bool:
        """Whether this record was not asked about before; it is remembered from now on."""
        place = (origin.topic, origin.partition, origin.offset)
        if place in self._seen:
            return False
        if len(self._seen) >= REMEMBERED:
            self._seen.clear()
        self._seen.add(place)
        return True
