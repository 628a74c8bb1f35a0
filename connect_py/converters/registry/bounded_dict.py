"""`BoundedDict`: remembers so much and no more."""

from __future__ import annotations

from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class BoundedDict(dict[K, V]):
    """A dict whose oldest entry goes when there is no room for another; set items one by one."""

    def __init__(self, capacity: int) -> None:
        """`capacity` entries at most, at least one."""
        super().__init__()
        self._capacity = capacity

    def __setitem__(self, key: K, value: V) -> None:
        if key not in self and len(self) >= self._capacity:
            del self[next(iter(self))]
        super().__setitem__(key, value)
