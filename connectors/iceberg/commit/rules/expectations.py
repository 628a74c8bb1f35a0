"""Expectations: data quality checks that Spark evaluates before a commit.

An expectation is either a condition that each row must meet or a query. Rows that violate
conditions are counted in one pass over the rows in the commit. Queries can use four views:

| view | rows |
|---|---|
| `changed` | rows that the commit inserts or updates, with their new values |
| `deleted` | keys of the rows that the commit deletes |
| `before` | the table at the commit ref before the commit, including unpublished commits |
| `after` | the table after the commit |
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import TYPE_CHECKING, Final

from connect_py.plurals import pluralize
from connectors.iceberg.catalog.java_errors import is_statement_error, java_exception_of
from connectors.iceberg.commit.attempt import Attempt
from connectors.iceberg.commit.rules.rule import CommitRule
from connectors.iceberg.commit.user_sql import (
    as_views,
    keys_deleted,
    rows_after,
    rows_changed,
    without_paths,
)
from connectors.iceberg.config.expectations import Expectation, ExpectationAction
from connectors.iceberg.config.keys import EXPECT_PREFIX
from connectors.iceberg.errors import ExpectationFailedError, TableUnsuitableError
from connectors.iceberg.protocol.commit_request import CommitOutcome

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

NAMES: Final = "_expectations"  # column in rejected rows that lists the violated expectations


class Expectations(CommitRule):
    """Counts rows that violate expectations, and performs the configured actions.

    An action drops these rows, fails the commit, or holds it until a user approves it.
    """

    changes_rows = True

    def change_rows(self, attempt: Attempt) -> None:
        """Drop the rows that violate conditions whose action rejects rows."""
        request = attempt.request
        check = ExpectationCheck(request.table, request.expectations)
        attempt.findings[ExpectationCheck] = check
        if not attempt.rows.added:
            return
        rows = attempt.spark.table(attempt.relation_of(attempt.rows.added))
        with without_paths(attempt.spark):
            remaining_rows = check.leave_out(rows)
        if remaining_rows is not None:
            attempt.replace_rows(remaining_rows)

    def inspect(self, attempt: Attempt) -> None:
        """Run the queries on the table before and after the commit."""
        check: ExpectationCheck = attempt.findings[ExpectationCheck]
        if check.queries:
            views = {
                "changed": rows_changed(attempt),
                "deleted": keys_deleted(attempt),
                "before": attempt.head_rows(),
                "after": rows_after(attempt),
            }
            check.ask(attempt.spark, views)

    def outcome(self, attempt: Attempt, outcome: CommitOutcome) -> CommitOutcome:
        """Add the violated expectations to the outcome."""
        return dataclasses.replace(outcome, failed=attempt.findings[ExpectationCheck].failed)


class ExpectationCheck:
    """Evaluates the expectations of one commit attempt."""

    def __init__(self, table: str, expectations: Sequence[Expectation]) -> None:
        """Create a check. `ApprovalBranch.resolve` has adjusted the actions for this commit."""
        self._table = table
        self._conditions = [each for each in expectations if not each.is_query]
        self._actions = {each.name: each.action for each in expectations}
        self.queries = [each for each in expectations if each.is_query]
        self.failed: dict[str, int] = {}  # violated expectation -> row count, or 0 for a query
        self.rejected: DataFrame | None = None  # dead-letter rows, with the `NAMES` column

    @property
    def holds(self) -> bool:
        """True if the commit must be hidden from readers until it is approved."""
        return any(self._actions[name] is ExpectationAction.HOLD for name in self.failed)

    def leave_out(self, rows: DataFrame) -> DataFrame | None:
        """Count the rows that violate conditions, and drop the rows that must be rejected.

        Return the remaining rows, or None if no row was dropped.

        Raises:
            ExpectationFailedError: An expectation with the action `fail` is violated.
            TableUnsuitableError: A condition cannot be applied to this table.
        """
        self.failed = self._count(rows, self._conditions)
        filters = [each for each in self._conditions if each.action.rejects_rows]
        remaining_rows: DataFrame | None = None
        if any(each.name in self.failed for each in filters):
            remaining_rows = rows.where(reduce(lambda a, b: a & b, map(_is_met, filters)))
            rejecting = [
                each
                for each in filters
                if each.action is ExpectationAction.DEAD_LETTER and each.name in self.failed
            ]
            if rejecting:
                self.rejected = _rejected(rows, rejecting)
            counting = [each for each in self._conditions if not each.action.rejects_rows]
            if any(each.name in self.failed for each in counting):  # count only the remaining rows
                filtered = (each.name for each in filters if each.name in self.failed)
                counts = {name: self.failed[name] for name in filtered}
                self.failed = counts | self._count(remaining_rows, counting)
        self._raise_failures()
        return remaining_rows

    def ask(self, spark: SparkSession, views: Mapping[str, DataFrame]) -> None:
        """Run the queries.

        Raises:
            ExpectationFailedError: An expectation with the action `fail` is violated.
            TableUnsuitableError: A query cannot be evaluated or does not return one boolean.
        """
        with without_paths(spark), as_views(spark, views):
            for each in self.queries:
                with self._naming(each):
                    rows = spark.sql(f"SELECT * FROM (\n{each.sql}\n)").limit(2).collect()
                if len(rows) != 1 or len(rows[0]) != 1 or not isinstance(rows[0][0], bool | None):
                    raise TableUnsuitableError(
                        self._table,
                        f"{EXPECT_PREFIX}{each.name} must return one row with one boolean; nothing "
                        f"is committed",
                    )
                if not rows[0][0]:
                    self.failed[each.name] = 0
        self._raise_failures()

    def _count(self, rows: DataFrame, conditions: Sequence[Expectation]) -> dict[str, int]:
        if not conditions:
            return {}
        for each in conditions:
            with self._naming(each):
                rows.where(_is_met(each))  # Spark's analysis detects invalid conditions
        from pyspark.sql import functions as F  # noqa: N812 - local: the coordinator has no Spark

        counts = rows.agg(*(F.count_if(~_is_met(each)) for each in conditions)).first()
        assert counts is not None  # an aggregation returns one row
        return {
            each.name: int(count) for each, count in zip(conditions, counts, strict=True) if count
        }

    def _raise_failures(self) -> None:
        failures = {
            name: count
            for name, count in self.failed.items()
            if self._actions[name] is ExpectationAction.FAIL
        }
        if failures:
            raise ExpectationFailedError(self._table, described(failures))

    @contextmanager
    def _naming(self, expectation: Expectation) -> Iterator[None]:
        """Translate Spark errors in the `with` block into an error that names the expectation."""
        try:
            yield
        except Exception as error:
            if not is_statement_error(error):
                raise
            exception = java_exception_of(error)
            reason = str(exception.getMessage() or "").split("\n", 1)[0]
            raise TableUnsuitableError(
                self._table,
                f"{EXPECT_PREFIX}{expectation.name} cannot be evaluated, so nothing is committed: "
                f"{reason}",
            ) from error


def described(failed: Mapping[str, int]) -> str:
    """Return the violated expectations as a string for messages."""
    return ", ".join(
        f"{name} ({pluralize(count, 'row')})" if count else name for name, count in failed.items()
    )


def _rejected(rows: DataFrame, expectations: Sequence[Expectation]) -> DataFrame:
    """Return the rows that violate expectations, with a column that names the expectations."""
    from pyspark.sql import functions as F  # noqa: N812 - local: the coordinator has no Spark

    names = F.concat_ws(",", *(F.when(~_is_met(each), F.lit(each.name)) for each in expectations))
    return rows.withColumn(NAMES, names).where(F.col(NAMES) != "")


def _is_met(expectation: Expectation) -> Column:
    """Return a condition that is true if a row meets the expectation. Null counts as false."""
    from pyspark.sql import functions as F  # noqa: N812 - local: the coordinator has no Spark

    # parsed as a single expression, so the SQL cannot end it and start another one
    return F.coalesce(F.expr(expectation.sql), F.lit(False))
