"""One change per key, where the changes of a key come in several Kafka partitions: the one that is
last in the source.

Tasks reduce their own partitions. Here a window over the changes of the cycle picks the last one of
each key by the order that the source tells. A change that is older than a truncate, or than the row
in the table, is left out: a partition may lag behind the others.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING, Final

from connectors.iceberg.catalog.sql_names import literal, quoted
from connectors.iceberg.commit.cycle_table import CycleTable
from connectors.iceberg.conversion.types import ORDER
from connectors.iceberg.protocol.ledger import group_of
from connectors.iceberg.staging.staged_changes import PARTIAL
from connectors.iceberg.table.table import StagedFile, StagedKind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)

# and the connect group id: property that says where the last truncate stood
TRUNCATED: Final = "connect-py.truncated."
FILE = "__connect_py_file"  # where a change is staged; a file of last changes has each key once
_DELETE: Final = "__connect_py_delete"
LAST: Final = "__connect_py_last"
_STATE: Final = "__connect_py_state"
_OLD, _SUPERSEDED, _LAST, _TIED = 0, 1, 2, 3
_ORDER_TEXT: Final = f"coalesce({ORDER}, '') AS {ORDER}"


class UnorderedKeysError(Exception):
    """Nothing says which of a key's changes is the last; `rows` has the keys and the files of some
    of them."""

    def __init__(self, rows: DataFrame) -> None:
        super().__init__("keys without an order")
        self.rows = rows


class CycleOrder:
    """For one attempt at a commit with ordering columns."""

    def __init__(self, cycle: CycleTable) -> None:
        self._cycle = cycle
        self._keys = [quoted(key) for key in cycle.keys]
        name = TRUNCATED + group_of(cycle.request.property_key)
        known = cycle.metadata.properties.get(name, "")
        truncates = [
            file.order for file in cycle.request.files if file.kind is StagedKind.TRUNCATES
        ]
        self.limit = max([known, *truncates])
        self.properties = {name: self.limit} if truncates and self.limit != known else {}
        self.older = 0
        self._judged: DataFrame | None = None

    def later_rows(self, rows: DataFrame) -> DataFrame | None:
        """Those of the table's rows that came after the truncate of this cycle; None: there are
        none."""
        later = rows.where(f"{ORDER} > {literal(self.limit)}")
        return None if not self.limit or later.isEmpty() else later

    def judge(self, files: Sequence[StagedFile]) -> bool:
        """Find the last change of each key among these files; returns whether some row is left out.

        Raises:
            UnorderedKeysError: Nothing says which of a key's changes is the last.
        """
        of_key = f"PARTITION BY {_STATE} IS NULL, {', '.join(self._keys)}"
        newest = f"({of_key} ORDER BY {ORDER} DESC, {_DELETE})"
        ranked = self._without_old(self._changes(files)).selectExpr(
            "*",
            f"row_number() OVER {newest} AS __rank",
            f"lead({ORDER}) OVER {newest} AS __next_order",
            f"lead({_DELETE}) OVER {newest} AS __next_delete",
            f"count(*) OVER ({of_key}) AS __count",
        )
        unsaid = (
            f"__count > 1 AND ({ORDER} = '' OR ({ORDER} = __next_order AND {_DELETE} = "
            f"__next_delete))"
        )
        state = f"WHEN __rank > 1 THEN {_SUPERSEDED} WHEN {unsaid} THEN {_TIED} ELSE {_LAST}"
        state = f"CASE WHEN {_STATE} IS NOT NULL THEN {_STATE} {state} END AS {_STATE}"
        judged = self._judged = ranked.selectExpr(*self._keys, ORDER, FILE, state).localCheckpoint()
        if not (tied := judged.where(f"{_STATE} = {_TIED}")).isEmpty():
            raise UnorderedKeysError(
                judged.join(tied.select(*self._keys), list(self._cycle.keys), "left_semi")
            )
        self.older = judged.where(f"{_STATE} = {_OLD}").count()
        if self.older:
            log.info(
                "table %s: %d changes are older than a truncate or than the rows that are there: "
                "they are left out",
                self._cycle.request.table,
                self.older,
                extra={"action": "older_changes", "table": self._cycle.request.table},
            )
        return bool(self.older) or not judged.where(f"{_STATE} = {_SUPERSEDED}").isEmpty()

    def last_rows(self, files: Sequence[StagedFile]) -> DataFrame:
        """The rows of these files that are the last changes of their keys."""
        return placed(self._cycle.staged(files)).join(
            self._last(), [FILE, *self._cycle.keys], "left_semi"
        )

    def counting(self, rows: DataFrame) -> DataFrame:
        """Those of the cycle's changes that are not too old, with `LAST`: whether it is the last
        one of its key."""
        others = [quoted(name) for name in rows.columns if name != ORDER]
        rows = (
            self._without_old(rows.selectExpr(*others, _ORDER_TEXT))
            .where(f"{_STATE} IS NULL")
            .drop(_STATE)
        )
        return rows.join(
            self._last().selectExpr("*", f"true AS {LAST}"), [FILE, *self._cycle.keys], "left"
        )

    def _last(self) -> DataFrame:
        assert self._judged is not None  # `judge` comes first
        return self._judged.where(f"{_STATE} = {_LAST}").select(FILE, *self._keys)

    def _changes(self, files: Sequence[StagedFile]) -> DataFrame:
        """Keys, order and place of every change in these files."""
        frames = []
        for kind in (StagedKind.ROWS, StagedKind.DELETES, StagedKind.CHANGES):
            if group := [file for file in files if file.kind is kind]:
                rows = placed(self._cycle.staged(group))
                if kind is StagedKind.CHANGES:
                    rows = rows.where(PARTIAL)
                deletes = str(kind is StagedKind.DELETES).lower()
                frames.append(
                    rows.selectExpr(*self._keys, _ORDER_TEXT, f"{deletes} AS {_DELETE}", FILE)
                )
        return reduce(lambda one, other: one.unionByName(other), frames)

    def _without_old(self, changes: DataFrame) -> DataFrame:
        """The changes with `_STATE`, which tells those older than a truncate or, without one, than
        the table's row."""
        old = f"{ORDER} < {literal(self.limit)}"
        if self._cycle.target is not None:
            there = self._cycle.spark.table(self._cycle.target).where(f"{ORDER} IS NOT NULL")
            newest = (
                there.groupBy(*self._keys)
                .agg({ORDER: "max"})
                .withColumnRenamed(f"max({ORDER})", "__newest")
            )
            changes = changes.join(newest, list(self._cycle.keys), "left")
            old += f" OR coalesce(__newest > {ORDER}, false)"
        made = changes.selectExpr(
            "*", f"CASE WHEN {ORDER} != '' AND ({old}) THEN {_OLD} END AS {_STATE}"
        )
        return made.drop("__newest")


def placed(rows: DataFrame) -> DataFrame:
    """Rows with the file that stages each."""
    return rows.selectExpr("*", f"input_file_name() AS {FILE}")
