"""The user's own step over the rows of a commit: what it returns joins the table in their place, by
the same swap.

It runs before the `MERGE`, on one head, and again if the commit must begin again. So it must depend
on its rows and on tables that it reads, and have no effects of its own. A failure commits nothing,
and the table's partitions wait.
"""

from __future__ import annotations

import dataclasses
import importlib
import logging
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JNetworkError

from connect_py.api.errors import ConnectError
from connectors.iceberg.catalog.java_errors import is_statement_error, java_exception_of
from connectors.iceberg.catalog.sql_names import quoted
from connectors.iceberg.catalog.table_update import StaleAttemptError
from connectors.iceberg.commit.cycle_rows import CycleRows
from connectors.iceberg.commit.output_columns import (
    SchemaEvolvedError,
    iceberg_fields,
    in_columns_of,
    last_named,
    wanted_changes,
)
from connectors.iceberg.commit.rules.rule import CommitRule, RuleRun
from connectors.iceberg.commit.views import as_views, without_paths
from connectors.iceberg.config.cycle_step import STAGED, CycleStep
from connectors.iceberg.errors import CatalogUnavailableError, TableUnsuitableError
from connectors.iceberg.protocol.commit_request import CommitRequest
from connectors.iceberg.protocol.faults import fault_point

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from connectors.iceberg.commit.cycle_table import CycleTable

log = logging.getLogger(__name__)

_SHOWN: Final = 3  # keys that a message names


class UserStep(CommitRule):
    """Lets the user's SQL or function replace the rows of a commit."""

    def begin(self, request: CommitRequest) -> RuleRun | None:
        """Return the hooks if the request has a step."""
        return None if request.step is None else _UserStepRun(request.step)


class _UserStepRun(RuleRun):
    changes_rows = True

    def __init__(self, step: CycleStep) -> None:
        self._step = step

    def rows(self, cycle: CycleTable, rows: CycleRows) -> CycleRows:
        """Write what the step returns for the rows. It may read the table."""
        if rows.is_empty:
            return rows
        fault_point("before_cycle_step")
        staged = cycle.own_columns(cycle.spark.table(cycle.relation_of(rows.staged, rows.written)))
        with transformed(cycle, self._step, staged) as output:
            written = cycle.write(output)
        cycle.supersede(rows.written)
        fault_point("after_cycle_step")
        return dataclasses.replace(rows, staged=[], written=written, reads_table=True)


@dataclass(frozen=True, slots=True)
class CycleFacts:
    """What a function learns of the commit."""

    table: str
    catalog: str  # its name in the session, for other tables
    commit_id: str
    summary: Mapping[str, str]  # of the snapshot: the ledger with the offsets among it
    keys: Sequence[str]  # columns of the key; empty: rows are appended


@contextmanager
def transformed(cycle: CycleTable, step: CycleStep, rows: DataFrame) -> Iterator[DataFrame]:
    """What the step makes of rows, in the table's columns. It runs once, however often the block
    reads its rows.

    Raises: TableUnsuitableError: It fails, also within the block; it returns keys that are null or
        twice, or columns
            that the table does not have and the policy refuses.
        SchemaChangesPendingError: Only a person may add these columns.
        SchemaEvolvedError: The table has them now.
    """
    request = cycle.request
    with naming(request.table, step.key):
        made = last_named(_called(cycle, step, rows))
        fields = iceberg_fields(cycle.java, made)
        begins = request.creates and cycle.metadata.head(request.ref) is None
        changes = wanted_changes(
            request, step.key, cycle.metadata, fields, begins=begins, of=request.table
        )
        if changes:
            cycle.table.evolve(changes)
            named = ", ".join(map(str, changes))
            log.info(
                "table %s: %s, for %s",
                request.table,
                named,
                step.key,
                extra={"action": "table_evolved"},
            )
            raise SchemaEvolvedError(named)
        made = in_columns_of(made, cycle.metadata.column_names())
        if not cycle.keys:
            yield made
            return
        made.persist()
        try:
            check_keys(request.table, step.key, cycle.keys, made)
            yield made
        finally:
            made.unpersist()


@contextmanager
def naming(table: str, key: str) -> Iterator[None]:
    """Errors of the user's code name its setting, also where Spark meets them later; those of the
    storage stay."""
    try:
        yield
    except (ConnectError, StaleAttemptError, Py4JNetworkError, ConnectionError):
        raise
    except Exception as error:
        error.add_note(f"while {key} ran")  # where a time limit ended it, that is the reason
        from pyspark.errors import PySparkException

        if isinstance(error, PySparkException) and error.getCondition() == "CANNOT_OPEN_SOCKET":
            raise CatalogUnavailableError(
                f"{table}: {key}: Spark did not answer: {_reason(error)}"
            ) from error
        if java_exception_of(error) is not None and not is_statement_error(error):
            raise
        raise TableUnsuitableError(
            table, f"{key} failed, nothing is committed: {_reason(error)}"
        ) from error


def _called(cycle: CycleTable, step: CycleStep, rows: DataFrame) -> DataFrame:
    if step.sql:
        with without_paths(cycle.spark), as_views(cycle.spark, {STAGED: rows}):
            return cycle.spark.sql(f"SELECT * FROM (\n{step.sql}\n)")
    module, _, name = step.function.partition(":")
    function = getattr(importlib.import_module(module), name)
    request = cycle.request
    facts = CycleFacts(
        request.table, cycle.catalog, request.commit_id, dict(request.summary), tuple(cycle.keys)
    )
    made: Any = function(rows, facts)
    if not hasattr(made, "selectExpr"):
        raise TypeError(f"{step.function} returned {type(made).__name__}, expected a DataFrame")
    found: DataFrame = made
    return found


def check_keys(table: str, setting: str, names: Sequence[str], rows: DataFrame) -> None:
    """Look at the keys of rows that a setting's query or function made.

    Raises:
        TableUnsuitableError: One of them is null or there twice.
    """
    keys = [quoted(key) for key in names]
    missing = " OR ".join(f"{key} IS NULL" for key in keys)
    wrong = rows.groupBy(*keys).count().where(f"count > 1 OR {missing}").limit(_SHOWN).collect()
    if wrong:
        named = ", ".join(str(tuple(row[key] for key in names)) for row in wrong)
        raise TableUnsuitableError(
            table,
            f"{setting} returns keys that are null, or several rows of one key ({named}): nothing "
            f"is committed",
        )


def _reason(error: Exception) -> str:
    """One line of Spark's, or the trace of the user's code."""
    if (exception := java_exception_of(error)) is not None:
        return str(exception.getMessage() or "").split("\n", 1)[0]
    last = traceback.extract_tb(error.__traceback__)[-1]
    return (
        f"{type(error).__name__}: {error} ({last.name}, line {last.lineno} of "
        f"{last.filename.rpartition('/')[2]})"
    )
