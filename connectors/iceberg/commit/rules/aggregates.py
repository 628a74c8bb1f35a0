"""Aggregates: derived tables that each commit to a source table updates exactly once.

A commit to the source table performs these steps for each aggregate (rule 38 of the commit
protocol). The process may be killed between any two steps:

1. The query runs on the rows in the commit. Its result is written to data files of the aggregate
   that no snapshot references. A crash leaves orphan files, which the next epoch removes (rule 18),
   and possibly an empty aggregate.
2. The swap of the source table sets a property that contains the commit ID, the files, and the
   version of the aggregate that the query read. After a crash, the aggregate lags behind the source
   table, and the next load of the source table continues with step 3.
3. A separate commit merges the files into exactly that version of the aggregate (rule 16). A crash
   leaves nothing to clean up, because the commit is recognized by its ID (rule 17).

An aggregate that is out of sync is rebuilt from all rows of the source table with the same steps.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from connect_py.api.errors import CommitStateUnknownError, ConnectError
from connectors.iceberg.catalog.java_catalog import JavaCatalog, JavaTable
from connectors.iceberg.catalog.java_errors import translating
from connectors.iceberg.catalog.sql_names import quoted, relation
from connectors.iceberg.catalog.table_update import TableUpdate
from connectors.iceberg.commit.attempt import Attempt
from connectors.iceberg.commit.rules.rule import Commit, CommitRule
from connectors.iceberg.commit.user_sql import (
    as_views,
    checked,
    create_for,
    iceberg_fields,
    in_columns_of,
    last_named,
    naming,
    required_changes,
    rows_after,
    rows_changed,
    rows_removed,
    without_paths,
)
from connectors.iceberg.config.cycle_aggregate import CycleAggregate
from connectors.iceberg.config.cycle_step import STAGED
from connectors.iceberg.errors import (
    CatalogUnavailableError,
    TableError,
    TableForbiddenError,
    TableMissingError,
    TableUnsuitableError,
)
from connectors.iceberg.protocol.commit_request import (
    COMMIT_ID_KEY,
    MAIN,
    SNAPSHOT_ID,
    CommitRequest,
    CommitStatus,
)
from connectors.iceberg.protocol.faults import fault_point
from connectors.iceberg.protocol.ledger import (
    Ledger,
    LedgerProperty,
    Lookup,
    Standing,
    TableVersion,
    group_of,
    look_up,
)
from connectors.iceberg.protocol.table_metadata import WRITE_MODES, TableMetadata
from connectors.iceberg.staging.staged_file_name import table_digits
from connectors.iceberg.table.table import StagedFile, StagedKind, WriteMode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)

# The connect group ID follows each of these prefixes.
# property of the source table that announces commits to aggregates; empty if there are none
PENDING: Final = "connect-py.aggregates."
# property and summary entry of the aggregate: the ledger of its last commit
LEDGER: Final = "connect-py.aggregate.ledger."
# property of the aggregate: the digest of the query that produced its rows
QUERY: Final = "connect-py.aggregate.query."


@dataclass(frozen=True, slots=True)
class _AggregateCommit:
    """Commit to one aggregate (step 3), as announced in a property of the source table."""

    table: str
    expected: TableVersion
    ledger: str
    keys: Sequence[str]
    files: Sequence[StagedFile]
    query: str
    work_branch: str
    file_prefix: str

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "files": [file.to_json() for file in self.files]}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> _AggregateCommit:
        files = [StagedFile.from_json(each) for each in data["files"]]
        expected = TableVersion(**data["expected"])
        return _AggregateCommit(**{**data, "expected": expected, "files": files})

    def request(self, group: str) -> CommitRequest:
        """Return the request for the commit to the aggregate."""
        ledger, key = Ledger.from_json(self.ledger), LEDGER + group
        return CommitRequest(
            self.table,
            ledger.commit,
            self.expected,
            key,
            LedgerProperty.template(ledger, {}, SNAPSHOT_ID),
            {key: self.ledger},
            self.files,
            WriteMode.MERGE,
            self.keys,
            properties={QUERY + group: self.query},
            work_branch=self.work_branch,
            file_prefix=self.file_prefix,
        )


class Aggregates(CommitRule):
    """Updates the aggregates of the tables to which one session commits."""

    def __init__(self, catalog: JavaCatalog, commit: Commit) -> None:
        """Create the rule. `commit` is `CommitEngine.commit`, which step 3 calls."""
        self._catalog = catalog
        self._commit = commit
        self.settled: set[str] = set()  # property values whose announced commits have landed

    # --- step 1

    def inspect(self, attempt: Attempt) -> None:
        """Run the queries, unless the commit is held until a user approves it.

        The aggregates are updated when a held commit is published.

        Raises:
            TableUnsuitableError: A query fails, or its result does not fit the aggregate.
            SchemaChangesPendingError: A query returns columns that require approval.
        """
        request = attempt.request
        if not request.aggregates or attempt.target_ref == request.unpublished_branch:
            return
        attempt.reads_table = True
        fault_point("before_aggregate")
        views = {
            STAGED: rows_changed(attempt),
            "removed": rows_removed(attempt),
            "before": attempt.head_rows(),
            "after": rows_after(attempt),
        }
        commits: list[dict[str, Any]] = []
        attempt.findings[Aggregates] = commits  # set first: `discard` needs it if a query fails
        commits.extend(
            self._prepare(attempt, aggregate, views).to_json() for aggregate in request.aggregates
        )
        fault_point("after_aggregate")

    def _prepare(
        self, attempt: Attempt, aggregate: CycleAggregate, views: Mapping[str, DataFrame]
    ) -> _AggregateCommit:
        request, group = attempt.request, group_of(attempt.request.property_key)
        table = self._catalog.find(aggregate.table)
        lookup = None if table is None else look_up(table.metadata().view(MAIN, LEDGER + group))
        rebuild_reason = self._rebuild_reason(attempt, aggregate, table, lookup)
        if rebuild_reason:
            no_rows = views["after"].limit(0)
            views = {**views, STAGED: views["after"], "removed": no_rows, "before": no_rows}
            log.info(
                "table %s: rebuilding from all rows of %s: %s",
                aggregate.table,
                request.table,
                rebuild_reason,
            )
        with naming(request.table, aggregate.key):
            rows = last_named(self._query(request.table, aggregate, table, views, rebuild_reason))
            for key in (*aggregate.keys, *aggregate.add):
                if key not in rows.columns:
                    raise TableUnsuitableError(
                        request.table,
                        f"{aggregate.key} returns no column {key}; nothing is committed",
                    )
            # the check must precede the creation of the table
            with checked(request.table, aggregate.key, aggregate.keys, rows):
                fields = iceberg_fields(self._catalog, rows)
                if table is None:
                    properties = dict.fromkeys(WRITE_MODES, "merge-on-read")
                    properties["format-version"] = str(max(attempt.metadata.format_version, 2))
                    table = create_for(self._catalog, aggregate.table, fields, properties)
                begins = lookup is None or lookup.ledger is None
                metadata = table.metadata()
                if changes := required_changes(
                    request, aggregate.key, table, fields, begins=begins
                ):
                    table.evolve(changes)
                    metadata = table.refresh()
                prefix = request.file_prefix.replace(
                    table_digits(attempt.metadata.uuid), table_digits(metadata.uuid)
                )
                output = in_columns_of(rows, table)
                if aggregate.add and not rebuild_reason:
                    output = self._added_up(aggregate, output)
                written = table.write(output, f"{prefix}{request.commit_id}-made")
        files = [*map(table.as_staged, written)]
        if rebuild_reason:
            files.append(StagedFile(StagedKind.TRUNCATES, "", 0, 0, 0, 0))
        source = Ledger.from_json(request.summary[request.property_key])
        ledger = Ledger(
            source.epoch, request.commit_id, source.cycle, metadata.uuid, source.cluster, {}
        )
        return _AggregateCommit(
            aggregate.table,
            look_up(metadata.view(MAIN, LEDGER + group)).version,
            ledger.to_json(),
            aggregate.keys,
            files,
            aggregate.digest,
            request.work_branch,
            prefix,
        )

    def _rebuild_reason(
        self,
        attempt: Attempt,
        aggregate: CycleAggregate,
        table: JavaTable | None,
        lookup: Lookup | None,
    ) -> str:
        """Return the reason why an aggregate is rebuilt, or an empty string if it is in sync.

        Raises:
            TableUnsuitableError: The table has rows that are not from this aggregate.
        """
        if table is None or lookup is None:
            return "the aggregate is new"
        metadata, group = table.metadata(), group_of(attempt.request.property_key)
        if lookup.standing is Standing.NONE and not metadata.is_empty(MAIN):
            raise TableUnsuitableError(
                attempt.request.table,
                f"{aggregate.key}: table {aggregate.table} has rows that are not from this "
                "aggregate: empty it, or specify another table; nothing is committed",
            )
        if lookup.ledger is None:
            return "the aggregate is new"
        if lookup.standing is Standing.ROLLED_BACK:
            return "the aggregate was rolled back"
        if metadata.properties.get(QUERY + group) != aggregate.digest:
            return "its query has changed"
        if last_commit(attempt.metadata, attempt.request.ref) != lookup.ledger.commit:
            return "it does not contain the last change to that table"
        return ""

    def _query(
        self,
        source: str,
        aggregate: CycleAggregate,
        table: JavaTable | None,
        views: Mapping[str, DataFrame],
        rebuild_reason: str,
    ) -> DataFrame:
        """Return the result of the query. A rebuild ignores the aggregate's existing rows."""
        spark = self._catalog.spark
        if table is not None:
            current = spark.table(relation(self._catalog.name, aggregate.table))
            views = {**views, "current": current.limit(0) if rebuild_reason else current}
        elif aggregate.reads_current:
            raise TableUnsuitableError(
                source,
                f"{aggregate.key} reads current, and table {aggregate.table} does not exist: "
                f"create it first",
            )
        with without_paths(spark), as_views(spark, views):
            return spark.sql(f"SELECT * FROM (\n{aggregate.sql}\n)")

    def _added_up(self, aggregate: CycleAggregate, rows: DataFrame) -> DataFrame:
        """Add the aggregate's existing values to the `add` columns of these rows."""
        from pyspark.sql import functions as F  # noqa: N812 - local: the coordinator has no Spark

        keys = {name: f"__key_{number}" for number, name in enumerate(aggregate.keys)}
        sums = {name: f"__sum_{number}" for number, name in enumerate(aggregate.add)}
        table = self._catalog.spark.table(relation(self._catalog.name, aggregate.table))
        aliases = [f"{quoted(name)} AS {alias}" for name, alias in {**keys, **sums}.items()]
        same = [F.col(quoted(name)) == F.col(alias) for name, alias in keys.items()]
        columns = [
            f"coalesce({quoted(name)}, 0) + coalesce({sums[name]}, 0) AS {quoted(name)}"
            if name in sums
            else quoted(name)
            for name in rows.columns
        ]
        return rows.join(table.selectExpr(*aliases), same, "left").selectExpr(*columns)

    # --- step 2

    def amend(self, attempt: Attempt, update: TableUpdate) -> None:
        """Announce the commits to the aggregates, or clear the property if there are none."""
        key = PENDING + group_of(attempt.request.property_key)
        announced = _announced(attempt)
        if update.base().properties.get(key, "") != announced:
            update.set_properties({key: announced})

    # --- step 3

    def committed(self, attempt: Attempt, table: JavaTable) -> None:
        """Commit to the aggregates."""
        group = group_of(attempt.request.property_key)
        self.settle(attempt.request.table, group, _announced(attempt))

    def settle(self, table: str, group: str, announced: str) -> None:
        """Perform the commits that a table's property announces, unless they have landed.

        Raises:
            CatalogUnavailableError: A commit failed temporarily. The property remains.
        """
        if announced and announced not in self.settled:
            for each in json.loads(announced)["made"]:
                self._settle(table, _AggregateCommit.from_json(each).request(group))
            self.settled.add(announced)

    def _settle(self, table: str, request: CommitRequest) -> None:
        """Commit to one aggregate.

        If the aggregate can no longer accept the files, the next commit rebuilds it.
        """
        name = request.table
        try:
            aggregate = self._catalog.find(name)
            if aggregate is None:
                raise TableMissingError(name, "no longer exists")
            lookup = look_up(aggregate.metadata().view(MAIN, request.property_key))
            last = None if lookup.ledger is None else lookup.ledger.commit
            if request.commit_id in (*lookup.commits, last):
                return
            fault_point("before_aggregate_commit")
            outcome = self._commit(request)
            fault_point("after_aggregate_commit")
        except (TableForbiddenError, CommitStateUnknownError, CatalogUnavailableError) as error:
            reason = (
                error.why if isinstance(error, TableError) else str(error).removeprefix(f"{name}: ")
            )
            raise CatalogUnavailableError(
                f"{table}: its aggregate {name} waits: {reason}"
            ) from error
        except ConnectError as error:
            log.warning("table %s: the next commit to %s rebuilds it: %s", name, table, error)
            return
        if outcome.status is CommitStatus.COMMITTED:
            log.info("table %s: applied commit %s to %s", name, request.commit_id, table)
        elif outcome.status is CommitStatus.CONFLICT:  # a newer coordinator or a user changed it
            log.info(
                "table %s: changed before commit %s to %s was applied",
                name,
                request.commit_id,
                table,
            )
        else:
            raise CatalogUnavailableError(f"{table}: its aggregate {name} waits: {outcome.reason}")

    # --- leftovers

    def discard(self, attempt: Attempt) -> None:
        """Delete the files that the attempt wrote for aggregates."""
        for each in attempt.findings.get(Aggregates, ()):
            commit = _AggregateCommit.from_json(each)
            with suppress(ConnectError), translating(commit.table):
                table = self._catalog.find(commit.table)
                for file in commit.files:
                    if table is not None and file.path:
                        table.delete_file(file.path)


def _announced(attempt: Attempt) -> str:
    """Return the value of the property that announces the commits to aggregates."""
    commits = attempt.findings.get(Aggregates)
    if commits is None:
        return ""
    return json.dumps({"commit": attempt.request.commit_id, "made": commits}, separators=(",", ":"))


def last_commit(metadata: TableMetadata, ref: str) -> str | None:
    """Return the ID of the commit that last changed the rows of a ref.

    Return None if the last change is from another writer.
    """
    for snapshot in metadata.ancestors(metadata.head(ref)):
        summary = snapshot["summary"]
        commit_id: str | None = summary.get(COMMIT_ID_KEY)
        # a compaction does not change rows
        if commit_id is not None or summary.get("operation") != "replace":
            return commit_id
    return None
