"""Rebuilds a merged table from its changelog, in the Spark driver.

The rows of a snapshot are computed from the changes before the snapshot's positions, written to a
branch of the table, and compared with the snapshot. `publish` then moves the table's ref to the
branch in one atomic change, unless there was another commit. The ledger of the replaced snapshot
remains valid. A crash before this change leaves the branch, which the next run replaces. If the
table does not exist, it is created with the rows at the end of the changelog.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from connectors.iceberg.catalog.sql_names import literal, quoted, relation
from connectors.iceberg.errors import TableUnsuitableError
from connectors.iceberg.protocol.ledger import Lookup, look_up
from connectors.iceberg.protocol.own_refs import REBUILT_BRANCH
from connectors.iceberg.protocol.positions import TopicPartition
from connectors.iceberg.staging.changelog import CHANGE_COLUMNS
from connectors.iceberg_tools.history.table_diff import DiffRequest, TableDiff, compare
from connectors.iceberg_tools.history.topic_rebuild import keep_before_rebuild
from connectors.iceberg_tools.refs.ref_changes import create_sql, drop_sql, prepare_at, swap_once

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from connectors.iceberg.driver.lake_session import LakeSession

log = logging.getLogger(__name__)
_NEEDED: Final = ("__op", "__image", "__topic", "__partition", "__offset")
_ORDER, _DELETED, _SEVERAL, _IMAGE = (
    f"__connect_py_{name}" for name in ("order", "deleted", "several", "image")
)
_UNKNOWN: Final = "__connect_py_unknown_"  # prefix of columns that mark unknown values


@dataclass(frozen=True, slots=True)
class RebuildRequest:
    """Table state to rebuild, and the changelog to rebuild it from."""

    changelog: str
    changelog_ref: str
    property_key: str  # key of the connector's ledger
    keys: tuple[str, ...]
    ref: str = "main"  # ref of the table
    # snapshot whose rows are rebuilt, or None to create a table that does not exist
    snapshot: int | None = None
    truncates: bool = False  # whether a truncate event empties the table
    limit: int = 20  # maximum number of differing rows in the result


@dataclass(frozen=True, slots=True)
class RebuildResult:
    """Result of a rebuild."""

    snapshot: int  # head of the branch, or of the new table
    rows: int
    difference: TableDiff | None  # None if there was no table to compare with
    # number of values that the changelog lacks, by column; they are copied from the table or null
    unknown_values: Mapping[str, int]
    # number of keys with changes in several partitions; the source timestamps order these changes
    several_partitions: int
    begins_late: tuple[str, ...]  # partitions whose first changes are not in the changelog

    def to_json(self) -> dict[str, Any]:
        return {
            "branch": REBUILT_BRANCH if self.difference else None,
            "snapshot": self.snapshot,
            "rows": self.rows,
            "unknown_values": dict(self.unknown_values),
            "keys_in_several_partitions": self.several_partitions,
            "begins_late": list(self.begins_late),
            "difference": self.difference.to_json() if self.difference else None,
        }


@dataclass(frozen=True, slots=True)
class _ChangeLog:
    """The changes that determine the rows of a table."""

    changes: str  # SQL relation of the changes
    columns: tuple[str, ...]  # all columns except the columns that describe the change
    partitions: int  # number of Kafka partitions
    marks: bool  # whether a column lists the values that the source did not send
    times: bool  # whether columns contain the time of each change in the source
    begins_late: tuple[str, ...]


def rebuild(session: LakeSession, name: str, request: RebuildRequest) -> RebuildResult:
    """Rebuild a snapshot on the branch and compare the two, or create the table.

    Raises:
        TableUnsuitableError: The changelog is not from this connector, ends before the snapshot, or
            does not determine the rows of the table.
    """
    changelog = _read_changelog(session, name, request)
    statement = _statement(
        changelog,
        request.keys,
        _incomplete_columns(session, changelog),
        _last_truncate(session, request, changelog),
    )
    persisted = session.spark.sql(statement).persist()
    try:
        counts = _counts(persisted)
        states = persisted.where(f"{_IMAGE} = 'after'")
        if request.snapshot is None:
            writer = states.select(*map(quoted, changelog.columns)).writeTo(
                relation(session.catalog_name, name)
            )
            writer.using("iceberg").tableProperty("format-version", "2").create()
        else:
            _write_branch(
                session,
                name,
                request.snapshot,
                _completed(session, name, request, changelog, states),
            )
    finally:
        persisted.unpersist()
    metadata = session.table(name).metadata()
    difference = None
    if request.snapshot is not None:
        diff_request = DiffRequest(
            request.snapshot, metadata.refs[REBUILT_BRANCH], request.keys, request.limit
        )
        difference = compare(session, name, diff_request)
    head = metadata.refs["main" if difference is None else REBUILT_BRANCH]
    unknown = {
        column: count for column, count in counts.items() if column in changelog.columns and count
    }
    return RebuildResult(
        head, counts["rows"], difference, unknown, counts[_SEVERAL], changelog.begins_late
    )


def publish(session: LakeSession, name: str, request: RebuildRequest, head: int) -> None:
    """Move the table's ref from the snapshot to the rebuilt rows and remove the branch.

    Raises:
        TableUnsuitableError: There was another commit to the table.
    """
    assert request.snapshot is not None
    prepared, base = prepare_at(session, name, request.ref, request.snapshot, head)
    prepared.publish(request.ref, head)
    prepared.remove_ref(REBUILT_BRANCH)
    keep_before_rebuild(prepared, base, request.snapshot)
    swap_once(prepared, name, request.ref, {})
    log.info(
        "table %s: moved %s from snapshot %d to the rebuilt state",
        name,
        request.ref,
        request.snapshot,
    )


def remove_branch(session: LakeSession, name: str) -> None:
    """Remove the unpublished branch."""
    if REBUILT_BRANCH in session.table(name).metadata().refs:
        session.spark.sql(drop_sql(session.catalog_name, name, "branch", REBUILT_BRANCH))


def _read_changelog(session: LakeSession, name: str, request: RebuildRequest) -> _ChangeLog:
    """Return the changes that determine the rebuilt rows."""
    metadata = session.table(request.changelog).metadata()
    head = metadata.head(request.changelog_ref)
    lookup = look_up(metadata.view(request.changelog_ref, request.property_key))
    if head is None or lookup.ledger is None:
        raise TableUnsuitableError(
            request.changelog,
            f"has no {request.property_key} and is therefore not a changelog of this connector",
        )
    names = [each["name"] for each in metadata.schema_of(int(head["snapshot-id"]))["fields"]]
    if missing := [column for column in _NEEDED if column not in names]:
        raise TableUnsuitableError(
            request.changelog, f"has no column {missing[0]} and is therefore not a changelog"
        )
    reached = {tp: position.next for tp, position in lookup.ledger.positions().items()}
    _refuse_other_topics(session, request.changelog, int(head["snapshot-id"]), reached)
    ends, late = (
        (reached, ()) if request.snapshot is None else _table_state(session, name, request, lookup)
    )
    behind = [
        f"{tp.topic}-{tp.partition}" for tp, end in sorted(ends.items()) if reached.get(tp, 0) < end
    ]
    if behind:
        raise TableUnsuitableError(
            request.changelog,
            f"ends before the table in {', '.join(behind)}; try again or choose an older state "
            "with --at",
        )
    columns = tuple(column for column in names if column not in CHANGE_COLUMNS)
    if missing := [key for key in request.keys if key not in columns]:
        raise TableUnsuitableError(
            request.changelog, f"has no column {missing[0]}, which is part of the key"
        )
    if not request.keys:
        raise TableUnsuitableError(
            name, "has no key, and appended rows cannot be rebuilt from changes; see --key"
        )
    at = _ends(session, request.changelog, int(head["snapshot-id"]), ends)
    changes = f"(SELECT c.* FROM {at} AND c.__offset < ends.next)"
    return _ChangeLog(
        changes,
        columns,
        len(ends),
        "__unavailable" in names,
        {"__source_time", "__time"} <= set(names),
        late,
    )


def _ends(
    session: LakeSession, changelog: str, snapshot: int, ends: Mapping[TopicPartition, int]
) -> str:
    """Return a SQL relation of the changes, each with the end offset of its partition."""
    values = ", ".join(
        f"({literal(tp.topic)}, {tp.partition}, {end}L)" for tp, end in sorted(ends.items())
    )
    return (
        f"{relation(session.catalog_name, changelog)} VERSION AS OF {snapshot} AS c"
        f"\n  JOIN (VALUES {values}) AS ends (topic, number, next)"
        "\n  ON c.__topic = ends.topic AND c.__partition = ends.number"
    )


def _refuse_other_topics(
    session: LakeSession, changelog: str, snapshot: int, reached: Mapping[TopicPartition, int]
) -> None:
    """Reject a changelog with changes from a deleted topic, because their order is unknown.

    Raises:
        TableUnsuitableError: The changelog contains changes beyond the positions in its ledger.
    """
    at = _ends(session, changelog, snapshot, reached)
    rows = session.spark.sql(
        f"SELECT ends.topic FROM {at} AND c.__offset >= ends.next LIMIT 1"
    ).collect()
    if rows:
        raise TableUnsuitableError(
            changelog,
            f"has changes from a deleted topic {rows[0]['topic']}, so their order is unknown",
        )


def _table_state(
    session: LakeSession, name: str, request: RebuildRequest, changes: Lookup
) -> tuple[dict[TopicPartition, int], tuple[str, ...]]:
    """Return a snapshot's positions, and partitions whose first changes are not in the changelog.

    Raises:
        TableUnsuitableError: The snapshot has no ledger.
    """
    metadata = session.table(name).metadata()
    at = look_up(
        metadata.with_ref(request.ref, request.snapshot).view(request.ref, request.property_key)
    )
    if at.ledger is None:
        raise TableUnsuitableError(
            name,
            f"snapshot {request.snapshot} has no {request.property_key}, so its contents are "
            "unknown",
        )
    late = tuple(
        f"{tp.topic}-{tp.partition}: the changelog begins at offset {changes.opened[tp].next}, but "
        f"the table begins at {opened.next}"
        for tp, opened in sorted(at.opened.items())
        if tp in changes.opened and changes.opened[tp].next > opened.next
    )
    return {tp: position.next for tp, position in at.ledger.positions().items()}, late


def _last_truncate(
    session: LakeSession, request: RebuildRequest, changelog: _ChangeLog
) -> int | None:
    """Return the offset of the last truncate event, or None.

    Raises:
        TableUnsuitableError: There are truncate events, and several partitions contain changes. The
            changes before a truncate are therefore unknown.
    """
    if not request.truncates:
        return None
    (row,) = session.spark.sql(
        f"SELECT max(__offset) FROM {changelog.changes} WHERE __op = 't'"
    ).collect()
    if row[0] is not None and changelog.partitions > 1:
        raise TableUnsuitableError(
            request.changelog,
            "has truncate events and changes in several partitions, so the changes before a "
            "truncate are unknown",
        )
    return None if row[0] is None else int(row[0])


def _incomplete_columns(session: LakeSession, changelog: _ChangeLog) -> list[str]:
    """Return the columns whose values are missing from some changes."""
    if not changelog.marks:
        return []
    frame = session.spark.sql(
        f"SELECT DISTINCT explode(__unavailable) AS name FROM {changelog.changes}"
    )
    return sorted(row["name"] for row in frame.collect() if row["name"] in changelog.columns)


def _statement(
    changelog: _ChangeLog, keys: Sequence[str], incomplete: Sequence[str], last_truncate: int | None
) -> str:
    """Return SQL that selects the last change of each key.

    The row of a key exists if the image in its last change is `after`. Changes are ordered by
    offset. If a key has changes in several partitions, they are first ordered by their time in the
    source. A missing value is taken from the last change that follows the last delete and contains
    the value.
    """
    by_key = f"PARTITION BY {', '.join(map(quoted, keys))}"
    several = f"min(__connect_py_place) OVER ({by_key}) <> max(__connect_py_place) OVER ({by_key})"
    time = "coalesce(__source_time, __time)" if changelog.times else "NULL"
    conditions = [
        "(__image IS NOT NULL OR __op = 'd')",
        *(f"{quoted(key)} IS NOT NULL" for key in keys),
    ]
    if last_truncate is not None:
        conditions.append(f"__offset > {last_truncate}")
    changes = (
        f"SELECT *, struct(__topic, __partition) AS __connect_py_place FROM {changelog.changes} "
        f"WHERE {' AND '.join(conditions)}"
    )
    ordered = (
        f"SELECT *, named_struct('at', IF({_SEVERAL}, {time}, NULL), 'offset', __offset,"
        f" 'rank', IF(__image = 'after', 1, 0)) AS {_ORDER}\n"
        f"FROM (SELECT *, {several} AS {_SEVERAL} FROM ({changes}))"
    )
    deletes = (
        f"SELECT *, max(IF(__op = 'd', {_ORDER}, NULL)) OVER ({by_key}) AS {_DELETED}\nFROM "
        f"({ordered})"
    )
    latest_values = [
        f"max_by({quoted(name)}, "
        f"{_ORDER}){f' FILTER (WHERE {_value_sent(name)})' if name in incomplete else ''}"
        f" AS {quoted(name)}"
        for name in changelog.columns
        if name not in keys
    ]
    unknown = [
        f"count_if({_value_sent(name)}) = 0 AS {quoted(_UNKNOWN + name)}" for name in incomplete
    ]
    last = f"max_by(coalesce(__image, ''), {_ORDER}) AS {_IMAGE}"
    selected = ",\n  ".join(
        [*map(quoted, keys), *latest_values, *unknown, last, f"bool_or({_SEVERAL}) AS {_SEVERAL}"]
    )
    return f"SELECT {selected}\nFROM ({deletes})\nGROUP BY {', '.join(map(quoted, keys))}"


def _value_sent(name: str) -> str:
    """Return the SQL condition that a change contains the column and follows the last delete."""
    return (
        f"__image IS NOT NULL AND ({_DELETED} IS NULL OR {_ORDER} > {_DELETED})"
        f" AND NOT coalesce(array_contains(__unavailable, {literal(name)}), false)"
    )


def _counts(states: DataFrame) -> dict[str, int]:
    """Count the rows, the keys in several partitions, and the unknown values of each column."""
    exists = f"{_IMAGE} = 'after'"
    unknown = [name for name in states.columns if name.startswith(_UNKNOWN)]
    counters = [f"count_if({exists} AND {quoted(name)})" for name in unknown]
    (row,) = states.selectExpr(f"count_if({exists})", f"count_if({_SEVERAL})", *counters).collect()
    names = ["rows", _SEVERAL, *(name.removeprefix(_UNKNOWN) for name in unknown)]
    return dict(zip(names, map(int, row), strict=True))


def _completed(
    session: LakeSession,
    name: str,
    request: RebuildRequest,
    changelog: _ChangeLog,
    states: DataFrame,
) -> DataFrame:
    """Return the rows. Values that the changelog lacks are copied from the table."""
    from pyspark.sql import functions as F  # noqa: N812 - its usual name

    source = relation(session.catalog_name, name)
    table = session.spark.sql(f"SELECT * FROM {source} VERSION AS OF {request.snapshot}")
    filled = [
        each
        for each in changelog.columns
        if _UNKNOWN + each in states.columns and each in table.columns
    ]
    rows = states.alias("s")
    if filled:
        same = [F.col(f"s.{quoted(key)}") == F.col(f"t.{quoted(key)}") for key in request.keys]
        rows = rows.join(table.alias("t"), same, "left")
    values = [
        F.when(F.col(f"s.{quoted(_UNKNOWN + each)}"), F.col(f"t.{quoted(each)}"))
        .otherwise(F.col(f"s.{quoted(each)}"))
        .alias(each)
        if each in filled
        else F.col(f"s.{quoted(each)}")
        for each in changelog.columns
    ]
    return rows.select(values)


def _write_branch(session: LakeSession, name: str, snapshot: int, rows: DataFrame) -> None:
    """Replace all rows of the branch. Columns that the changelog lacks become null."""
    from pyspark.sql import functions as F  # noqa: N812 - its usual name

    catalog, spark = session.catalog_name, session.spark
    columns = [
        F.col(quoted(each.name))
        if each.name in rows.columns
        else F.lit(None).cast(each.dataType).alias(each.name)
        for each in spark.table(relation(catalog, name)).schema
    ]
    spark.sql(create_sql(catalog, name, "branch", REBUILT_BRANCH, snapshot, None, move=True))
    rows.select(columns).writeTo(relation(catalog, name, REBUILT_BRANCH)).overwrite(F.lit(True))
    log.info(
        "table %s: wrote the state from its changelog to branch %s",
        name,
        REBUILT_BRANCH,
        extra={"table": name},
    )
