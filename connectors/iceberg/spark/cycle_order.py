"""One change per key, where the changes of a key come in several Kafka partitions: the one that is last in the source.

Tasks reduce their own partitions. Here a window over the changes of the cycle picks the last one of each key by the
order that the source tells. A change that is older than a truncate, or than the row in the table, is left out: a
partition may lag behind the others.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING, Final

from connectors.iceberg.spark.cycle_table import CycleTable
from connectors.iceberg.spark.sql_names import quoted
from connectors.iceberg.staging.staged_changes import PARTIAL
from connectors.iceberg.staging.types import ORDER
from connectors.iceberg.table import StagedFile, StagedKind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)

TRUNCATED: Final = "connect-py.truncated."  # and the connect group id: property that says where the last truncate stood
FILE = "__connect_py_file"  # where a change is staged; a file of last changes has each key once
_DELETE: Final = "__connect_py_delete"
LAST: Final = "__connect_py_last"
_STATE: Final = "__connect_py_state"
_OLD, _BEATEN, _LAST, _TIED = 0, 1, 2, 3


class UnorderedKeysError(Exception):
    """Nothing says which of a key's changes is the last; `rows` has the keys and the files of some of them."""

    def __init__(self, rows: DataFrame) -> None:
        super().__init__("keys without an order")
        self.rows = rows


class CycleOrder:
    """For one attempt at a commit with ordering columns."""

    def __init__(self, cycle: CycleTable, files: Sequence[StagedFile]) -> None:
        self._cycle = cycle
        self._files = files
        self._names = cycle.metadata.column_names()
        self._property = TRUNCATED + cycle.request.property_key.rpartition("ledger.")[2]
        known = cycle.metadata.properties.get(self._property, "")
        truncates = [file.order for file in cycle.request.files if file.kind is StagedKind.TRUNCATES]
        self._truncated = bool(truncates)
        self.limit = max([known, *truncates])
        self.properties = {self._property: self.limit} if truncates and self.limit != known else {}
        self.older = 0
        self._judged: DataFrame | None = None

    def later_rows(self, rows: DataFrame) -> DataFrame | None:
        """Those of the table's rows that came after the truncate of this cycle; None: there are none."""
        from pyspark.sql import functions as F  # noqa: N812 - its usual name

        later = rows.where(F.col(ORDER) > self.limit)
        return None if not self.limit or later.isEmpty() else later

    def judge(self, files: Sequence[StagedFile]) -> bool:
        """Find the last change of each key among these files; returns whether some row is left out.

        Raises:
            UnorderedKeysError: Nothing says which of a key's changes is the last.
        """
        from pyspark.sql import Window
        from pyspark.sql import functions as F  # noqa: N812 - its usual name

        changes = self._without_old(self._changes(files))
        counted = changes.withColumn("__there", F.col(_STATE).isNull())
        keys = [F.col(quoted(key)) for key in self._cycle.keys]
        newest = Window.partitionBy("__there", *keys).orderBy(F.col(ORDER).desc(), F.col(_DELETE).asc())
        every = Window.partitionBy("__there", *keys)
        ranked = (
            counted.withColumn("__rank", F.row_number().over(newest))
            .withColumn("__next_order", F.lead(ORDER).over(newest))
            .withColumn("__next_delete", F.lead(_DELETE).over(newest))
            .withColumn("__count", F.count("*").over(every))
        )
        unsaid = (F.col("__count") > 1) & (
            (F.col(ORDER) == "")
            | ((F.col(ORDER) == F.col("__next_order")) & (F.col(_DELETE) == F.col("__next_delete")))
        )
        state = (
            F.when(F.col(_STATE).isNotNull(), F.col(_STATE))
            .when(F.col("__rank") > 1, _BEATEN)
            .when(unsaid, _TIED)
            .otherwise(_LAST)
        )
        judged = ranked.select(*keys, ORDER, FILE, state.alias(_STATE)).localCheckpoint()
        self._judged = judged
        if not (tied := judged.where(F.col(_STATE) == _TIED)).isEmpty():
            raise UnorderedKeysError(judged.join(tied.select(*keys), list(self._cycle.keys), "left_semi"))
        self.older = judged.where(F.col(_STATE) == _OLD).count()
        if self.older:
            log.info(
                "table %s: %d changes are older than a truncate or than the rows that are there: they are left out",
                self._cycle.request.table, self.older,
                extra={"action": "older_changes", "table": self._cycle.request.table},
            )  # fmt: skip
        return bool(self.older) or not judged.where(F.col(_STATE) == _BEATEN).isEmpty()

    def last_rows(self, files: Sequence[StagedFile]) -> DataFrame:
        """The rows of these files that are the last changes of their keys."""
        from pyspark.sql import functions as F  # noqa: N812 - its usual name

        assert self._judged is not None  # `judge` comes first
        last = self._judged.where(F.col(_STATE) == _LAST).select(FILE, *map(quoted, self._cycle.keys))
        return placed(self._cycle.staged(files)).join(last, [FILE, *self._cycle.keys], "left_semi")

    # --- judging

    def _changes(self, files: Sequence[StagedFile]) -> DataFrame:
        """Keys, order and place of every change in these files."""
        from pyspark.sql import functions as F  # noqa: N812 - its usual name

        frames = []
        for kind in (StagedKind.ROWS, StagedKind.DELETES, StagedKind.CHANGES):
            if group := [file for file in files if file.kind is kind]:
                rows = placed(self._cycle.staged(group))
                if kind is StagedKind.CHANGES:
                    rows = rows.where(F.col(PARTIAL))
                deletes = kind is StagedKind.DELETES
                keys = [F.col(quoted(key)) for key in self._cycle.keys]
                order = F.coalesce(F.col(ORDER), F.lit("")).alias(ORDER)
                frames.append(rows.select(*keys, order, F.lit(deletes).alias(_DELETE), FILE))
        return reduce(lambda one, other: one.unionByName(other), frames)

    def _without_old(self, changes: DataFrame) -> DataFrame:
        """The changes with `_STATE`, which tells those older than a truncate or, without one, than the table's row."""
        from pyspark.sql import functions as F  # noqa: N812 - its usual name

        said = F.col(ORDER) != ""
        old = said & (F.col(ORDER) < self.limit)
        if self._cycle.target is not None and not self._truncated:
            keys = list(self._cycle.keys)
            there = self._cycle.spark.table(self._cycle.target).where(F.col(ORDER).isNotNull())
            newest = there.groupBy(*map(quoted, keys)).agg(F.max(ORDER).alias("__newest"))
            changes = changes.join(newest, keys, "left")
            old |= said & F.coalesce(F.col("__newest") > F.col(ORDER), F.lit(False))
        made = changes.withColumn(_STATE, F.when(old, _OLD))
        return made.drop("__newest")

    # --- for rows that are completed

    def counting(self, rows: DataFrame) -> DataFrame:
        """Those of the cycle's changes that are not too old, with `LAST`: whether it is the last one of its key."""
        from pyspark.sql import functions as F  # noqa: N812 - its usual name

        assert self._judged is not None  # `judge` comes first
        order = F.coalesce(F.col(ORDER), F.lit(""))
        rows = self._without_old(rows.withColumn(ORDER, order)).where(F.col(_STATE).isNull()).drop(_STATE)
        last = self._judged.where(F.col(_STATE) == _LAST)
        last = last.select(FILE, *map(quoted, self._cycle.keys), F.lit(True).alias(LAST))
        return rows.join(last, [FILE, *self._cycle.keys], "left")


def placed(rows: DataFrame) -> DataFrame:
    """Rows with the file that stages each."""
    from pyspark.sql import functions as F  # noqa: N812 - its usual name

    return rows.withColumn(FILE, F.input_file_name())
