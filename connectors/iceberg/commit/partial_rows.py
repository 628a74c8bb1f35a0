"""Rows whose values the source did not send become whole rows, in Spark, by the changes of their
cycle.

The changes of a key, in the order of the source, fall into lives: a life ends with a delete, and
begins with the next insert. Within a life a value stays until a change brings another one. What no
change of the cycle brings is in the row of the table, for a life that was under way before the
cycle; or, for a life that began with a change of the key, in the row of the old key as it stood
when the key was changed.

Such a change is a pair: a delete that names the new key and an insert that names the old one, in
partitions of their own. Both have a text in common that is made of both keys and of their place in
the source; pairs with equal texts come in equal order. Half of a pair that was read alone is kept
in a file until the other half comes: the row as it stood, or the fact that its values were not
needed. The summary of each of our snapshots names that file. So does a property of the table, for
when others have expired our snapshots.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from connectors.iceberg.catalog.sql_names import literal, quoted
from connectors.iceberg.commit.cycle_order import LAST, placed
from connectors.iceberg.commit.cycle_table import CycleTable
from connectors.iceberg.commit.key_pairs import PairPlan, PairRow, match
from connectors.iceberg.conversion.types import ORDER
from connectors.iceberg.errors import PairUnreadError, TableUnsuitableError
from connectors.iceberg.protocol.ledger import Standing, group_of, look_up
from connectors.iceberg.protocol.table_metadata import TableMetadata
from connectors.iceberg.staging.cdc import Change
from connectors.iceberg.staging.staged_changes import (
    CHANGE,
    HALF,
    OFFSET,
    OPTIONAL,
    PAIR,
    PARTIAL,
    SEPARATOR,
    UNAVAILABLE,
    Half,
)
from connectors.iceberg.table.table import StagedFile, StagedKind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

    from connectors.iceberg.commit.cycle_order import CycleOrder

log = logging.getLogger(__name__)

# and the connect group id: summary member that names a file
OPEN_PAIRS: Final = "connect-py.open-pairs."
_LACKING: Final = "__lacking"  # names of the columns whose values are not known
_SENT: Final = "__sent"  # whether the change itself, or one before it in its life, brought a value
_DELETE: Final = "__delete"
# number of the life among those of its key in the cycle; 0: it was under way before
_LIFE: Final = "__life"
_FROM: Final = "__from_"  # before HALF, PAIR and RANK: those of the change that began the life
_RANK: Final = "__rank"  # among pairs that are equal
_CAME: Final = "__came"  # whether the change ends a change of the key
_IMAGE: Final = "__image"  # whether the row ends with a change of the key: what it was is kept
_ROW: Final = "__row"
_BASE: Final = "__base_"
_CONTEXT: Final = (
    1 << 63
) - 1  # the offset of changes that are no candidates: they come last in their partition
_FOR: Final = "__for"
_COLUMNS: Final = "__columns"
# else it marks a row that is not there
_KEPT: Final = f"({_SENT} OR NOT coalesce({OPTIONAL}, false))"
_NONE: Final = "cast(array() AS array<string>)"
_OF_DELETE: Final = int(Half.DELETE)
# halves whose other half never comes, as those of a topic that is not read
_MOST_OPEN: Final = 100_000


def open_pairs_key(property_key: str) -> str:
    """The summary member that names the file of open pairs, of the connector with this property."""
    return OPEN_PAIRS + group_of(property_key)


def open_pairs(metadata: TableMetadata, property_key: str, ref: str) -> str | None:
    """The file of the commit whose ledger the table has; None: no pair is open."""
    lookup, name = look_up(metadata.view(ref, property_key)), open_pairs_key(property_key)
    found: str | None = None
    if (snapshot := lookup.version.ledger_snapshot) is not None:
        found = metadata.snapshots[snapshot]["summary"].get(name)
    elif lookup.standing is Standing.EXPIRED:
        found = metadata.properties.get(name)
    return found or None


def open_pairs_property(
    metadata: TableMetadata, property_key: str, summary: Mapping[str, str]
) -> dict[str, str]:
    """Return the property to set with a commit that has this summary; an empty value: no pair is
    open."""
    name = open_pairs_key(property_key)
    known, now = metadata.properties.get(name, ""), summary.get(name, "")
    return {name: now} if now != known else {}


class CycleChanges:
    """For one attempt at a commit."""

    def __init__(
        self, cycle: CycleTable, files: Sequence[StagedFile], order: CycleOrder | None
    ) -> None:
        self._cycle = cycle
        self._files = files
        self._order = order
        self._names = cycle.metadata.column_names()
        self._keys = list(cycle.keys)
        self.unmatched = 0  # rows of which some value was found nowhere
        self.reads_table = False  # whether what came of it depends on what the table had
        self.summary: dict[str, str] = {}

    def complete(self) -> list[Any]:
        """Write whole rows; returns Java's data files.

        Raises:
            TableUnsuitableError: A required column would be null.
            PairUnreadError: The delete of a changed key was given up, after its insert was staged.
        """
        files = [file for file in self._files if file.kind is StagedKind.CHANGES]
        request, metadata = self._cycle.request, self._cycle.metadata
        before = (
            None
            if self._cycle.truncated
            else open_pairs(metadata, request.property_key, request.ref)
        )
        pairs = any(file.pairs for file in files)
        if before is not None and not pairs:
            self.summary = {open_pairs_key(request.property_key): before}
        if not pairs and not any(file.partial for file in files):
            return []
        self.reads_table = True
        rows = self._lives(self._whole(files), pairs=pairs).where(
            f"{PARTIAL} OR {_IMAGE} OR {_CAME}"
        )
        rows = self._from_table(
            rows.selectExpr("*", f"monotonically_increasing_id() AS {_ROW}")
        ).localCheckpoint()
        if pairs:
            return self._write(rows.where(PARTIAL), self._from_pairs(rows, before))
        self._report_unknown(self._count_unknown(rows.where(PARTIAL)))
        return self._write(rows.where(PARTIAL), None)

    # --- the changes of the cycle

    def _whole(self, files: Sequence[StagedFile]) -> DataFrame:
        """All changes that count, with the names of the columns that each lacks."""
        by_id = [
            text
            for number, name in self._cycle.metadata.names_by_id().items()
            for text in (str(number), name)
        ]
        names = f"map({', '.join(map(literal, by_id))})"
        ids = f"split(coalesce({UNAVAILABLE}, ''), '{SEPARATOR}')"
        lacking = (
            f"filter(transform({ids}, id -> try_element_at({names}, id)), name -> name IS NOT NULL)"
        )
        rows = placed(self._cycle.staged(files))
        rows = rows.selectExpr(
            "*", f"{lacking} AS {_LACKING}", f"{CHANGE} = {int(Change.DELETE)} AS {_DELETE}"
        )
        if self._order is None:
            return rows
        for kind in (StagedKind.ROWS, StagedKind.DELETES):  # of all partitions
            if others := [file for file in self._files if file.kind is kind]:
                context = placed(self._cycle.staged(others)).drop(OFFSET, PARTIAL)
                deletes = str(kind is StagedKind.DELETES).lower()
                context = context.selectExpr(
                    "*",
                    f"{_NONE} AS {_LACKING}",
                    f"{deletes} AS {_DELETE}",
                    f"{_CONTEXT} AS {OFFSET}",
                    f"false AS {PARTIAL}",
                )
                rows = rows.unionByName(context)
        return self._order.counting(rows)

    def _lives(self, whole: DataFrame, *, pairs: bool) -> DataFrame:
        """Each change with what was known of its row when it was made, and with where the rest may
        be."""
        keys = ", ".join(map(quoted, self._keys))
        # orders the changes of a key
        place = f"{'' if self._order is None else ORDER + ', '}{OFFSET}, {_DELETE} DESC"
        came, leaves = (
            f"coalesce({HALF} != {_OF_DELETE}, false)",
            f"coalesce({HALF} = {_OF_DELETE}, false)",
        )
        of_key = f"PARTITION BY {keys} ORDER BY {place}"
        until_now = "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
        number = f"row_number() OVER (PARTITION BY {PAIR}, {came} ORDER BY {place})"
        rows = whole.selectExpr("*", f"CASE WHEN {came} THEN {number} END AS {_RANK}")
        rows = rows.selectExpr(
            "*",
            f"coalesce(lag({_DELETE}) OVER ({of_key}), false) AS __again",
            f"coalesce(lag({_DELETE} OR {leaves}) OVER ({of_key}), false) AS __repeats",
        )
        begins = f"CASE WHEN {came} OR __again THEN 1 ELSE 0 END"
        rows = rows.selectExpr("*", f"sum({begins}) OVER ({of_key} {until_now}) AS {_LIFE}")
        of_life = f"(PARTITION BY {keys}, {_LIFE} ORDER BY {place} {until_now})"
        lacks = {name for file in self._files for name in self._lacked(file)}
        fillable = [
            n for n in self._names if n not in (*self._keys, ORDER) and (pairs or n in lacks)
        ]

        def known(name: str) -> str:
            sent = f"NOT {_DELETE} AND NOT array_contains({_LACKING}, {literal(name)})"
            return (
                f"last(CASE WHEN {sent} THEN struct({quoted(name)} AS v) END, true) OVER {of_life}"
            )

        sent = f"max(NOT {_DELETE} AND size({_LACKING}) < {len(fillable)}) OVER {of_life}"
        found = rows.selectExpr(
            "*",
            *(f"{known(name)} AS {quoted(_BASE + name)}" for name in fillable),
            *(f"first({name}) OVER {of_life} AS {_FROM}{name}" for name in (HALF, PAIR, _RANK)),
            f"{sent} AS {_SENT}",
        )
        missing = [
            f"CASE WHEN {quoted(_BASE + name)} IS NULL THEN {literal(name)} END"
            for name in fillable
        ]
        values = [
            f"{quoted(_BASE + n)}.v AS {quoted(n)}" if n in fillable else quoted(n)
            for n in self._names
        ]
        others = [
            HALF,
            PAIR,
            _RANK,
            OFFSET,
            _LIFE,
            _SENT,
            OPTIONAL,
            _FROM + HALF,
            _FROM + PAIR,
            _FROM + _RANK,
        ]
        partial = PARTIAL if self._order is None else f"{PARTIAL} AND coalesce({LAST}, false)"
        return found.selectExpr(
            *values,
            f"cast(array_compact(array({', '.join(missing)})) AS array<string>) AS {_LACKING}",
            *others,
            f"{partial} AS {PARTIAL}",
            f"{leaves} AND NOT __repeats AS {_IMAGE}",
            f"{came} AS {_CAME}",
        )

    def _lacked(self, file: StagedFile) -> list[str]:
        """Present names of the columns that rows of a file lack, without those that are gone."""
        ids, names = (
            self._cycle.metadata.column_ids(file.schema_id),
            self._cycle.metadata.names_by_id(),
        )
        return [names[ids[name]] for name in file.unavailable if ids.get(name) in names]

    # --- where the rest is

    def _from_table(self, rows: DataFrame) -> DataFrame:
        """Rows of lives that were under way before the cycle, filled from the table; `_SENT` where
        there was a row."""
        target = self._cycle.target
        filled = rows
        if target is not None:
            same = [f"{quoted(key)} = {quoted(_BASE + key)}" for key in self._keys]
            if self._order is not None:
                same.append(f"NOT coalesce({_BASE}{ORDER} > {ORDER}, false)")
            wanted = f"{_LIFE} = 0 AND size({_LACKING}) > 0"
            filled = self._filled(rows, self._cycle.spark.table(target), [], [wanted, *same])
        was_there = (
            f"CASE WHEN {_LIFE} > 0 OR {_SENT} THEN {_OF_DELETE} ELSE {int(Half.NOTHING)} END"
        )
        half = f"CASE WHEN {_IMAGE} THEN {was_there} WHEN {_CAME} THEN {HALF} END AS {HALF}"
        return filled.selectExpr(
            *(half if name == HALF else quoted(name) for name in filled.columns)
        )

    def _filled(
        self, rows: DataFrame, others: DataFrame, more: Sequence[str], conditions: Sequence[str]
    ) -> DataFrame:
        """Rows with the values that they lack from another row that fits. `more`: columns of others
        beside the table's.

        `conditions` name the columns of others with `_BASE` in front.
        """
        from pyspark.sql import functions as F  # noqa: N812 - its usual name

        named = [f"{quoted(name)} AS {quoted(_BASE + name)}" for name in [*self._names, *more]]
        base = others.selectExpr(*named, f"true AS {_BASE}")
        joined = rows.join(base, F.expr(" AND ".join(conditions)), "left").dropDuplicates([_ROW])
        given = _BASE + _COLUMNS if _COLUMNS in more else _LACKING
        values = {}
        for name in self._names:
            if name not in (*self._keys, ORDER):
                taken = f"{_BASE} AND array_contains({_LACKING}, {literal(name)})"
                taken += f" AND array_contains({given}, {literal(name)})"
                either = f"CASE WHEN {taken} THEN {quoted(_BASE + name)} ELSE {quoted(name)} END"
                values[name] = f"{either} AS {quoted(name)}"
        still = f"CASE WHEN {_BASE} THEN array_except({_LACKING}, {given}) ELSE {_LACKING} END"
        values[_LACKING] = f"{still} AS {_LACKING}"
        values[_SENT] = f"({_SENT} OR coalesce({_BASE}, false)) AS {_SENT}"
        return joined.selectExpr(*(values.get(name, quoted(name)) for name in rows.columns))

    # --- pairs

    def _from_pairs(self, rows: DataFrame, before: str | None) -> _Fills:
        """Match the halves; keeps those that are alone.

        Raises:
            PairUnreadError: See `complete`.
        """
        opened = None if before is None else self._read_open(before)
        known = (
            []
            if opened is None
            else [_pair_row(row) for row in opened.drop(*self._names).collect()]
        )
        begun = f"{_FROM}{HALF} != {_OF_DELETE}"
        wanted = f"{HALF} IS NOT NULL OR coalesce({begun}, false)"
        # the plan does not look at these columns
        plain = [name for name in self._names if name != ORDER]
        plan = match([_pair_row(row) for row in rows.where(wanted).drop(*plain).collect()], known)
        if plan.unread:
            raise PairUnreadError(self._cycle.request.table, plan.unread)
        others = rows.where(f"{PARTIAL} AND NOT coalesce({begun}, false)")
        self._report_unknown(Counter(plan.unknown.values()) + self._count_unknown(others))
        images = rows.where(f"{HALF} = {_OF_DELETE}").select(*map(quoted, self._names), _ROW)
        if opened is not None:
            images = images.unionByName(
                opened.where(f"{HALF} = {_OF_DELETE}").select(*map(quoted, self._names), _ROW)
            )
        fills = _Fills(images, plan.fills)
        self._keep_open(rows, opened, plan, fills)
        return fills

    def _planned(self, rows: DataFrame, fills: _Fills) -> DataFrame:
        """Rows with the values of others, as planned: of the first other of each, then of the
        second."""
        deepest = max((len(sources) for sources in fills.by_row.values()), default=0)
        for depth in range(deepest):
            planned = [
                f"({row}L, {sources[depth][0]}L, "
                f"array({', '.join(map(literal, sorted(sources[depth][1])))}))"
                for row, sources in fills.by_row.items()
                if depth < len(sources)
            ]
            plan = self._cycle.spark.sql(
                f"SELECT * FROM VALUES {', '.join(planned)} AS t({_FOR}, {_ROW}, {_COLUMNS})"
            )
            rows = self._filled(
                rows, fills.images.join(plan, _ROW), [_FOR, _COLUMNS], [f"{_ROW} = {_BASE}{_FOR}"]
            )
        return rows

    def _read_open(self, path: str) -> DataFrame | None:
        file = self._cycle.table.changes_at(path)
        if file is None:
            log.warning(
                "table %s: %s is gone, which held rows whose key was changed: clean-up of others "
                "has to spare it",
                self._cycle.request.table,
                path,
                extra={"action": "open_pairs_gone"},
            )
            return None
        return self._cycle.staged([file]).selectExpr("*", f"-{OFFSET} AS {_ROW}").localCheckpoint()

    def _keep_open(
        self, rows: DataFrame, opened: DataFrame | None, plan: PairPlan, fills: _Fills
    ) -> None:
        """Write the halves whose other half was not read yet, numbered in their order."""
        deletes, inserts = plan.open_deletes[-_MOST_OPEN:], plan.open_inserts[-_MOST_OPEN:]
        if not deletes and not inserts:
            return
        names = [*map(quoted, self._names), _ROW, PAIR, HALF]
        kept = self._planned(rows.where(_IMAGE), fills).selectExpr(*names)
        if opened is not None:
            kept = kept.unionByName(opened.selectExpr(*names))
        numbered = [f"({row}L, {number}L)" for number, row in enumerate(deletes, 1)]
        spark = self._cycle.spark
        if numbered:
            kept = kept.join(
                spark.sql(f"SELECT * FROM VALUES {', '.join(numbered)} AS t({_ROW}, {OFFSET})"),
                _ROW,
            )
        else:
            kept = kept.where("false").selectExpr("*", f"0L AS {OFFSET}")
        if inserts:
            alone = [
                f"({h}, {literal(p)}, {n}L)" for n, (h, p) in enumerate(inserts, len(deletes) + 1)
            ]
            made = spark.sql(
                f"SELECT * FROM VALUES {', '.join(alone)} AS t({HALF}, {PAIR}, {OFFSET})"
            )
            kept = kept.unionByName(made, allowMissingColumns=True)
        file = self._cycle.write_open_pairs(kept.localCheckpoint())
        self.summary = {open_pairs_key(self._cycle.request.property_key): str(file.location())}

    # --- the result

    def _write(self, rows: DataFrame, fills: _Fills | None) -> list[Any]:
        if fills is not None:  # lists in a plan that is written break Spark's optimizer
            rows = self._planned(rows, fills).localCheckpoint()
        return self._cycle.write(rows.where(_KEPT))

    def _count_unknown(self, rows: DataFrame) -> Counter[frozenset[str]]:
        """By the columns that they lack, how many of these rows lack some."""
        counted = rows.where(f"size({_LACKING}) > 0 AND {_KEPT}").groupBy(_LACKING).count()
        return Counter({frozenset(columns): count for columns, count in counted.collect()})

    def _report_unknown(self, unknown: Mapping[frozenset[str], int]) -> None:
        """`unknown`: how many rows lack these columns, whose values are nowhere."""
        self.unmatched = sum(unknown.values())
        if not unknown:
            return
        table = self._cycle.request.table
        for name in (
            field["name"] for field in self._cycle.metadata.schema["fields"] if field["required"]
        ):
            if lack := sum(count for columns, count in unknown.items() if name in columns):
                raise TableUnsuitableError(
                    table,
                    f"{lack} rows lack a value that the source did not send, for the required "
                    f"column {name}, and the table does not have these rows",
                )
        log.warning(
            "table %s: %d rows have values that the source did not send, and that the table does "
            "not have: they are null",
            table,
            self.unmatched,
            extra={"action": "values_unavailable", "table": table},
        )


@dataclass(frozen=True, slots=True)
class _Fills:
    """Rows of old keys, and which of them fill others."""

    images: DataFrame
    by_row: Mapping[int, Sequence[tuple[int, frozenset[str]]]]


def _pair_row(found: Row) -> PairRow:
    """A row of the cycle, or of the file of open pairs, as the plan looks at it."""
    row = found.asDict()
    begun = row.get(_FROM + HALF)
    return PairRow(
        row[_ROW],
        frozenset(row.get(_LACKING) or ()),
        row[HALF],
        row[PAIR],
        (row.get(ORDER) or "", row[OFFSET]),
        partial=bool(row.get(PARTIAL)),
        begun_by=None
        if begun in (None, _OF_DELETE)
        else (begun, row[_FROM + PAIR], row[_FROM + _RANK]),
    )
