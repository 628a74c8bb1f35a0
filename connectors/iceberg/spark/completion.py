"""Rows with unavailable values become whole rows, in Spark: what the source did not send is joined from other rows.

A row takes such values from the row of its own key in the table or, if its key was changed, from the row of the key
that it had: among the images of this cycle, in the table as it is, then in the table as it was before rows were
removed, because the delete of the old key may have been committed in an earlier cycle. What is found nowhere is null,
and counted.

An image is a row as it stood when its key was changed. No snapshot of the table ever held images of rows that a cycle
wrote before it changed their key, so they are kept in a file of their own, which the snapshot's summary names.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from connectors.iceberg.commit_request import CommitRequest
from connectors.iceberg.errors import TableUnsuitableError
from connectors.iceberg.spark.iceberg_java import JavaTable
from connectors.iceberg.spark.sql_names import quoted, relation
from connectors.iceberg.spark.staged_rows import CHANGES, content_file, extra_columns, staged_relation
from connectors.iceberg.staging.completion import OLD_KEY_COLUMN
from connectors.iceberg.staging.types import ORDER
from connectors.iceberg.table import StagedFile, StagedKind
from connectors.iceberg.table_metadata import Snapshot, TableMetadata

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

log = logging.getLogger(__name__)

LACKING: Final = "__connect_py_lacking"  # names of the columns to fill
LOOK: Final = "__connect_py_look_"  # before the name of a key column: the key under which values are looked for
MOVED: Final = "__connect_py_moved"  # whether that is another key than the row's own
OPTIONAL: Final = "__connect_py_optional"  # whether a row that is found nowhere is left out
_FOUND: Final = "__connect_py_found"
_SOURCE: Final = "__connect_py_source"  # number of the source that had the values
_ROW: Final = "__connect_py_row"
_REMOVALS: Final = 50  # snapshots that removed rows, as far back as values are looked for


@dataclass(frozen=True, slots=True)
class CycleTable:
    """The table of one attempt at a commit, as the modules of this cycle read it."""

    spark: SparkSession
    catalog: str
    table: JavaTable
    metadata: TableMetadata
    request: CommitRequest
    target: str | None  # a relation with its rows at the head; None: it has none, or none that count
    stack: ExitStack  # owns the relations of staged files

    @property
    def keys(self) -> Sequence[str]:
        return self.request.key_columns

    @property
    def truncated(self) -> bool:
        """Whether the rows of before this cycle do not count."""
        return any(file.kind is StagedKind.TRUNCATES for file in self.request.files)

    @property
    def ordered(self) -> bool:
        """Whether rows tell their order in a column of the table."""
        return self.request.ordered and ORDER in self.metadata.column_names()

    def staged(self, files: Sequence[StagedFile]) -> DataFrame:
        """The rows of staged files, with the columns that the table does not have."""
        extra = extra_columns(self.metadata, self.keys)
        contents = [content_file(file) for file in files]
        return self.spark.table(self.stack.enter_context(staged_relation(self.table, contents, extra)))

    def lacking(self, file: StagedFile) -> frozenset[str]:
        """Present names of the columns that a file lacks, without those that are gone."""
        ids = self.metadata.column_ids(file.schema_id)
        names = self.metadata.names_by_id()
        return frozenset(names[ids[name]] for name in file.unavailable if ids.get(name) in names)

    def pending(self, files: Sequence[StagedFile]) -> DataFrame | None:
        """The rows of these files with what they lack and where to look for it; None: there are no files."""
        from pyspark.sql import functions as F  # noqa: N812 - its usual name

        groups: dict[tuple[frozenset[str], bool, bool], list[StagedFile]] = {}
        for file in files:
            groups.setdefault((self.lacking(file), file.moved, file.optional), []).append(file)
        frames = []
        for (lacking, moved, optional), group in groups.items():
            rows = self.staged(group)
            frames.append(
                rows.select(
                    *(F.col(quoted(name)) for name in self.metadata.column_names()),
                    F.array(*map(F.lit, sorted(lacking))).cast("array<string>").alias(LACKING),
                    *(F.col(quoted((OLD_KEY_COLUMN if moved else "") + key)).alias(LOOK + key) for key in self.keys),
                    F.lit(moved).alias(MOVED),
                    F.lit(optional).alias(OPTIONAL),
                )
            )
        return reduce(lambda one, other: one.unionByName(other), frames) if frames else None

    def write(self, rows: DataFrame, *, image: bool = False) -> list[Any]:
        """Data files of rows that no snapshot refers to. `image`: one file, whose columns may all be null."""
        folder = f"{self.request.file_prefix}{self.request.commit_id}-made"
        rows = rows.select(*(quoted(name) for name in self.metadata.column_names()))
        if image:
            return self.table.write_images(rows.coalesce(1), f"written_{uuid.uuid4().hex}", folder)
        return self.table.write(rows, f"written_{uuid.uuid4().hex}", folder)


@dataclass(frozen=True, slots=True)
class _Source:
    """Where values may be found."""

    rows: DataFrame
    moved_only: bool  # only rows whose key was changed may look here


class Completion:
    """For one attempt at a commit."""

    def __init__(self, cycle: CycleTable) -> None:
        self._cycle = cycle
        self._image_key = "connect-py.left." + cycle.request.property_key.rpartition("ledger.")[2]
        self.unmatched = 0
        self.summary: dict[str, str] = {}

    def complete(self, pending: DataFrame | None, images: DataFrame | None) -> list[Any]:
        """Write whole rows; returns Java's data files. Both as of `CycleTable.pending`.

        Raises:
            TableUnsuitableError: A required column would be null.
        """
        from pyspark.sql import functions as F  # noqa: N812 - its usual name

        kept = self._keep_images(images) if images is not None else None
        if pending is None:
            return []
        sources = [_Source(kept, True)] if kept is not None else []
        if self._cycle.target is not None:
            sources.append(_Source(self._cycle.spark.table(self._cycle.target), False))
        rows = self._filled(pending, sources).localCheckpoint()
        if self._cycle.target is not None:
            self._warn_of_living(rows.where(F.col(MOVED) & (F.col(_SOURCE) == len(sources) - 1)))
        rows = self._looked_back(rows)
        self._count_unmatched(rows.where(~F.col(_FOUND) & ~F.col(OPTIONAL) & (F.size(LACKING) > 0)))
        return self._cycle.write(rows.where(F.col(_FOUND) | ~F.col(OPTIONAL)))

    # --- images

    def _keep_images(self, images: DataFrame) -> DataFrame | None:
        """Fill the images of this cycle, keep them in a file, and return them; None: there are none."""
        from pyspark.sql import functions as F  # noqa: N812 - its usual name

        images = images.localCheckpoint()
        if images.isEmpty():
            return None
        whole, partial = images.where(F.size(LACKING) == 0), images.where(F.size(LACKING) > 0)
        known = whole
        while not partial.isEmpty():  # a key that was changed again and again is known step by step
            step = self._filled(partial, [_Source(known, True)]).localCheckpoint()
            found = step.where(F.col(_FOUND))
            if found.isEmpty():
                break
            known = known.unionByName(found.drop(_FOUND, _SOURCE))
            partial = step.where(~F.col(_FOUND)).drop(_FOUND, _SOURCE)
        if not self._cycle.truncated and not partial.isEmpty():
            there = self._cycle.target
            sources = [] if there is None else [_Source(self._cycle.spark.table(there), False)]
            step = self._filled(partial, sources)
            partial = self._looked_back(step.localCheckpoint()).drop(_FOUND, _SOURCE)
        (file,) = self._cycle.write(known.unionByName(partial), image=True)
        self.summary[self._image_key] = str(file.location())
        return self._image_rows(str(file.location()), int(file.fileSizeInBytes()), int(file.recordCount()))

    def _image_rows(self, path: str, size: int, rows: int) -> DataFrame:
        content = {
            "spec-id": 0, "content": "DATA", "file-path": path, "file-format": "PARQUET", "partition": {},
            "file-size-in-bytes": size, "record-count": rows,
        }  # fmt: skip
        cycle = self._cycle
        return cycle.spark.table(cycle.stack.enter_context(staged_relation(cycle.table, [content])))

    # --- finding

    def _filled(self, pending: DataFrame, sources: Sequence[_Source]) -> DataFrame:
        """Pending rows with what the first source that has their key knows, and `_FOUND`."""
        from pyspark.sql import Window
        from pyspark.sql import functions as F  # noqa: N812 - its usual name

        cycle, names = self._cycle, self._cycle.metadata.column_names()
        fillable = [name for name in names if name not in cycle.keys]
        rows = pending.withColumn(_ROW, F.monotonically_increasing_id()).alias("p")
        newest: list[Column] = []
        for number, source in enumerate(sources):
            read = [F.col(quoted(name)).alias(f"s{number}_{name}") for name in names]
            found = source.rows.select(*read, F.lit(True).alias(f"s{number}"))
            condition = reduce(
                lambda one, other: one & other,
                [F.col(quoted(LOOK + key)) == F.col(quoted(f"s{number}_{key}")) for key in cycle.keys],
            )
            if source.moved_only:
                condition &= F.col(MOVED)
            if cycle.ordered:
                later = F.col(quoted(f"s{number}_{ORDER}")) > F.col(quoted(ORDER))
                condition &= ~F.coalesce(later, F.lit(False))
                newest.append(F.col(quoted(f"s{number}_{ORDER}")).desc_nulls_last())
            rows = rows.join(found, condition, "left")
        flags = [F.coalesce(F.col(f"s{number}"), F.lit(False)) for number in range(len(sources))]

        def taken(name: str) -> Column:
            value = F.lit(None)
            for number in reversed(range(len(sources))):
                value = F.when(flags[number], F.col(quoted(f"s{number}_{name}"))).otherwise(value)
            return F.when(F.array_contains(LACKING, name), value).otherwise(F.col(quoted(name))).alias(name)

        others = [LACKING, *(LOOK + key for key in cycle.keys), MOVED, OPTIONAL]
        made = rows.withColumn(_FOUND, reduce(lambda one, other: one | other, flags, F.lit(False)))
        if sources:  # a key that comes several times: one row of it
            place = Window.partitionBy(_ROW).orderBy(*(newest or [F.lit(0)]))
            made = made.withColumn("__rank", F.row_number().over(place)).where("__rank = 1")
        values = [taken(name) if name in fillable and name != ORDER else F.col(quoted(name)) for name in names]
        first = F.coalesce(*(F.when(flag, number) for number, flag in enumerate(flags)), F.lit(None).cast("int"))
        return made.select(*values, *(F.col(quoted(name)) for name in others), _FOUND, first.alias(_SOURCE))

    def _looked_back(self, rows: DataFrame) -> DataFrame:
        """Look for old keys whose delete was committed before, in the table as it was before each removal."""
        from pyspark.sql import functions as F  # noqa: N812 - its usual name

        cycle = self._cycle
        if cycle.truncated:
            return rows
        done, missing = rows.where(F.col(_FOUND) | ~F.col(MOVED)), rows.where(~F.col(_FOUND) & F.col(MOVED))
        for snapshot in self._removals() if not missing.isEmpty() else ():
            sources = []
            path = snapshot["summary"].get(self._image_key)
            if path is not None and (found := self._kept_image(path)) is not None:
                sources.append(_Source(found, True))
            parent = _before(cycle.metadata, snapshot)
            if parent is not None:
                table = relation(cycle.catalog, cycle.request.table)
                sources.append(_Source(cycle.spark.sql(f"SELECT * FROM {table} VERSION AS OF {parent}"), True))
            step = self._filled(missing.drop(_FOUND, _SOURCE), sources).localCheckpoint()
            done = done.unionByName(step.where(F.col(_FOUND)))
            missing = step.where(~F.col(_FOUND))
            if missing.isEmpty():
                break
        return done.unionByName(missing)

    def _removals(self) -> list[Snapshot]:
        """Snapshots of the ref that removed rows or kept images, the newest first."""
        metadata, ref = self._cycle.metadata, self._cycle.request.ref
        found = [
            snapshot
            for snapshot in metadata.ancestors(metadata.head(ref))
            if self._image_key in snapshot["summary"] or _before(metadata, snapshot) is not None
        ]
        return found[:_REMOVALS]

    def _kept_image(self, path: str) -> DataFrame | None:
        """The rows of a file that an earlier cycle kept; None: it is gone."""
        described = self._cycle.table.describe_file(path)
        if described is None:
            log.warning(
                "table %s: %s is gone, which held rows whose key was changed: clean-up of others has to spare it",
                self._cycle.request.table, path, extra={"action": "left_rows_gone"},
            )  # fmt: skip
            return None
        return self._image_rows(path, *described)

    def _warn_of_living(self, rows: DataFrame) -> None:
        """Say how many values are of rows that the table still has after this commit, though their key was changed.

        The partition of the old key lags behind: what it did to the row before was not read yet.
        """
        from pyspark.sql import functions as F  # noqa: N812 - its usual name

        if rows.isEmpty():
            return
        cycle = self._cycle
        keys = [F.col(quoted(LOOK + key)).alias(key) for key in cycle.keys]
        changes = cycle.staged([file for file in cycle.request.files if file.kind in CHANGES])
        changed = changes.select(*map(quoted, cycle.keys))
        count = rows.select(*keys).join(changed, list(cycle.keys), "left_anti").count()
        if count:
            log.warning(
                "table %s: %d rows have values of rows that are still there under another key: the change of that key "
                "was not read yet, so they may be older than they should be", cycle.request.table, count,
                extra={"action": "values_of_living_rows", "table": cycle.request.table},
            )  # fmt: skip

    def _count_unmatched(self, rows: DataFrame) -> None:
        from pyspark.sql import functions as F  # noqa: N812 - its usual name

        count = rows.count()
        if not count:
            return
        cycle = self._cycle
        self.unmatched += count
        required = [field["name"] for field in cycle.metadata.schema["fields"] if field["required"]]
        for name in required:
            lack = rows.where(F.array_contains(LACKING, name)).count()
            if lack:
                raise TableUnsuitableError(
                    cycle.request.table,
                    f"{lack} rows lack a value that the source did not send, for the required column {name}, and the "
                    "table does not have these rows",
                )
        log.warning(
            "table %s: %d rows have values that the source did not send, and that the table does not have: they are "
            "null", cycle.request.table, count, extra={"action": "values_unavailable", "table": cycle.request.table},
        )  # fmt: skip


def _before(metadata: TableMetadata, snapshot: Snapshot) -> int | None:
    """The snapshot before one that removed rows, if it is still there."""
    summary = snapshot["summary"]
    removes = not summary.keys().isdisjoint(("added-delete-files", "deleted-records"))
    removes = removes and summary.get("operation") != "replace"
    parent = snapshot.get("parent-snapshot-id")
    return parent if removes and parent in metadata.snapshots else None
