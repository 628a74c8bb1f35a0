"""Byte strings from many messages in one block of memory."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Final, overload

NOTHING: Final = -1  # length of a null message


class JoinedBytes(Sequence["bytes | None"]):
    """The keys or values of a run of messages, concatenated.

    Reading `data` and `lengths` is faster than reading the items. `data` contains all items.
    `lengths` contains the length of each item as a 64-bit integer, or `NOTHING` for None.
    """

    __slots__ = ("_ends", "data", "lengths")

    data: bytes
    lengths: array[int]

    def __init__(self, data: bytes, lengths: array[int]) -> None:
        """Create a sequence. The lengths, except `NOTHING`, must add up to the length of `data`."""
        self.data = data
        self.lengths = lengths
        self._ends: list[int] | None = None

    @classmethod
    def of(cls, items: Sequence[bytes | None]) -> JoinedBytes:
        """Concatenate items. A `JoinedBytes` object is returned unchanged."""
        if isinstance(items, JoinedBytes):
            return items
        lengths = array("q", [NOTHING if item is None else len(item) for item in items])
        return cls(b"".join(filter(None, items)), lengths)

    def __len__(self) -> int:
        return len(self.lengths)

    @overload
    def __getitem__(self, index: int) -> bytes | None: ...

    @overload
    def __getitem__(self, index: slice) -> list[bytes | None]: ...

    def __getitem__(self, index: int | slice) -> bytes | list[bytes | None] | None:
        if isinstance(index, slice):
            return [self[row] for row in range(*index.indices(len(self)))]
        if self._ends is None:
            self._ends = list(accumulate(max(length, 0) for length in self.lengths))
        length = self.lengths[index]
        if length == NOTHING:
            return None
        end = self._ends[index]
        return self.data[end - length : end]

    def __iter__(self) -> Iterator[bytes | None]:
        data, start = self.data, 0
        for length in self.lengths:
            if length == NOTHING:
                yield None
            else:
                yield data[start : start + length]
                start += length

    def count(self, value: object) -> int:
        """Return the number of items that are equal to `value`."""
        return self.lengths.count(NOTHING) if value is None else sum(item == value for item in self)
