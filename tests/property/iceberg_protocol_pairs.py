"""Changed keys in the simulation: completion of the halves that a cycle has staged.

A row of a merge table has a value that only complete writes contain. The insert with a new key does
not contain it. It is the value of the row with the old key at the time of its delete.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from iceberg_protocol_storm import Effect, Row, RowId
from iceberg_protocol_tables import Last, Rows, Value, value_of

from connectors.iceberg.commit.key_pairs import PairRow, match
from connectors.iceberg.staging.staged_changes import Half

LACKING = frozenset({"value"})


@dataclass(frozen=True, slots=True)
class OpenHalf:
    """Half of a pair, stored in a snapshot until the other half is read."""

    half: Half
    pair: str
    value: Value | None = None  # of the deleted row


class DeleteUnreadError(Exception):
    """A staged insert has no delete, although its task waited for it."""


class Cycle:
    """Staged files of one attempt on one head."""

    def __init__(
        self, head: Mapping[str, Last], opened: Sequence[OpenHalf], *, by_key: bool = False
    ) -> None:
        """Create a cycle.

        Args:
            head: The rows of the table by key.
            opened: The open halves of earlier cycles.
            by_key: True if the current row with the old key has the value (rule 30 disabled).
        """
        self._head = head
        self._opened = [
            PairRow(-1 - n, half=each.half, pair=each.pair, place=(n,))
            for n, each in enumerate(opened)
        ]
        self._values: dict[int, Value | None] = {
            -1 - n: each.value for n, each in enumerate(opened)
        }
        self._by_key = by_key
        self._rows: dict[int, PairRow] = {}

    def complete(
        self, staged: Mapping[str, Sequence[tuple[RowId, Row]]]
    ) -> tuple[dict[str, Rows], list[OpenHalf]]:
        """Return the last change per key by staged file, and the halves to store with the commit.

        Raises:
            DeleteUnreadError: A staged insert has no delete.
        """
        states = {path: self._replay(rows) for path, rows in staged.items()}
        plan = match([*self._rows.values()], self._opened)
        if plan.unread:
            raise DeleteUnreadError
        values = dict(self._values)
        self._values |= {row: values.get(sources[-1][0]) for row, sources in plan.fills.items()}
        halves = {each.row: each for each in (*self._opened, *self._rows.values())}
        opened = [OpenHalf(Half(half), pair) for half, pair in plan.open_inserts]
        for row in plan.open_deletes:
            pair, half = halves[row].pair, halves[row].half
            assert pair is not None
            assert half is not None
            opened.append(OpenHalf(Half(half), pair, self._values.get(row)))
        return {
            path: tuple((key, self._filled(last)) for key, last in state.items())
            for path, state in states.items()
        }, opened

    def _filled(self, last: Last) -> Last:
        return (
            last
            if len(last) == 2 or not isinstance(last[2], int)
            else (*last[:2], self._values.get(last[2]))
        )

    def _replay(self, rows: Sequence[tuple[RowId, Row]]) -> dict[str, Last]:
        """Return the last change per key. An insert with a new key has a number as value."""
        state: dict[str, Last] = {}
        touched: set[str] = set()
        for (topic, _, offset), row in rows:
            last: Last = (int(topic[1:]), offset)
            number = len(self._rows)
            if row.effect is Effect.LEAVE:
                deleted = state.get(row.key) if row.key in touched else self._head.get(row.key)
                self._rows[number] = self._delete(number, row, deleted)
            elif row.effect is Effect.ARRIVE:
                self._rows[number] = self._insert(number, row)
                last = (*last, number)
            row.apply(state, last)
            touched |= {*row.touched()}
        for last in state.values():
            if len(last) == 3 and isinstance(last[2], int):
                self._rows[last[2]] = replace(self._rows[last[2]], partial=True)
        return state

    def _delete(self, number: int, row: Row, deleted: Last | None) -> PairRow:
        if deleted is None:
            return PairRow(number, LACKING, Half.NOTHING, row.pair, (number,))
        if len(deleted) == 3 and isinstance(deleted[2], int):  # inserted in this cycle
            insert = self._rows[deleted[2]]
            return PairRow(
                number, insert.lacking, Half.DELETE, row.pair, (number,), begun_by=insert.begun_by
            )
        self._values[number] = value_of(row.key, deleted)
        return PairRow(number, half=Half.DELETE, pair=row.pair, place=(number,))

    def _insert(self, number: int, row: Row) -> PairRow:
        half = Half.INSERT_ALONE if row.alone else Half.INSERT
        if self._by_key:
            last = self._head.get(row.old)
            self._values[number] = None if last is None else value_of(row.old, last)
        lacking = frozenset[str]() if self._by_key else LACKING
        return PairRow(number, lacking, half, row.pair, (number,), begun_by=(half, row.pair, 1))
