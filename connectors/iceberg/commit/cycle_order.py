"""Finds the last change to each key if its changes are spread over several Kafka partitions.

Each task determines the last change to each key within its own partitions. A window function over
all changes in the cycle then selects the last change to each key in source order. Because a
partition may lag behind, changes that are older than a truncate or than the row in the table are
skipped.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING, Final

from connect_py.plurals import pluralize
from connectors.iceberg.catalog.sql_names import literal, quoted
from connectors.iceberg.commit.attempt import Attempt
from connectors.iceberg.conversion.types import ORDER
from connectors.iceberg.protocol.ledger import group_of
from connectors.iceberg.staging.staged_changes import PARTIAL
from connectors.iceberg.table.table import StagedFile, StagedKind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)

# prefix of the table property with the source order of the last truncate; the connect group ID
# follows
TRUNCATED: Final = "connect-py.truncated."
# Column with the path of the staged file that contains the change. Together with the key, the path
# identifies the last change to the key within its file.
FILE: Final = "__connect_py_file"
LAST: Final = "__connect_py_last"  # true for the last change to its key
_DELETE: Final = "__connect_py_delete"
_STATE: Final = "__connect_py_state"
_OLD, _SUPERSEDED, _LAST, _TIED = 0, 1, 2, 3
_NOT_NULL_ORDER: Final = f"coalesce({ORDER}, '') AS {ORDER}"


class UnorderedKeysError(Exception):
    """The last change to some keys is unknown.

    `rows` contains these keys and the files of their changes.
    """

    def __init__(self, rows: DataFrame) -> None:
        super().__init__("keys without an order")
        self.rows = rows


class CycleOrder:
    """Orders the changes in one commit attempt and selects the last change to each key."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._keys = [quoted(key) for key in attempt.keys]
        self._ranked: DataFrame | None = None
        name = TRUNCATED + group_of(attempt.request.property_key)
        last_truncate = attempt.metadata.properties.get(name, "")
        files = attempt.request.files
        truncates = [file.order for file in files if file.kind is StagedKind.TRUNCATES]
        self._truncate = max([last_truncate, *truncates])  # earlier changes are skipped
        if self._truncate != last_truncate:
            attempt.properties[name] = self._truncate

    def later_rows(self, rows: DataFrame) -> DataFrame | None:
        """Return the rows of the table that are newer than the last truncate.

        Return None if there was no truncate or if there are no such rows.
        """
        later = rows.where(f"{ORDER} > {literal(self._truncate)}")
        return None if not self._truncate or later.isEmpty() else later

    def rank(self, files: Sequence[StagedFile]) -> bool:
        """Determine the last change to each key. Return True if any change in the files is skipped.

        Raises:
            UnorderedKeysError: The last change to some keys is unknown.
        """
        of_key = f"PARTITION BY {_STATE} IS NULL, {', '.join(self._keys)}"
        newest = f"({of_key} ORDER BY {ORDER} DESC, {_DELETE})"
        rows = self._without_old(self._changes(files)).selectExpr(
            "*",
            f"row_number() OVER {newest} AS __rank",
            f"lead({ORDER}) OVER {newest} AS __next_order",
            f"lead({_DELETE}) OVER {newest} AS __next_delete",
            f"count(*) OVER ({of_key}) AS __count",
        )
        same_place = f"{ORDER} = __next_order AND {_DELETE} = __next_delete"
        state = (
            f"CASE WHEN {_STATE} IS NOT NULL THEN {_STATE} WHEN __rank > 1 THEN {_SUPERSEDED} "
            f"WHEN __count > 1 AND ({ORDER} = '' OR ({same_place})) THEN {_TIED} "
            f"ELSE {_LAST} END AS {_STATE}"
        )
        ranked = self._ranked = rows.selectExpr(*self._keys, ORDER, FILE, state).localCheckpoint()
        tied = ranked.where(f"{_STATE} = {_TIED}").select(*self._keys)
        if not tied.isEmpty():
            raise UnorderedKeysError(ranked.join(tied, self._attempt.keys, "left_semi"))
        older = self._attempt.older_changes = ranked.where(f"{_STATE} = {_OLD}").count()
        if older:
            log.info(
                "table %s: skipped %s older than a truncate or than the rows of the table",
                self._attempt.request.table,
                pluralize(older, "change that is", "changes that are"),
                extra={"action": "older_changes", "table": self._attempt.request.table},
            )
        return bool(older) or not ranked.where(f"{_STATE} = {_SUPERSEDED}").isEmpty()

    def last_rows(self, files: Sequence[StagedFile]) -> DataFrame:
        """Return the rows in these files that are the last changes to their keys."""
        rows = with_files(self._attempt.staged(files))
        return rows.join(self._last(), [FILE, *self._attempt.keys], "left_semi")

    def counting(self, rows: DataFrame) -> DataFrame:
        """Drop changes that are too old and add the column `LAST`.

        The column is true for the last change to each key, and null for other changes.
        """
        names = [quoted(name) for name in rows.columns if name != ORDER]
        rows = self._without_old(rows.selectExpr(*names, _NOT_NULL_ORDER))
        last = self._last().selectExpr("*", f"true AS {LAST}")
        return (
            rows.where(f"{_STATE} IS NULL")
            .drop(_STATE)
            .join(last, [FILE, *self._attempt.keys], "left")
        )

    def _last(self) -> DataFrame:
        assert self._ranked is not None  # `rank` must be called first
        return self._ranked.where(f"{_STATE} = {_LAST}").select(FILE, *self._keys)

    def _changes(self, files: Sequence[StagedFile]) -> DataFrame:
        """Return the key, order, and file of every change in these files."""
        frames = []
        for kind in (StagedKind.ROWS, StagedKind.DELETES, StagedKind.CHANGES):
            if group := [file for file in files if file.kind is kind]:
                rows = with_files(self._attempt.staged(group))
                if kind is StagedKind.CHANGES:
                    rows = rows.where(PARTIAL)
                delete = f"{str(kind is StagedKind.DELETES).lower()} AS {_DELETE}"
                frames.append(rows.selectExpr(*self._keys, _NOT_NULL_ORDER, delete, FILE))
        return reduce(lambda left, right: left.unionByName(right), frames)

    def _without_old(self, changes: DataFrame) -> DataFrame:
        """Add the column `_STATE`, which marks changes that are too old.

        A change is too old if a truncate or the row in the table is newer.
        """
        old = f"{ORDER} < {literal(self._truncate)}"
        if self._attempt.target is not None:
            rows = self._attempt.spark.table(self._attempt.target).where(f"{ORDER} IS NOT NULL")
            newest = rows.groupBy(*self._keys).agg({ORDER: "max"})
            newest = newest.withColumnRenamed(f"max({ORDER})", "__newest")
            changes = changes.join(newest, self._attempt.keys, "left")
            old += f" OR coalesce(__newest > {ORDER}, false)"
        state = f"CASE WHEN {ORDER} != '' AND ({old}) THEN {_OLD} END AS {_STATE}"
        return changes.selectExpr("*", state).drop("__newest")


def with_files(rows: DataFrame) -> DataFrame:
    """Add a column with the staged file that contains each row."""
    return rows.selectExpr("*", f"input_file_name() AS {FILE}")
