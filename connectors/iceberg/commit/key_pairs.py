"""Matches the two halves of each key-change pair.

If a primary key changes, Debezium emits a pair of events: the delete of the old key and the insert
of the new key. Each event is one half of the pair. A half is open until the other half is read.

If the insert lacks values, they are copied from the row of the old key. `match` returns a plan for
copying them. The plan contains no values. It depends only on row IDs, pair IDs, and the names of
missing columns.

A lifetime consists of the changes to a key between its insert and its delete (see `partial_rows`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from connectors.iceberg.staging.staged_changes import PLACED, Half

# keyed by row ID: the IDs of the rows that provide missing values, and the columns that each fills
Fills = Mapping[int, Sequence[tuple[int, frozenset[str]]]]


@dataclass(frozen=True, slots=True)
class PairRow:
    """A change that is half of a pair or is part of a lifetime that began with a pair's insert."""

    row: int  # row ID
    lacking: frozenset[str] = frozenset()  # columns without a value
    half: int | None = None  # a `Half` value; None if the change is not half of a pair
    pair: str | None = None  # ID of the pair
    place: tuple[object, ...] = ()  # sort key among halves with equal pair IDs
    partial: bool = False  # True if the row must be completed
    # the insert that began the lifetime: `Half` value, pair ID, and number among pairs with this ID
    begun_by: tuple[int, str, int] | None = None


@dataclass(slots=True)
class PairPlan:
    """Plan for the missing values and the open halves of a cycle."""

    fills: dict[int, list[tuple[int, frozenset[str]]]] = field(default_factory=dict)  # see `Fills`
    # columns that no row can fill, keyed by the ID of the row that must be completed
    unknown: dict[int, frozenset[str]] = field(default_factory=dict)
    # number of rows that lack values because the delete of their old key has not been read
    unread: int = 0
    # row IDs of deletes whose insert has not been read yet
    open_deletes: list[int] = field(default_factory=list)
    # half and pair ID of inserts whose delete has not been read yet
    open_inserts: list[tuple[int, str]] = field(default_factory=list)


def match(cycle: Sequence[PairRow], opened: Sequence[PairRow]) -> PairPlan:
    """Match deletes with inserts, and return the plan.

    Args:
        cycle: The rows of this cycle.
        opened: The open halves of earlier cycles. They precede the rows of this cycle.
    """
    deletes: Mapping[str, list[PairRow]] = defaultdict(list)
    inserts: Mapping[str, list[PairRow]] = defaultdict(list)
    old_inserts: dict[str, int] = defaultdict(int)
    for rows in (opened, cycle):
        for row in sorted(rows, key=lambda each: each.place):
            if row.pair is None or row.half is None:
                continue
            if row.half in (Half.DELETE, Half.NOTHING):
                deletes[row.pair].append(row)
            else:
                inserts[row.pair].append(row)
                old_inserts[row.pair] += rows is opened
    plan = PairPlan()

    def delete_of(row: PairRow) -> PairRow | None:
        """Return the delete of the pair whose insert began a row's lifetime, if it was read."""
        assert row.begun_by is not None
        _, pair, number = row.begun_by
        # The change may have been read twice, for example because offsets were altered. Prefer a
        # delete of an existing row.
        if pair.endswith(PLACED):
            return min(deletes[pair], key=lambda each: each.half == Half.NOTHING, default=None)
        index = old_inserts[pair] + number - 1
        return deletes[pair][index] if index < len(deletes[pair]) else None

    def fill(row: PairRow) -> frozenset[str]:
        """Plan how to fill a row's missing values. Return the columns that no row can fill."""
        current, lacking, visited = row, row.lacking, {row.row}
        while lacking and current.begun_by is not None:
            image = delete_of(current)
            if image is None and current.begun_by[0] == Half.INSERT:
                plan.unread += 1
            if image is None or image.half == Half.NOTHING or image.row in visited:
                break
            visited.add(image.row)
            if columns := lacking - image.lacking:
                plan.fills.setdefault(row.row, []).append((image.row, columns))
            current, lacking = image, lacking & image.lacking
        return lacking

    for row in cycle:
        if row.partial and row.lacking and (columns := fill(row)):
            plan.unknown[row.row] = columns
    for pair in {**deletes, **inserts}:
        matched = min(len(deletes[pair]), len(inserts[pair]))
        # a pair with a unique ID has two halves, even if a half was read several times
        rest = slice(matched, None) if not pair.endswith(PLACED) else slice(0, 0 if matched else 1)
        for row in deletes[pair][rest]:
            plan.open_deletes.append(row.row)
            fill(row)
        plan.open_inserts += [(row.half or 0, pair) for row in inserts[pair][rest]]
    return plan
