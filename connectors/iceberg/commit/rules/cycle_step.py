"""The user's step over the rows of a commit: the rows that it returns replace them, in the same
swap.

It runs before the `MERGE`, on one head, and again if the commit starts over. Therefore, it must
depend only on its rows and on tables that it reads, and have no side effects. A failure commits
nothing, and the table's partitions wait.
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
    """Facts about the commit, for a function."""

    table: str
    catalog: str  # its name in the session, for other tables
    commit_id: str
    summary: Mapping[str, str]  # of the snapshot: includes the ledger with the offsets
    keys: Sequence[str]  # columns of the key; empty: rows are appended


class UserStep(CommitRule):
    """Lets the user's SQL or function replace the rows of a commit. It may read the table."""

    changes_rows = True

    def change_rows(self, attempt: Attempt) -> None:
        """Write the rows that the step returns. It runs once.

        Raises:
            TableUnsuitableError: It fails; it returns keys that are null or duplicate, or columns
                that the table does not have and the policy refuses.
            SchemaChangesPendingError: Columns require approval.
            SchemaEvolvedError: The table has the columns now.
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
                    "table %s: %s, for %s",
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
