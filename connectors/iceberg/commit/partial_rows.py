"""Uses Spark to complete rows with values that the source did not send.

In source order, the changes to a key form lifetimes. A lifetime ends with a delete, and the next
insert begins another lifetime. Within a lifetime, a value is valid until a change sets a new value.
A value that no change in the cycle sets is read from the row in the table if the lifetime began
before the cycle. If the lifetime began with a key change, the value is read from the row of the old
key, as of the key change.

If a primary key changes, Debezium emits a pair of events: a delete of the old key, which also
contains the new key, and an insert of the new key, which also contains the old key. Each event is
in its key's partition. The two events, called halves, get the same pair ID. It is derived
from both keys and, if known, from the position of the change in the source. Pairs with equal IDs
are read in the same order in both partitions.

A pair is open if only one of its halves has been read. The open-pairs file stores this half until
the other half is read. For a delete, it contains the image of the row, which is its content at the
time of the delete. For an insert, it records that the insert did not need any values from the
deleted row. The path of the file is in the summary of each snapshot that the sink creates. It is
also in a table property, in case other writers expire these snapshots (rule 31 of the commit
protocol).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from connect_py.plurals import pluralize
from connectors.iceberg.catalog.java_catalog import CHANGE_COLUMNS
from connectors.iceberg.catalog.sql_names import literal, quoted
from connectors.iceberg.commit.attempt import Attempt
from connectors.iceberg.commit.cycle_order import LAST, CycleOrder, with_files
from connectors.iceberg.commit.key_pairs import Fills, PairPlan, PairRow, match
from connectors.iceberg.conversion.types import ORDER
from connectors.iceberg.errors import PairUnreadError, TableUnsuitableError
from connectors.iceberg.protocol.ledger import Standing, group_of, look_up
from connectors.iceberg.protocol.table_metadata import TableMetadata
from connectors.iceberg.staging.change_events import Change
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

log = logging.getLogger(__name__)

# prefix of the summary entry with the path of the open-pairs file; the connect group ID follows
OPEN_PAIRS: Final = "connect-py.open-pairs."
_LACKING: Final = "__lacking"  # names of the columns whose values are unknown
_SENT: Final = "__sent"  # true if this or an earlier change in the lifetime has a value
_DELETE: Final = "__delete"
# number of the lifetime among the key's lifetimes in the cycle; 0 if it began before the cycle
_LIFETIME: Final = "__lifetime"
# prefix of the columns HALF, PAIR, and RANK of the change that began the lifetime
_FROM: Final = "__from_"
_RANK: Final = "__rank"  # position among pairs with equal IDs
_ENDS_PAIR: Final = "__ends_pair"  # true if the change is the insert of a pair
_IMAGE: Final = "__image"  # true if the change is the delete of a pair and provides an image
_ROW: Final = "__row"  # row ID
_BASE: Final = "__base_"  # prefix of the columns of the row that provides values
_CONTEXT: Final = (1 << 63) - 1  # offset for changes in files other than CHANGES; sorts last
_FOR: Final = "__for"
_COLUMNS: Final = "__columns"
# an optional change, such as a delete that only marks a row, is not written if the row is missing
_IS_ROW: Final = f"({_SENT} OR NOT coalesce({OPTIONAL}, false))"
_NO_COLUMNS: Final = "cast(array() AS array<string>)"
_OF_DELETE: Final = int(Half.DELETE)
# maximum number of open halves to store; some halves remain open indefinitely, for example if the
# topic of the other half is not read
_MAX_OPEN: Final = 100_000


def open_pairs_key(property_key: str) -> str:
    """Return the key of the summary entry with the path of a connector's open-pairs file."""
    return OPEN_PAIRS + group_of(property_key)


def open_pairs(metadata: TableMetadata, property_key: str, ref: str) -> str | None:
    """Return the path of the open-pairs file for the valid ledger, or None if no pair is open."""
    lookup, name = look_up(metadata.view(ref, property_key)), open_pairs_key(property_key)
    path: str | None = None
    if (snapshot := lookup.version.ledger_snapshot) is not None:
        path = metadata.snapshots[snapshot]["summary"].get(name)
    elif lookup.standing is Standing.EXPIRED:
        path = metadata.properties.get(name)
    return path or None


def has_open_pairs(attempt: Attempt) -> bool:
    """Return True if the commit must record which pairs remain open."""
    metadata, key = attempt.metadata, attempt.request.property_key
    return bool(metadata.properties.get(open_pairs_key(key))) or (
        open_pairs(metadata, key, attempt.request.ref) is not None
    )


def open_pairs_property(
    metadata: TableMetadata, property_key: str, summary: Mapping[str, str]
) -> dict[str, str]:
    """Return the table property that a commit with this summary must change, if any.

    An empty value means that no pair is open.
    """
    name = open_pairs_key(property_key)
    old_path, path = metadata.properties.get(name, ""), summary.get(name, "")
    return {name: path} if path != old_path else {}


def complete_changes(
    attempt: Attempt, files: Sequence[StagedFile], order: CycleOrder | None
) -> list[Any]:
    """Write complete rows for the changes in these files, and return the Java data files.

    Raises:
        TableUnsuitableError: A required column would be null.
        PairUnreadError: The insert of a key change was staged, but the partition with the matching
            delete was revoked afterward.
    """
    request, metadata = attempt.request, attempt.metadata
    path = None if attempt.is_truncate else open_pairs(metadata, request.property_key, request.ref)
    changes = [file for file in files if file.kind is StagedKind.CHANGES]
    has_pairs = any(file.pairs for file in changes)
    if path is not None and not has_pairs:
        attempt.summary[open_pairs_key(request.property_key)] = path  # the pairs remain open
    written: list[Any] = []
    if has_pairs or any(file.partial for file in changes):
        attempt.reads_table = True
        partial_rows = _PartialRows(attempt, files, order)
        written = attempt.write(partial_rows.completed(changes, path, has_pairs=has_pairs))
    attempt.properties |= open_pairs_property(metadata, request.property_key, attempt.summary)
    return written


class _PartialRows:
    """Completes those changes in one attempt that lack values."""

    def __init__(
        self, attempt: Attempt, files: Sequence[StagedFile], order: CycleOrder | None
    ) -> None:
        self._attempt = attempt
        self._files = files
        self._order = order
        self._names = attempt.metadata.column_names()
        self._keys = attempt.keys

    def completed(
        self, changes: Sequence[StagedFile], path: str | None, *, has_pairs: bool
    ) -> DataFrame:
        """Return complete rows. `path` is the path of the open-pairs file."""
        rows = self._lifetimes(self._all_changes(changes), has_pairs=has_pairs)
        rows = rows.where(f"{PARTIAL} OR {_IMAGE} OR {_ENDS_PAIR}")
        rows = rows.selectExpr("*", f"monotonically_increasing_id() AS {_ROW}")
        rows = self._from_table(rows).localCheckpoint()
        partial = rows.where(PARTIAL)
        if has_pairs:
            images, fills = self._match_pairs(rows, path)
            # array literals in the query plan of a write break Spark's optimizer
            partial = self._from_images(partial, images, fills).localCheckpoint()
        else:
            self._report_unknown(self._count_unknown(partial))
        return partial.where(_IS_ROW)

    # --- changes in the cycle

    def _all_changes(self, files: Sequence[StagedFile]) -> DataFrame:
        """Return all relevant changes, with the names of the columns that each change lacks."""
        names_by_id = [
            literal(each)
            for number, name in self._attempt.metadata.names_by_id().items()
            for each in (str(number), name)
        ]
        names = f"map({', '.join(names_by_id)})"
        ids = f"split(coalesce({UNAVAILABLE}, ''), '{SEPARATOR}')"
        lacking = (
            f"filter(transform({ids}, id -> try_element_at({names}, id)), name -> name IS NOT NULL)"
        )
        is_delete = f"{CHANGE} = {int(Change.DELETE)} AS {_DELETE}"
        rows = with_files(self._attempt.staged(files))
        rows = rows.selectExpr("*", f"{lacking} AS {_LACKING}", is_delete)
        if self._order is None:
            return rows
        for kind in (StagedKind.ROWS, StagedKind.DELETES):  # they may change the same keys
            if group := [file for file in self._files if file.kind is kind]:
                other_rows = with_files(self._attempt.staged(group)).drop(OFFSET, PARTIAL)
                other_rows = other_rows.selectExpr(
                    "*",
                    f"{_NO_COLUMNS} AS {_LACKING}",
                    f"{str(kind is StagedKind.DELETES).lower()} AS {_DELETE}",
                    f"{_CONTEXT} AS {OFFSET}",
                    f"false AS {PARTIAL}",
                )
                rows = rows.unionByName(other_rows)
        return self._order.counting(rows)

    def _lifetimes(self, changes: DataFrame, *, has_pairs: bool) -> DataFrame:
        """Return each change with the values that changes in its lifetime have set so far.

        Additional columns identify the change that began the lifetime.
        """
        keys = ", ".join(map(quoted, self._keys))
        # sort order of the changes to a key
        position = f"{'' if self._order is None else ORDER + ', '}{OFFSET}, {_DELETE} DESC"
        ends_pair = f"coalesce({HALF} != {_OF_DELETE}, false)"
        leaves = f"coalesce({HALF} = {_OF_DELETE}, false)"
        of_key = f"PARTITION BY {keys} ORDER BY {position}"
        until_now = "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
        number = f"row_number() OVER (PARTITION BY {PAIR}, {ends_pair} ORDER BY {position})"
        rows = changes.selectExpr("*", f"CASE WHEN {ends_pair} THEN {number} END AS {_RANK}")
        rows = rows.selectExpr(
            "*",
            f"coalesce(lag({_DELETE}) OVER ({of_key}), false) AS __again",
            f"coalesce(lag({_DELETE} OR {leaves}) OVER ({of_key}), false) AS __repeats",
        )
        begins = f"CASE WHEN {ends_pair} OR __again THEN 1 ELSE 0 END"
        rows = rows.selectExpr("*", f"sum({begins}) OVER ({of_key} {until_now}) AS {_LIFETIME}")
        of_lifetime = f"(PARTITION BY {keys}, {_LIFETIME} ORDER BY {position} {until_now})"
        lacking_names = {name for file in self._files for name in self._lacking_names(file)}
        fillable = [
            name
            for name in self._names
            if name not in (*self._keys, ORDER) and (has_pairs or name in lacking_names)
        ]

        def last_value(name: str) -> str:
            sent = f"NOT {_DELETE} AND NOT array_contains({_LACKING}, {literal(name)})"
            value = f"CASE WHEN {sent} THEN struct({quoted(name)} AS v) END"
            return f"last({value}, true) OVER {of_lifetime} AS {quoted(_BASE + name)}"

        sent = f"max(NOT {_DELETE} AND size({_LACKING}) < {len(fillable)}) OVER {of_lifetime}"
        rows = rows.selectExpr(
            "*",
            *map(last_value, fillable),
            *(f"first({name}) OVER {of_lifetime} AS {_FROM}{name}" for name in (HALF, PAIR, _RANK)),
            f"{sent} AS {_SENT}",
        )
        missing = [
            f"CASE WHEN {quoted(_BASE + name)} IS NULL THEN {literal(name)} END"
            for name in fillable
        ]
        values = [
            f"{quoted(_BASE + name)}.v AS {quoted(name)}" if name in fillable else quoted(name)
            for name in self._names
        ]
        begun_by = [_FROM + HALF, _FROM + PAIR, _FROM + _RANK]
        partial = PARTIAL if self._order is None else f"{PARTIAL} AND coalesce({LAST}, false)"
        return rows.selectExpr(
            *values,
            f"cast(array_compact(array({', '.join(missing)})) AS array<string>) AS {_LACKING}",
            *(HALF, PAIR, _RANK, OFFSET, _LIFETIME, _SENT, OPTIONAL, *begun_by),
            f"{partial} AS {PARTIAL}",
            f"{leaves} AND NOT __repeats AS {_IMAGE}",
            f"{ends_pair} AS {_ENDS_PAIR}",
        )

    def _lacking_names(self, file: StagedFile) -> list[str]:
        """Return the current names of the columns for which rows in a file lack values.

        Dropped columns are excluded.
        """
        ids = self._attempt.metadata.column_ids(file.schema_id)
        names = self._attempt.metadata.names_by_id()
        return [names[ids[name]] for name in file.unavailable if ids.get(name) in names]

    # --- values from other rows

    def _from_table(self, rows: DataFrame) -> DataFrame:
        """Fill missing values from the table if a row's lifetime began before the cycle.

        `_SENT` becomes true if the table has the row.
        """
        if self._attempt.target is not None:
            conditions = [f"{quoted(key)} = {quoted(_BASE + key)}" for key in self._keys]
            if self._order is not None:
                conditions.append(f"NOT coalesce({_BASE}{ORDER} > {ORDER}, false)")
            conditions.append(f"{_LIFETIME} = 0 AND size({_LACKING}) > 0")
            table = self._attempt.spark.table(self._attempt.target)
            rows = self._filled(rows, table, [], conditions)
        existed = f"{_LIFETIME} > 0 OR {_SENT}"
        image = f"CASE WHEN {existed} THEN {_OF_DELETE} ELSE {int(Half.NOTHING)} END"
        half = f"CASE WHEN {_IMAGE} THEN {image} WHEN {_ENDS_PAIR} THEN {HALF} END AS {HALF}"
        return rows.selectExpr(*(half if name == HALF else quoted(name) for name in rows.columns))

    def _filled(
        self, rows: DataFrame, other_rows: DataFrame, more: Sequence[str], conditions: Sequence[str]
    ) -> DataFrame:
        """Fill missing values in rows with values from other rows.

        Args:
            rows: The rows with missing values.
            other_rows: The rows that provide values. If several of them match, one is used.
            more: Columns of `other_rows` that the table does not have.
            conditions: Join conditions in SQL. Columns of `other_rows` have the prefix `_BASE`.
        """
        from pyspark.sql import functions as F  # noqa: N812 - local: the coordinator has no Spark

        names = [f"{quoted(name)} AS {quoted(_BASE + name)}" for name in [*self._names, *more]]
        base = other_rows.selectExpr(*names, f"true AS {_BASE}")
        joined = rows.join(base, F.expr(" AND ".join(conditions)), "left").dropDuplicates([_ROW])
        available = _BASE + _COLUMNS if _COLUMNS in more else _LACKING
        values = {}
        for name in self._names:
            if name not in (*self._keys, ORDER):
                condition = (
                    f"{_BASE} AND array_contains({_LACKING}, {literal(name)}) "
                    f"AND array_contains({available}, {literal(name)})"
                )
                values[name] = (
                    f"CASE WHEN {condition} THEN {quoted(_BASE + name)} ELSE {quoted(name)} END "
                    f"AS {quoted(name)}"
                )
        rest = f"CASE WHEN {_BASE} THEN array_except({_LACKING}, {available}) ELSE {_LACKING} END"
        values[_LACKING] = f"{rest} AS {_LACKING}"
        values[_SENT] = f"({_SENT} OR coalesce({_BASE}, false)) AS {_SENT}"
        return joined.selectExpr(*(values.get(name, quoted(name)) for name in rows.columns))

    # --- pairs

    def _match_pairs(self, rows: DataFrame, path: str | None) -> tuple[DataFrame, Fills]:
        """Match the halves of pairs, and write the halves that remain open.

        Return the images of the rows with old keys, and the plan for copying their values to other
        rows.

        Raises:
            PairUnreadError: See `complete_changes`.
        """
        open_rows = None if path is None else self._read_open(path)
        open_halves = [] if open_rows is None else open_rows.drop(*self._names).collect()
        first_half = f"{_FROM}{HALF} != {_OF_DELETE}"
        relevant = rows.where(f"{HALF} IS NOT NULL OR coalesce({first_half}, false)")
        # the plan does not use column values
        halves = relevant.drop(*(name for name in self._names if name != ORDER)).collect()
        plan = match([*map(_pair_row, halves)], [*map(_pair_row, open_halves)])
        if plan.unread:
            raise PairUnreadError(self._attempt.request.table, plan.unread)
        other_rows = rows.where(f"{PARTIAL} AND NOT coalesce({first_half}, false)")
        self._report_unknown(Counter(plan.unknown.values()) + self._count_unknown(other_rows))
        names = [*map(quoted, self._names), _ROW]
        images = rows.where(f"{HALF} = {_OF_DELETE}").select(*names)
        if open_rows is not None:
            open_images = open_rows.where(f"{HALF} = {_OF_DELETE}").select(*names)
            images = images.unionByName(open_images)
        self._write_open(rows, open_rows, plan, images)
        return images, plan.fills

    def _from_images(self, rows: DataFrame, images: DataFrame, fills: Fills) -> DataFrame:
        """Fill missing values with values from images, in the planned order."""
        for depth in range(max(map(len, fills.values()), default=0)):
            values = [
                f"({row}L, {images_of_row[depth][0]}L, "
                f"array({', '.join(map(literal, sorted(images_of_row[depth][1])))}))"
                for row, images_of_row in fills.items()
                if depth < len(images_of_row)
            ]
            other_rows = images.join(self._values(values, f"{_FOR}, {_ROW}, {_COLUMNS}"), _ROW)
            rows = self._filled(rows, other_rows, [_FOR, _COLUMNS], [f"{_ROW} = {_BASE}{_FOR}"])
        return rows

    def _values(self, values: Sequence[str], columns: str) -> DataFrame:
        return self._attempt.spark.sql(f"SELECT * FROM VALUES {', '.join(values)} AS t({columns})")

    def _read_open(self, path: str) -> DataFrame | None:
        file = self._attempt.table.changes_at(path)
        if file is None:
            log.warning(
                "table %s: file %s with rows whose key was changed is missing; cleanup by other "
                "programs must not delete it",
                self._attempt.request.table,
                path,
                extra={"action": "open_pairs_gone"},
            )
            return None
        rows = self._attempt.staged([file])
        return rows.selectExpr("*", f"-{OFFSET} AS {_ROW}").localCheckpoint()

    def _write_open(
        self, rows: DataFrame, open_rows: DataFrame | None, plan: PairPlan, images: DataFrame
    ) -> None:
        """Write the halves that remain open to a file, and number them in order."""
        deletes, inserts = plan.open_deletes[-_MAX_OPEN:], plan.open_inserts[-_MAX_OPEN:]
        if not deletes and not inserts:
            return
        names = [*map(quoted, self._names), _ROW, PAIR, HALF]
        open_halves = self._from_images(rows.where(_IMAGE), images, plan.fills).selectExpr(*names)
        if open_rows is not None:
            open_halves = open_halves.unionByName(open_rows.selectExpr(*names))
        if deletes:
            values = [f"({row}L, {number}L)" for number, row in enumerate(deletes, 1)]
            open_halves = open_halves.join(self._values(values, f"{_ROW}, {OFFSET}"), _ROW)
        else:
            open_halves = open_halves.where("false").selectExpr("*", f"0L AS {OFFSET}")
        if inserts:
            values = [
                f"({half}, {literal(pair)}, {number}L)"
                for number, (half, pair) in enumerate(inserts, len(deletes) + 1)
            ]
            open_inserts = self._values(values, f"{HALF}, {PAIR}, {OFFSET}")
            open_halves = open_halves.unionByName(open_inserts, allowMissingColumns=True)
        open_halves = open_halves.localCheckpoint()
        missing = [
            f"cast(NULL AS {column['type']}) AS {column['name']}"
            for column in CHANGE_COLUMNS
            if column["name"] not in open_halves.columns
        ]
        file = self._attempt.write_unbound(open_halves.selectExpr("*", *missing), CHANGE_COLUMNS)
        self._attempt.summary[open_pairs_key(self._attempt.request.property_key)] = str(
            file.location()
        )

    # --- values that were not found

    def _count_unknown(self, rows: DataFrame) -> Counter[frozenset[str]]:
        """Return the number of rows with missing values, keyed by the set of missing columns."""
        counts = rows.where(f"size({_LACKING}) > 0 AND {_IS_ROW}").groupBy(_LACKING).count()
        return Counter({frozenset(columns): count for columns, count in counts.collect()})

    def _report_unknown(self, unknown: Mapping[frozenset[str], int]) -> None:
        """Log rows that still lack values. `unknown` maps sets of missing columns to row counts.

        Raises:
            TableUnsuitableError: A missing column is required.
        """
        if not unknown:
            return
        table, fields = self._attempt.request.table, self._attempt.metadata.schema["fields"]
        for name in (field["name"] for field in fields if field["required"]):
            if rows := sum(count for columns, count in unknown.items() if name in columns):
                raise TableUnsuitableError(
                    table,
                    f"{pluralize(rows, 'row lacks', 'rows lack')} a value for the required column "
                    f"{name}: the source did not send it, and the table does not have a row with "
                    "the key",
                )
        self._attempt.unmatched = sum(unknown.values())
        log.warning(
            "table %s: %s null values that neither the source nor the table provides",
            table,
            pluralize(self._attempt.unmatched, "row has", "rows have"),
            extra={"action": "values_unavailable", "table": table},
        )


def _pair_row(row: Row) -> PairRow:
    """Convert a row of the cycle or of the open-pairs file to an input for the plan."""
    values = row.asDict()
    first_half = values.get(_FROM + HALF)
    return PairRow(
        values[_ROW],
        frozenset(values.get(_LACKING) or ()),
        values[HALF],
        values[PAIR],
        (values.get(ORDER) or "", values[OFFSET]),
        partial=bool(values.get(PARTIAL)),
        # None unless the lifetime began with the insert of a pair
        begun_by=None
        if first_half is None or first_half == _OF_DELETE
        else (first_half, values[_FROM + PAIR], values[_FROM + _RANK]),
    )
