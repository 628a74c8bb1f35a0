"""Dict with a limited number of entries, for caches."""

from __future__ import annotations

from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class BoundedDict(dict[K, V]):
    """Dict that removes its oldest entry when it is full. Only item assignment checks the size."""

    def __init__(self, capacity: int) -> None:
        """Create a dict with at most `capacity` entries. `capacity` must be at least 1."""
        super().__init__()
        self._capacity = capacity

    def __setitem__(self, key: K, value: V) -> None:
        if key not in self and len(self) >= self._capacity:
            del self[next(iter(self))]
        super().__setitem__(key, value)
