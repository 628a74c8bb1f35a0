"""Expectations: checks of a commit's rows, which Spark evaluates before the commit.

Conditions on rows are counted in one pass over the rows of the commit. Queries see four views:

| view | rows |
|---|---|
| `changed` | those that the commit adds or replaces others with, as the table will have them |
| `deleted` | the keys that it removes |
| `before` | the table as readers of the commit ref see it now, with what is not published |
| `after` | the table as the commit leaves it |
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import TYPE_CHECKING, Final

from connectors.iceberg.catalog.java_errors import is_statement_error, java_exception_of
from connectors.iceberg.commit.cycle_rows import CycleRows
from connectors.iceberg.commit.rules.rule import CommitRule, RuleRun
from connectors.iceberg.commit.views import (
    as_views,
    keys_deleted,
    rows_after,
    rows_before,
    rows_changed,
    without_paths,
)
from connectors.iceberg.config.expectations import Expectation, ExpectationAction
from connectors.iceberg.config.keys import EXPECT_PREFIX
from connectors.iceberg.errors import ExpectationFailedError, TableUnsuitableError
from connectors.iceberg.protocol.commit_request import CommitOutcome, CommitRequest

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from connectors.iceberg.commit.attempt import Attempt
    from connectors.iceberg.commit.cycle_table import CycleTable

NAMES: Final = "_expectations"  # column of rejected rows: which were not met


class Expectations(CommitRule):
    """Counts rows that do not meet conditions, leaves them out, or refuses or holds the commit."""

    def begin(self, request: CommitRequest) -> RuleRun | None:
        """Return the hooks if the request has expectations."""
        return _ExpectationsRun() if request.expectations else None


class _ExpectationsRun(RuleRun):
    changes_rows = True

    def rows(self, cycle: CycleTable, rows: CycleRows) -> CycleRows:
        """Leave out the rows that do not meet the conditions."""
        check = cycle.findings[ExpectationCheck] = ExpectationCheck(
            cycle.request.table, cycle.request.expectations
        )
        if rows.is_empty:
            return rows
        kept = check.leave_out(cycle.spark.table(cycle.relation_of(rows.staged, rows.written)))
        if kept is None:
            return rows
        written = cycle.write(kept)
        cycle.supersede(rows.written)
        return dataclasses.replace(rows, staged=[], written=written)

    def inspect(self, attempt: Attempt) -> None:
        """Run the queries on the table before and after the change."""
        check = attempt.cycle.findings.get(ExpectationCheck)
        if check is not None and check.has_queries:
            check.ask(
                attempt.cycle.spark,
                {
                    "changed": rows_changed(attempt),
                    "deleted": keys_deleted(attempt),
                    "before": rows_before(attempt),
                    "after": rows_after(attempt),
                },
            )

    def outcome(self, attempt: Attempt, outcome: CommitOutcome) -> CommitOutcome:
        """Report the expectations that were not met."""
        check = attempt.cycle.findings.get(ExpectationCheck)
        return outcome if check is None else dataclasses.replace(outcome, failed=check.failed)


class ExpectationCheck:
    """The expectations of one attempt at a commit."""

    def __init__(self, table: str, expectations: Sequence[Expectation]) -> None:
        """`expectations`: with the actions that count for this commit."""
        self._table = table
        self._conditions = [each for each in expectations if not each.is_query]
        self._queries = [each for each in expectations if each.is_query]
        self._actions = {each.name: each.action for each in expectations}
        self.failed: dict[str, int] = {}  # rows by expectation that is not met; of a query 0
        self.rejected: DataFrame | None = None  # rows that are left out and kept, with `NAMES`

    @property
    def has_queries(self) -> bool:
        return bool(self._queries)

    @property
    def holds(self) -> bool:
        """Whether readers are not to see the commit."""
        return any(self._actions[name] is ExpectationAction.HOLD for name in self.failed)

    def leave_out(self, rows: DataFrame) -> DataFrame | None:
        """Count the rows that are not as expected; returns those that stay, or None if all do.

        Raises:
            ExpectationFailedError: An expectation that fails the task is not met.
            TableUnsuitableError: A condition cannot be applied to this table.
        """
        with without_paths(rows.sparkSession):
            return self._leave_out(rows)

    def _leave_out(self, rows: DataFrame) -> DataFrame | None:
        leaving = [each for each in self._conditions if each.action.leaves_out]
        found = self._count(rows, self._conditions)
        self.failed = found
        if not any(each.name in found for each in leaving):
            self._fail_if_asked()
            return None
        met = reduce(lambda one, other: one & other, (_met(each) for each in leaving))
        kept = rows.where(met)
        keeping = [
            each
            for each in leaving
            if each.action is ExpectationAction.DEAD_LETTER and each.name in found
        ]
        if keeping:
            self.rejected = self._rejected(rows, keeping)
        others = [each for each in self._conditions if not each.action.leaves_out]
        if any(each.name in found for each in others):  # of rows that stay only
            self.failed = {each.name: found[each.name] for each in leaving if each.name in found}
            self.failed |= self._count(kept, others)
        self._fail_if_asked()
        return kept

    def ask(self, spark: SparkSession, views: Mapping[str, DataFrame]) -> None:
        """Run the queries.

        Raises:
            ExpectationFailedError: One that fails the task is not met.
            TableUnsuitableError: One is not such a query.
        """
        with without_paths(spark), as_views(spark, views):
            for each in self._queries:
                with self._naming(each):
                    rows = spark.sql(f"SELECT * FROM (\n{each.sql}\n)").limit(2).collect()
                if len(rows) != 1 or len(rows[0]) != 1 or not isinstance(rows[0][0], bool | None):
                    raise TableUnsuitableError(
                        self._table,
                        f"{EXPECT_PREFIX}{each.name} must give one row with one boolean: nothing "
                        f"is committed",
                    )
                if not rows[0][0]:
                    self.failed[each.name] = 0
        self._fail_if_asked()

    def _count(self, rows: DataFrame, conditions: Sequence[Expectation]) -> dict[str, int]:
        if not conditions:
            return {}
        for each in conditions:
            with self._naming(each):
                rows.where(_met(each))  # is analyzed
        from pyspark.sql import functions as F  # noqa: N812 - its usual name

        found = rows.agg(*(F.count_if(~_met(each)) for each in conditions)).first()
        assert found is not None  # an aggregate has one row
        return {
            each.name: int(count) for each, count in zip(conditions, found, strict=True) if count
        }

    def _rejected(self, rows: DataFrame, keeping: Sequence[Expectation]) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: N812 - its usual name

        names = F.concat_ws(",", *(F.when(~_met(each), F.lit(each.name)) for each in keeping))
        return rows.withColumn(NAMES, names).where(F.col(NAMES) != "")

    def _fail_if_asked(self) -> None:
        named = [name for name in self.failed if self._actions[name] is ExpectationAction.FAIL]
        if named:
            raise ExpectationFailedError(
                self._table, described({name: self.failed[name] for name in named})
            )

    @contextmanager
    def _naming(self, expectation: Expectation) -> Iterator[None]:
        """Errors of Spark name the expectation."""
        try:
            yield
        except Exception as error:
            if not is_statement_error(error):
                raise
            exception = java_exception_of(error)
            why = str(exception.getMessage() or "").split("\n", 1)[0]
            raise TableUnsuitableError(
                self._table,
                f"{EXPECT_PREFIX}{expectation.name} cannot be evaluated, nothing is committed: "
                f"{why}",
            ) from error


def described(failed: Mapping[str, int]) -> str:
    """What was not met, for people."""
    return ", ".join(f"{name} ({count} rows)" if count else name for name, count in failed.items())


def _met(expectation: Expectation) -> Column:
    """Whether a row is as expected: a condition that is null is not met."""
    from pyspark.sql import functions as F  # noqa: N812 - its usual name

    # parsed alone: a text cannot end it and add others
    return F.coalesce(F.expr(expectation.sql), F.lit(False))
