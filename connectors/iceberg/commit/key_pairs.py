"""Which row of an old key has the values that an insert under a new key lacks: plain data in, a
plan out.

Of each row only its id, its pair and the names of the columns that it lacks are looked at, never a
value.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from connectors.iceberg.staging.staged_changes import PLACED, Half


@dataclass(frozen=True, slots=True)
class PairRow:
    """A change that is half of a pair, or that belongs to a life which began with one."""

    row: int  # its id
    lacking: frozenset[str] = frozenset()
    half: int | None = None
    pair: str | None = None
    place: tuple[object, ...] = ()  # orders the halves of equal pairs
    partial: bool = False  # to be completed
    # half, pair and number, among equal ones, of the life's first change
    begun_by: tuple[int, str, int] | None = None


@dataclass(slots=True)
class PairPlan:
    """What to do with these rows."""

    # By row: from which other rows it takes which columns.
    fills: dict[int, list[tuple[int, frozenset[str]]]] = field(default_factory=dict)
    # by row to complete: columns found nowhere
    unknown: dict[int, frozenset[str]] = field(default_factory=dict)
    # rows to complete, or to keep, that lack values of a row whose delete was not read
    unread: int = 0
    open_deletes: list[int] = field(default_factory=list)  # rows whose insert was not read yet
    # half and pair of those whose delete was not
    open_inserts: list[tuple[int, str]] = field(default_factory=list)


def match(cycle: Sequence[PairRow], opened: Sequence[PairRow]) -> PairPlan:
    """Find the pairs. `opened`: halves that earlier cycles left alone; each is older than those of
    this cycle."""
    deletes: Mapping[str, list[PairRow]] = defaultdict(list)
    inserts: Mapping[str, list[PairRow]] = defaultdict(list)
    before: dict[str, int] = defaultdict(int)
    for rows in (opened, cycle):
        for row in sorted(rows, key=lambda each: each.place):
            if row.pair is None or row.half is None:
                continue
            if row.half in (Half.DELETE, Half.NOTHING):
                deletes[row.pair].append(row)
            else:
                inserts[row.pair].append(row)
                before[row.pair] += rows is opened
    plan = PairPlan()

    def source(row: PairRow) -> PairRow | None:
        assert row.begun_by is not None
        _, pair, number = row.begun_by
        # the same change again, as after offsets were altered: the first saw its own row
        if pair.endswith(PLACED):
            return min(deletes[pair], key=lambda each: each.half == Half.NOTHING, default=None)
        place = before[pair] + number - 1
        return deletes[pair][place] if place < len(deletes[pair]) else None

    def fill(row: PairRow) -> frozenset[str]:
        """Plan the values of a row; returns the columns that no row has."""
        at, lacking, seen = row, row.lacking, {row.row}
        while (
            lacking
            and at.begun_by is not None
            and (found := source(at)) is not None
            and found.row not in seen
        ):
            if found.half == Half.NOTHING:
                break
            seen.add(found.row)
            if known := lacking - found.lacking:
                plan.fills.setdefault(row.row, []).append((found.row, known))
            at, lacking = found, lacking & found.lacking
        if (
            lacking
            and at.begun_by is not None
            and at.begun_by[0] == Half.INSERT
            and source(at) is None
        ):
            plan.unread += 1
        return lacking

    for row in cycle:
        if row.partial and row.lacking and (left := fill(row)):
            plan.unknown[row.row] = left
    for pair in {**deletes, **inserts}:
        both = min(len(deletes[pair]), len(inserts[pair]))
        first = slice(both, None) if not pair.endswith(PLACED) else slice(0, 0 if both else 1)
        for row in deletes[pair][first]:
            plan.open_deletes.append(row.row)
            fill(row)
        plan.open_inserts += [(row.half or 0, pair) for row in inserts[pair][first]]
    return plan
