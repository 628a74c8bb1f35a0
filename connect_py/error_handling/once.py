"""`Once`: distinguishes new records from records that fail again after a rewind."""

from __future__ import annotations

from typing import Final

from connect_py.api.record import RecordOrigin

# maximum number of stored locations; a full set is cleared, and repeated records then count as new
REMEMBERED: Final = 100_000


class Once:
    """A set of record locations. Used on one thread."""

    def __init__(self) -> None:
        self._locations: set[tuple[str, int, int]] = set()

    def first(self, origin: RecordOrigin) -> bool:
        """Return True if this record is new, and store its location."""
        location = (origin.topic, origin.partition, origin.offset)
        if location in self._locations:
            return False
        if len(self._locations) >= REMEMBERED:
            self._locations.clear()
        self._locations.add(location)
        return True
