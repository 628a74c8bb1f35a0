"""A merged table rebuilt from its change log, in the Spark driver: the rows that the log says.

The state of a snapshot is rebuilt from the changes before the snapshot's positions, on a branch of
the table, and compared with it. `publish` then moves the table's ref there, if nothing was
committed meanwhile: readers see one change, and the ledger of the snapshot below goes on to count.
A crash before leaves a branch that the next run replaces. Of a log without such a table a new one
is made, up to where the log has come.
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
_UNKNOWN: Final = "__connect_py_unknown_"  # begins names


@dataclass(frozen=True, slots=True)
class RebuildRequest:
    """What is rebuilt, and of what."""

    changelog: str
    changelog_ref: str
    property_key: str  # of the connector's ledger
    keys: tuple[str, ...]
    ref: str = "main"  # of the table
    snapshot: int | None = None  # of the table; None: there is no table, so one is made
    truncates: bool = False  # whether a truncate empties the table
    limit: int = 20  # differing rows that come back


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What came of it."""

    snapshot: int  # head of the branch, or of the new table
    rows: int
    difference: TableDiff | None  # None: there was no table to compare with
    # by column: values that the log lacks, so the table's are taken; or null
    unknown_values: Mapping[str, int]
    several_partitions: (
        int  # keys with changes in several partitions, which the source's time puts in order
    )
    begins_late: tuple[str, ...]  # partitions of which the log lacks the beginning

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
class _Log:
    """The part of a change log that a state is made of."""

    changes: str  # a relation of them
    columns: tuple[str, ...]  # without those that tell of the change
    partitions: int  # of Kafka
    marks: bool  # whether it says which values the source did not send
    times: bool  # whether it says when the source made the change
    begins_late: tuple[str, ...]


def rebuild(session: LakeSession, name: str, request: RebuildRequest) -> Rebuilt:
    """Rebuild the state of a snapshot on the branch, and compare; or a new table.

    Raises: TableUnsuitableError: The log is none of this table, has not come as far, or cannot say
        what the table holds.
    """
    found = _log(session, name, request)
    statement = _statement(
        found, request.keys, _lacking(session, found), _truncated(session, request, found)
    )
    persisted = session.spark.sql(statement).persist()
    try:
        counts = _counts(persisted)
        states = persisted.where(f"{_IMAGE} = 'after'")
        if request.snapshot is None:
            target = states.select(*map(quoted, found.columns)).writeTo(
                relation(session.catalog_name, name)
            )
            target.using("iceberg").tableProperty("format-version", "2").create()
        else:
            _write_branch(
                session, name, request.snapshot, _completed(session, name, request, found, states)
            )
    finally:
        persisted.unpersist()
    made = session.table(name).metadata()
    difference = None
    if request.snapshot is not None:
        asked = DiffRequest(
            request.snapshot, made.refs[REBUILT_BRANCH], request.keys, request.limit
        )
        difference = compare(session, name, asked)
    head = made.refs["main" if difference is None else REBUILT_BRANCH]
    unknown = {
        column: count for column, count in counts.items() if column in found.columns and count
    }
    return Rebuilt(head, counts["rows"], difference, unknown, counts[_SEVERAL], found.begins_late)


def publish(session: LakeSession, name: str, request: RebuildRequest, head: int) -> None:
    """Have readers see what was rebuilt, in place of the snapshot. The branch leaves.

    Raises:
        TableUnsuitableError: The table was committed to meanwhile.
    """
    assert request.snapshot is not None
    prepared, base = prepare_at(session, name, request.ref, request.snapshot, head)
    prepared.publish(request.ref, head)
    prepared.remove_ref(REBUILT_BRANCH)
    keep_before_rebuild(prepared, base, request.snapshot)
    swap_once(prepared, name, request.ref, {})
    log.info(
        "table %s: %s moved from snapshot %d to what was rebuilt",
        name,
        request.ref,
        request.snapshot,
    )


def remove_branch(session: LakeSession, name: str) -> None:
    """Remove the branch; readers of the table never saw it."""
    if REBUILT_BRANCH in session.table(name).metadata().refs:
        session.spark.sql(drop_sql(session.catalog_name, name, "branch", REBUILT_BRANCH))


def _log(session: LakeSession, name: str, request: RebuildRequest) -> _Log:
    """The changes that the state holds."""
    metadata = session.table(request.changelog).metadata()
    head = metadata.head(request.changelog_ref)
    theirs = look_up(metadata.view(request.changelog_ref, request.property_key))
    if head is None or theirs.ledger is None:
        raise TableUnsuitableError(
            request.changelog,
            f"has no {request.property_key}: it is no change log of this connector",
        )
    names = [each["name"] for each in metadata.schema_of(int(head["snapshot-id"]))["fields"]]
    if missing := [column for column in _NEEDED if column not in names]:
        raise TableUnsuitableError(
            request.changelog, f"has no column {missing[0]}: it is no change log"
        )
    reached = {tp: position.next for tp, position in theirs.ledger.positions().items()}
    _refuse_other_topics(session, request.changelog, int(head["snapshot-id"]), reached)
    ends, late = (
        (reached, ()) if request.snapshot is None else _state_of(session, name, request, theirs)
    )
    behind = [
        f"{tp.topic}-{tp.partition}" for tp, end in sorted(ends.items()) if reached.get(tp, 0) < end
    ]
    if behind:
        raise TableUnsuitableError(
            request.changelog,
            f"has not come as far as the table in {', '.join(behind)}: try again, or choose an "
            f"older state with --at",
        )
    columns = tuple(column for column in names if column not in CHANGE_COLUMNS)
    if missing := [key for key in request.keys if key not in columns]:
        raise TableUnsuitableError(
            request.changelog, f"has no column {missing[0]}, which is part of the key"
        )
    if not request.keys:
        raise TableUnsuitableError(
            name, "has no key: a table of appended rows is not made of changes; see --key"
        )
    at = _ends(session, request.changelog, int(head["snapshot-id"]), ends)
    changes = f"(SELECT c.* FROM {at} AND c.__offset < ends.next)"
    return _Log(
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
    """The changes of a log, each with the end of its partition, for SQL."""
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
    """Offsets say nothing of the order of changes, if some are of a topic that had the name before.

    Raises:
        TableUnsuitableError: The log has changes behind its own positions.
    """
    at = _ends(session, changelog, snapshot, reached)
    found = session.spark.sql(
        f"SELECT ends.topic FROM {at} AND c.__offset >= ends.next LIMIT 1"
    ).collect()
    if found:
        raise TableUnsuitableError(
            changelog,
            f"has changes of another topic {found[0]['topic']}, which was deleted: their order is "
            f"not known",
        )


def _state_of(
    session: LakeSession, name: str, request: RebuildRequest, changes: Lookup
) -> tuple[dict[TopicPartition, int], tuple[str, ...]]:
    """Up to which offsets a snapshot holds changes, and of which partitions the log lacks the
    beginning.

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
            f"snapshot {request.snapshot} has no {request.property_key}, which says what it holds",
        )
    late = tuple(
        f"{tp.topic}-{tp.partition}: the log begins at offset {changes.opened[tp].next}, the table "
        f"at {opened.next}"
        for tp, opened in sorted(at.opened.items())
        if tp in changes.opened and changes.opened[tp].next > opened.next
    )
    return {tp: position.next for tp, position in at.ledger.positions().items()}, late


def _truncated(session: LakeSession, request: RebuildRequest, found: _Log) -> int | None:
    """The offset of the last truncate that the table knows.

    Raises: TableUnsuitableError: The changes are of several partitions, so what came before is not
        known.
    """
    if not request.truncates:
        return None
    (row,) = session.spark.sql(
        f"SELECT max(__offset) FROM {found.changes} WHERE __op = 't'"
    ).collect()
    if row[0] is not None and found.partitions > 1:
        raise TableUnsuitableError(
            request.changelog,
            "has truncates, and changes of several partitions: what came before is not known",
        )
    return None if row[0] is None else int(row[0])


def _lacking(session: LakeSession, found: _Log) -> list[str]:
    """The columns that some changes lack."""
    if not found.marks:
        return []
    frame = session.spark.sql(
        f"SELECT DISTINCT explode(__unavailable) AS name FROM {found.changes}"
    )
    return sorted(row["name"] for row in frame.collect() if row["name"] in found.columns)


def _statement(
    found: _Log, keys: Sequence[str], lacking: Sequence[str], truncated: int | None
) -> str:
    """SQL for the last change of each key: it is there if the row after is the last image.

    Changes are in order by their offset, and those of a key in several partitions by the source's
    time before. A row that lacks values has those of the last change since the last delete that had
    them.
    """
    by_key = f"PARTITION BY {', '.join(map(quoted, keys))}"
    several = f"min(__connect_py_place) OVER ({by_key}) <> max(__connect_py_place) OVER ({by_key})"
    time = "coalesce(__source_time, __time)" if found.times else "NULL"
    wanted = [
        "(__image IS NOT NULL OR __op = 'd')",
        *(f"{quoted(key)} IS NOT NULL" for key in keys),
    ]
    if truncated is not None:
        wanted.append(f"__offset > {truncated}")
    changes = (
        f"SELECT *, struct(__topic, __partition) AS __connect_py_place FROM {found.changes} "
        f"WHERE {' AND '.join(wanted)}"
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
    kept = [
        f"max_by({quoted(name)}, "
        f"{_ORDER}){f' FILTER (WHERE {_sent(name)})' if name in lacking else ''} AS {quoted(name)}"
        for name in found.columns
        if name not in keys
    ]
    unknown = [f"count_if({_sent(name)}) = 0 AS {quoted(_UNKNOWN + name)}" for name in lacking]
    last = f"max_by(coalesce(__image, ''), {_ORDER}) AS {_IMAGE}"
    made = ",\n  ".join(
        [*map(quoted, keys), *kept, *unknown, last, f"bool_or({_SEVERAL}) AS {_SEVERAL}"]
    )
    return f"SELECT {made}\nFROM ({deletes})\nGROUP BY {', '.join(map(quoted, keys))}"


def _sent(name: str) -> str:
    """Whether a change has the value of a column that counts."""
    return (
        f"__image IS NOT NULL AND ({_DELETED} IS NULL OR {_ORDER} > {_DELETED})"
        f" AND NOT coalesce(array_contains(__unavailable, {literal(name)}), false)"
    )


def _counts(states: DataFrame) -> dict[str, int]:
    """Rows, keys of several partitions, and by column the values that are not known."""
    there = f"{_IMAGE} = 'after'"
    unknown = [name for name in states.columns if name.startswith(_UNKNOWN)]
    made = [f"count_if({there} AND {quoted(name)})" for name in unknown]
    (row,) = states.selectExpr(f"count_if({there})", f"count_if({_SEVERAL})", *made).collect()
    names = ["rows", _SEVERAL, *(name.removeprefix(_UNKNOWN) for name in unknown)]
    return dict(zip(names, map(int, row), strict=True))


def _completed(
    session: LakeSession, name: str, request: RebuildRequest, found: _Log, states: DataFrame
) -> DataFrame:
    """The rows, with the table's own values where the log has none: a rebuild loses no value."""
    from pyspark.sql import functions as F  # noqa: N812 - its usual name

    source = relation(session.catalog_name, name)
    table = session.spark.sql(f"SELECT * FROM {source} VERSION AS OF {request.snapshot}")
    filled = [
        each
        for each in found.columns
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
        for each in found.columns
    ]
    return rows.select(values)


def _write_branch(session: LakeSession, name: str, snapshot: int, rows: DataFrame) -> None:
    """Put rows on the branch, in place of all others. Columns that the log does not have are
    null."""
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
        "table %s: rebuilt on branch %s from its change log",
        name,
        REBUILT_BRANCH,
        extra={"table": name},
    )
