"""One change per key, where the changes of a key come in several Kafka partitions: the one that is last in the source.

Tasks reduce their own partitions. Here a window over the changes of the cycle picks the last one of each key by the
order that the source tells. A change that is older than a truncate, or than the row in the table, is left out: a
partition may lag behind the others.

Unavailable values may be in an earlier change of another partition, and so may the delete after which none counts.
Tasks therefore stage all changes of such keys, and they are put in the order of the source here.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING, Final

from connectors.iceberg.spark.completion import LACKING, LOOK, MOVED, OPTIONAL, CycleTable
from connectors.iceberg.spark.sql_names import quoted
from connectors.iceberg.staging.cdc import Change
from connectors.iceberg.staging.completion import CHANGE, LEAVES, OFFSET, OLD_KEY_COLUMN, SEPARATOR, UNAVAILABLE
from connectors.iceberg.staging.types import ORDER
from connectors.iceberg.table import StagedFile, StagedKind

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

log = logging.getLogger(__name__)

TRUNCATED: Final = "connect-py.truncated."  # and the connect group id: property that says where the last truncate stood
FILE = "__connect_py_file"  # where a change is staged; a file of last changes has each key once
_DELETE: Final = "__connect_py_delete"
_PLACE: Final = "__connect_py_place"  # in the order of the source, unique among the changes of a cycle
_STATE: Final = "__connect_py_state"
_OLD, _BEATEN, _LAST, _TIED = 0, 1, 2, 3
_CHAIN: Final = 50  # changes that a value is looked for through, back from the last one
_NEVER: Final = (1 << 63) - 1


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
        return _placed(self._cycle.staged(files)).join(last, [FILE, *self._cycle.keys], "left_semi")

    # --- judging

    def _changes(self, files: Sequence[StagedFile]) -> DataFrame:
        """Keys, order and place of every change in these files."""
        from pyspark.sql import functions as F  # noqa: N812 - its usual name

        frames = []
        for deletes in (False, True):
            group = [file for file in files if (file.kind is StagedKind.DELETES) is deletes]
            if group:
                rows = _placed(self._cycle.staged(group))
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

    # --- unavailable values within the cycle

    def pending(self, patches: Sequence[StagedFile], history: Sequence[StagedFile]) -> DataFrame | None:
        """The last changes that lack values, filled as far as the cycle knows them, as of `CycleTable.pending`."""
        from pyspark.sql import functions as F  # noqa: N812 - its usual name

        if not patches:
            return None
        assert self._judged is not None  # `judge` comes first
        whole = self._whole(history)
        last = self._judged.where(F.col(_STATE) == _LAST).select(FILE, *map(quoted, self._cycle.keys))
        rows = whole.where(F.size(LACKING) > 0).join(last, [FILE, *self._cycle.keys], "left_semi")
        return self._traced(rows, whole)

    def images(self, history: Sequence[StagedFile]) -> DataFrame | None:
        """The rows as they stood when their key was changed, as of `CycleTable.pending`; None: no key was changed."""
        from pyspark.sql import Window
        from pyspark.sql import functions as F  # noqa: N812 - its usual name

        if not any(file.moved for file in history):
            return None
        whole = self._whole(history)
        following = Window.partitionBy(*(quoted(key) for key in self._cycle.keys)).orderBy(_PLACE)
        leaves = F.coalesce(F.lead(LEAVES).over(following), F.lit(False))
        rows = whole.withColumn("__leaves", leaves).where(F.col("__leaves") & ~F.col(_DELETE)).drop("__leaves")
        return self._traced(rows, whole)

    def _whole(self, history: Sequence[StagedFile]) -> DataFrame:
        """All changes of the cycle that count, with their place in the order of the source."""
        from pyspark.sql import Window
        from pyspark.sql import functions as F  # noqa: N812 - its usual name

        cycle = self._cycle
        columns = [F.col(quoted(name)) for name in self._names if name != ORDER]
        old_keys = [F.col(quoted(OLD_KEY_COLUMN + key)) for key in cycle.keys]
        order = F.coalesce(F.col(ORDER), F.lit("")).alias(ORDER)
        frames = []
        groups: dict[tuple[frozenset[str], StagedKind, bool], list[StagedFile]] = {}
        for file in self._files:
            if file.kind in (StagedKind.ROWS, StagedKind.DELETES, StagedKind.PATCHES):
                groups.setdefault((cycle.lacking(file), file.kind, file.optional), []).append(file)
        for (lacking, kind, optional), group in groups.items():
            keys_only = kind is StagedKind.DELETES
            rows = _placed(cycle.staged(group))
            read = [c if not keys_only or n in cycle.keys else F.lit(None).cast(rows.schema[n].dataType).alias(n)
                    for n, c in zip([n for n in self._names if n != ORDER], columns, strict=True)]  # fmt: skip
            frames.append(
                rows.select(
                    *read, order, F.array(*map(F.lit, sorted(lacking))).cast("array<string>").alias(LACKING),
                    F.lit(keys_only).alias(_DELETE), F.lit(_NEVER).alias(OFFSET), *old_keys,
                    F.lit(False).alias(LEAVES), F.lit(optional).alias(OPTIONAL), FILE,
                )
            )  # fmt: skip
        if history:
            rows = _placed(cycle.staged(history))
            rows = rows.withColumn(_DELETE, F.col(CHANGE) == int(Change.DELETE))
            # A delete that begins a change of its key may be the last change of its key, and is staged as such too.
            repeats = F.coalesce(F.col(LEAVES), F.lit(False)) & F.col(_DELETE)
            names = F.filter(F.split(F.coalesce(F.col(UNAVAILABLE), F.lit("")), SEPARATOR), lambda name: name != "")
            frames.append(
                rows.select(
                    *columns, order, names.alias(LACKING), _DELETE, OFFSET, *old_keys, repeats.alias(LEAVES),
                    F.lit(False).alias(OPTIONAL), FILE,
                )
            )  # fmt: skip
        whole = reduce(lambda one, other: one.unionByName(other), frames)
        whole = self._without_old(whole).where(F.col(_STATE).isNull()).drop(_STATE)
        place = Window.orderBy(F.col(ORDER), F.col(OFFSET), F.col(_DELETE).desc())
        return whole.withColumn(_PLACE, F.row_number().over(place)).localCheckpoint()

    def _traced(self, rows: DataFrame, whole: DataFrame) -> DataFrame:
        """Rows with values of the changes before them; where the cycle ends, under which key the rest may be found.

        A value is taken from the newest earlier change of the key that has it, unless the row was deleted in between.
        A row whose key was changed goes on with the changes of the old key, before the delete that was part of it.
        """
        from pyspark.sql import Window
        from pyspark.sql import functions as F  # noqa: N812 - its usual name

        keys = list(self._cycle.keys)
        came = F.col(quoted(OLD_KEY_COLUMN + keys[0])).isNotNull()
        look = [F.coalesce(F.col(quoted(OLD_KEY_COLUMN + key)), F.col(quoted(key))).alias(LOOK + key) for key in keys]
        state = rows.select(
            *(F.col(quoted(name)) for name in self._names), LACKING, OPTIONAL, *look,
            F.col(_PLACE).alias("__own"), F.col(_PLACE).alias("__at"), came.alias("__came"),
            (F.size(LACKING) > 0).alias("__open"),
        ).localCheckpoint()  # fmt: skip
        values = [name for name in self._names if name not in keys and name != ORDER]
        earlier = whole.select(
            *(F.col(quoted(name)).alias(f"e_{name}") for name in [*keys, *values]),
            F.col(LACKING).alias("e_lacking"), F.col(_DELETE).alias("e_delete"), F.col(_PLACE).alias("e_place"),
            *(F.col(quoted(OLD_KEY_COLUMN + key)).alias(f"e_old_{key}") for key in keys),
        )  # fmt: skip
        for _ in range(_CHAIN):
            if state.where("__open").isEmpty():
                break
            condition = reduce(
                lambda one, other: one & other,
                [F.col(quoted(LOOK + key)) == F.col(quoted(f"e_{key}")) for key in keys],
            )
            condition &= F.col("__open") & (F.col("e_place") < F.col("__at"))
            condition &= ~(F.col("__came") & F.col("e_delete"))
            newest = Window.partitionBy("__own").orderBy(F.col("e_place").desc_nulls_last())
            joined = state.join(earlier, condition, "left").withColumn("__rank", F.row_number().over(newest))
            joined = joined.where("__rank = 1")
            found = F.col("e_place").isNotNull() & ~F.coalesce(F.col("e_delete"), F.lit(True))
            moves = F.col(quoted(f"e_old_{keys[0]}")).isNotNull()

            def value(name: str, found: Column = found) -> Column:
                known = found & F.array_contains(LACKING, name) & ~F.array_contains("e_lacking", name)
                return F.when(known, F.col(quoted(f"e_{name}"))).otherwise(F.col(quoted(name))).alias(name)

            def look_for(key: str, moved: Column = found & moves) -> Column:
                there = F.when(moved, F.col(quoted(f"e_old_{key}")))
                return there.otherwise(F.col(quoted(LOOK + key))).alias(LOOK + key)

            left = F.when(found, F.array_intersect(LACKING, "e_lacking")).otherwise(F.col(LACKING))
            state = joined.select(
                *(value(name) if name in values else F.col(quoted(name)) for name in self._names),
                left.alias(LACKING), OPTIONAL,
                *map(look_for, keys),
                "__own", F.coalesce(F.col("e_place"), F.col("__at")).alias("__at"),
                F.when(found, moves).otherwise(F.col("__came")).alias("__came"),
                (found & (F.size(left) > 0)).alias("__open"),
            ).localCheckpoint()  # fmt: skip
        same = reduce(lambda one, other: one & other, [F.col(quoted(LOOK + key)) == F.col(quoted(key)) for key in keys])
        return state.select(
            *(quoted(name) for name in self._names), LACKING, *(quoted(LOOK + key) for key in keys),
            (~same).alias(MOVED), OPTIONAL,
        )  # fmt: skip


def _placed(rows: DataFrame) -> DataFrame:
    """Rows with the file that stages each."""
    from pyspark.sql import functions as F  # noqa: N812 - its usual name

    return rows.withColumn(FILE, F.input_file_name())
