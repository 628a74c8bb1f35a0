"""`UserStep`: user SQL or a user function whose result replaces the rows of a commit.

Before the `MERGE`, the step runs against one snapshot of the table, the current head of the branch.
It runs again if the commit starts over. Therefore, its result must depend only on its input rows
and on tables that it reads, and it must not have side effects. If it fails, nothing is committed,
and the Kafka partitions that feed the table make no progress.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from connectors.iceberg.commit.attempt import Attempt
from connectors.iceberg.commit.rules.rule import CommitRule
from connectors.iceberg.commit.user_sql import (
    SchemaEvolvedError,
    as_views,
    checked,
    iceberg_fields,
    in_columns_of,
    last_named,
    naming,
    required_changes,
    without_paths,
)
from connectors.iceberg.config.cycle_step import STAGED, CycleStep
from connectors.iceberg.protocol.faults import fault_point

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CycleFacts:
    """Facts about a commit that are passed to a user function."""

    table: str
    catalog: str  # name of the catalog in the session, for reading other tables
    commit_id: str
    summary: Mapping[str, str]  # snapshot summary, including the ledger with the offsets
    keys: Sequence[str]  # key columns; empty if rows are appended


class UserStep(CommitRule):
    """Replaces the rows of a commit with the result of the user step, which may read the table."""

    changes_rows = True

    def change_rows(self, attempt: Attempt) -> None:
        """Run the step once, and write the rows that it returns.

        Raises:
            TableUnsuitableError: The step fails, returns null or duplicate keys, or returns columns
                that require a change that the schema evolution policy or Iceberg does not allow.
            SchemaChangesPendingError: New columns require approval.
            SchemaEvolvedError: The new columns were added to the table.
        """
        request, step = attempt.request, attempt.request.step
        if step is None or not attempt.rows.added:
            return
        fault_point("before_cycle_step")
        with naming(request.table, step.key):
            output = last_named(_call(attempt, step, attempt.added_rows()))
            changes = required_changes(
                request,
                step.key,
                attempt.table,
                iceberg_fields(attempt.catalog, output),
                begins=request.creates and attempt.head is None,
            )
            if changes:
                attempt.table.evolve(changes)
                names = ", ".join(map(str, changes))
                log.info(
                    "table %s: %s, required by %s",
                    request.table,
                    names,
                    step.key,
                    extra={"action": "table_evolved"},
                )
                raise SchemaEvolvedError(names)
            output = in_columns_of(output, attempt.table)
            with checked(request.table, step.key, attempt.keys, output):
                attempt.replace_rows(output)
        attempt.reads_table = True
        fault_point("after_cycle_step")


def _call(attempt: Attempt, step: CycleStep, rows: DataFrame) -> DataFrame:
    if step.sql:
        with without_paths(attempt.spark), as_views(attempt.spark, {STAGED: rows}):
            return attempt.spark.sql(f"SELECT * FROM (\n{step.sql}\n)")
    module, _, name = step.function.partition(":")
    function = getattr(importlib.import_module(module), name)
    request = attempt.request
    facts = CycleFacts(
        request.table,
        attempt.catalog.name,
        request.commit_id,
        dict(request.summary),
        tuple(attempt.keys),
    )
    output: DataFrame = function(rows, facts)
    if not hasattr(output, "selectExpr"):
        raise TypeError(f"{step.function} returned {type(output).__name__}, expected a DataFrame")
    return output
