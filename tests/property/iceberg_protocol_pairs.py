"""Changed keys in the simulated world: what the engine makes of the halves that a cycle has staged.

A row of a merge table has a value that only full writes send. The insert under a new key does not
send it: it is that of the old key's row, as it stood when the delete of it was made.
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
    """What a snapshot keeps of a pair of which one half was read."""

    half: Half
    pair: str
    value: Value | None = None  # of the row that was deleted


class DeleteUnreadError(Exception):
    """An insert is staged whose delete is not there, though its task had waited for it."""


class Cycle:
    """The staged files of one attempt, on one head."""

    def __init__(
        self, head: Mapping[str, Last], opened: Sequence[OpenHalf], *, by_key: bool = False
    ) -> None:
        """`head`: the table's rows by key. `by_key`: a value is that of the old key's row in the
        table, of any life."""
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
        """By staged file the last change per key, with values; and what is to be kept with the
        commit.

        Raises: DeleteUnreadError.
        """
        states = {path: self._replay(rows) for path, rows in staged.items()}
        plan = match([*self._rows.values()], self._opened)
        if plan.unread:
            raise DeleteUnreadError
        known = dict(self._values)
        self._values |= {row: known.get(sources[-1][0]) for row, sources in plan.fills.items()}
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
        """The last change per key; that of an insert under a new key with its number in place of
        its value."""
        state: dict[str, Last] = {}
        touched: set[str] = set()
        for (topic, _, offset), row in rows:
            last: Last = (int(topic[1:]), offset)
            number = len(self._rows)
            if row.effect is Effect.LEAVE:
                known = state.get(row.key) if row.key in touched else self._head.get(row.key)
                self._rows[number] = self._delete(number, row, known)
            elif row.effect is Effect.ARRIVE:
                self._rows[number] = self._insert(number, row)
                last = (*last, number)
            row.apply(state, last)
            touched |= {*row.touched()}
        for last in state.values():
            if len(last) == 3 and isinstance(last[2], int):
                self._rows[last[2]] = replace(self._rows[last[2]], partial=True)
        return state

    def _delete(self, number: int, row: Row, known: Last | None) -> PairRow:
        if known is None:
            return PairRow(number, LACKING, Half.NOTHING, row.pair, (number,))
        if len(known) == 3 and isinstance(known[2], int):  # an insert of this cycle
            began = self._rows[known[2]]
            return PairRow(
                number, began.lacking, Half.DELETE, row.pair, (number,), begun_by=began.begun_by
            )
        self._values[number] = value_of(row.key, known)
        return PairRow(number, half=Half.DELETE, pair=row.pair, place=(number,))

    def _insert(self, number: int, row: Row) -> PairRow:
        half = Half.INSERT_ALONE if row.alone else Half.INSERT
        if self._by_key:
            known = self._head.get(row.old)
            self._values[number] = None if known is None else value_of(row.old, known)
        lacking = frozenset[str]() if self._by_key else LACKING
        return PairRow(number, lacking, half, row.pair, (number,), begun_by=(half, row.pair, 1))
