"""Aggregates: tables that follow the commits of another table, each commit exactly once (rule 38).

A commit to the table takes these steps for each aggregate. Between any two of them the process may
die:

1. The query runs over the rows of the commit. Its rows are written as data files of the aggregate
   that no snapshot refers to. Left behind: orphan files, perhaps an aggregate without rows; the
   next epoch removes the files (rule 18).
2. The swap of the table sets a property: the commit, the files, and the version of the aggregate
   that the query read. Left behind: a table whose aggregate is behind; the next load of the table
   goes on with step 3.
3. The files are merged into the aggregate by a commit of its own, on exactly that version (rule
   16). Left behind: nothing; the commit is found by its id (rule 17).

An aggregate that is not in step with its table is made anew from all rows of the table, by the same
steps.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from connect_py.api.errors import CommitStateUnknownError, ConnectError
from connectors.iceberg.catalog.java_errors import translating
from connectors.iceberg.catalog.sql_names import quoted, relation
from connectors.iceberg.catalog.staged_rows import staged_again
from connectors.iceberg.commit.output_columns import (
    iceberg_fields,
    in_columns_of,
    last_named,
    wanted_changes,
)
from connectors.iceberg.commit.rules.cycle_step import check_keys, naming
from connectors.iceberg.commit.rules.rule import CommitRule, RuleRun
from connectors.iceberg.commit.views import (
    as_views,
    rows_after,
    rows_before,
    rows_changed,
    rows_removed,
    without_paths,
)
from connectors.iceberg.config.cycle_aggregate import CycleAggregate
from connectors.iceberg.config.cycle_step import STAGED
from connectors.iceberg.config.maintenance_policy import CREATED_PROPERTIES
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
    from pyspark.sql import DataFrame, SparkSession

    from connectors.iceberg.catalog.java_catalog import JavaCatalog
    from connectors.iceberg.catalog.java_table import JavaTable
    from connectors.iceberg.catalog.table_update import TableUpdate
    from connectors.iceberg.commit.attempt import Attempt
    from connectors.iceberg.commit.cycle_table import CycleTable
    from connectors.iceberg.commit.rules.rule import Commit

log = logging.getLogger(__name__)

# Each is followed by the connect group id.
PENDING: Final = "connect-py.aggregates."  # property of the table; empty: nothing follows it
# of the aggregate: its commits, and the property that repeats them
LEDGER: Final = "connect-py.aggregate.ledger."
# property of the aggregate: the digest of the query that made it
QUERY: Final = "connect-py.aggregate.query."


@dataclass(frozen=True, slots=True)
class _Prepared:
    """What step 3 needs to know of one aggregate."""

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
    def from_json(data: Mapping[str, Any]) -> _Prepared:
        files = [StagedFile.from_json(each) for each in data["files"]]
        return _Prepared(**{**data, "expected": TableVersion(**data["expected"]), "files": files})

    def request(self, group: str) -> CommitRequest:
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
    """The aggregates of one session's tables."""

    def __init__(
        self,
        spark: SparkSession,
        catalog: JavaCatalog,
        catalog_name: str,
        commit: Commit,
    ) -> None:
        """`commit`: of the engine; makes step 3."""
        self._spark = spark
        self._catalog = catalog
        self._catalog_name = catalog_name
        self._commit = commit
        self._settled: set[str] = set()  # values of the property whose work is done

    def begin(self, request: CommitRequest) -> RuleRun | None:
        """Return the hooks if the table has aggregates, or if the property of an earlier commit has
        to be cleared."""
        return _AggregatesRun(request, self) if request.aggregates or self._settled else None

    # --- step 1

    def prepare(self, attempt: Attempt) -> str:
        """Run the queries for a commit; return the value of the property that its swap sets.

        Raises:
            TableUnsuitableError: A query fails, or its result does not fit its table.
            SchemaChangesPendingError: It returns columns that need approval.
        """
        cycle = attempt.cycle
        fault_point("before_aggregate")
        rows = {
            STAGED: rows_changed(attempt),
            "removed": rows_removed(attempt),
            "before": rows_before(attempt),
            "after": rows_after(attempt),
        }
        made: list[dict[str, Any]] = []
        try:
            made.extend(
                self._prepared(cycle, each, rows).to_json() for each in cycle.request.aggregates
            )
        except Exception:
            self.delete_files(json.dumps({"made": made}))
            raise
        fault_point("after_aggregate")
        return json.dumps({"commit": cycle.request.commit_id, "made": made}, separators=(",", ":"))

    def _prepared(
        self, cycle: CycleTable, aggregate: CycleAggregate, views: Mapping[str, DataFrame]
    ) -> _Prepared:
        request, group = cycle.request, group_of(cycle.request.property_key)
        table = self._catalog.find(aggregate.table)
        lookup = None if table is None else look_up(table.metadata().view(MAIN, LEDGER + group))
        anew = "it begins"
        if table is not None and lookup is not None:
            anew = self._why_anew(cycle, aggregate, table.metadata(), lookup)
        if anew:
            none = views["after"].limit(0)
            views = {**views, STAGED: views["after"], "removed": none, "before": none}
            log.info(
                "table %s: is made from all rows of %s: %s", aggregate.table, request.table, anew
            )
        with naming(request.table, aggregate.key):
            made = last_named(self._asked(request.table, aggregate, table, views, empty=bool(anew)))
            if lacking := [
                key for key in (*aggregate.keys, *aggregate.add) if key not in made.columns
            ]:
                raise TableUnsuitableError(
                    request.table,
                    f"{aggregate.key} returns no column {lacking[0]}: nothing is committed",
                )
            made.persist()
            try:
                # before a table is made for it
                check_keys(request.table, aggregate.key, aggregate.keys, made)
                table = self._fitting(
                    cycle, aggregate, table, made, begins=lookup is None or lookup.ledger is None
                )
                metadata = table.metadata()
                rows = in_columns_of(made, metadata.column_names())
                prefix = request.file_prefix.replace(
                    table_digits(cycle.metadata.uuid), table_digits(metadata.uuid)
                )
                written = table.write(
                    rows if anew else self._added_up(aggregate, rows),
                    f"{prefix}{request.commit_id}-made",
                )
            finally:
                made.unpersist()
        files = [staged_again(table.content_file(file), metadata) for file in written]
        if anew:
            files.append(StagedFile(StagedKind.TRUNCATES, "", 0, 0, 0, 0))
        source = Ledger.from_json(request.summary[request.property_key])
        ledger = Ledger(
            source.epoch, request.commit_id, source.cycle, metadata.uuid, source.cluster, {}
        )
        version = look_up(metadata.view(MAIN, LEDGER + group)).version
        return _Prepared(
            aggregate.table,
            version,
            ledger.to_json(),
            aggregate.keys,
            files,
            aggregate.digest,
            request.work_branch,
            prefix,
        )

    def _why_anew(
        self, cycle: CycleTable, aggregate: CycleAggregate, metadata: TableMetadata, lookup: Lookup
    ) -> str:
        """Why an aggregate does not continue what it has; empty: it is in step.

        Raises:
            TableUnsuitableError: It has rows that are of something else.
        """
        group = group_of(cycle.request.property_key)
        if lookup.standing is Standing.NONE and not metadata.is_empty(MAIN):
            raise TableUnsuitableError(
                cycle.request.table,
                f"{aggregate.key}: table {aggregate.table} has rows that are not of this "
                "aggregate: empty it, or name another one; nothing is committed",
            )
        if lookup.ledger is None:
            return "it begins"
        if lookup.standing is Standing.ROLLED_BACK:
            return "it was rolled back"
        if metadata.properties.get(QUERY + group) != aggregate.digest:
            return "its query is another one"
        if last_commit(cycle.metadata, cycle.request.ref) != lookup.ledger.commit:
            return "the last change of that table is not in it"
        return ""

    def _asked(
        self,
        source: str,
        aggregate: CycleAggregate,
        table: JavaTable | None,
        views: Mapping[str, DataFrame],
        *,
        empty: bool,
    ) -> DataFrame:
        """What the query returns. `empty`: what the aggregate has does not count."""
        if table is None and aggregate.reads_current:
            raise TableUnsuitableError(
                source,
                f"{aggregate.key} reads current, and table {aggregate.table} does not exist: "
                f"create it first",
            )
        if table is not None:
            current = self._spark.table(relation(self._catalog_name, aggregate.table))
            views = {**views, "current": current.limit(0) if empty else current}
        with without_paths(self._spark), as_views(self._spark, views):
            return self._spark.sql(f"SELECT * FROM (\n{aggregate.sql}\n)")

    def _added_up(self, aggregate: CycleAggregate, made: DataFrame) -> DataFrame:
        """The rows with the sums of their values and those that are there, in the columns where
        that is asked for."""
        from pyspark.sql import functions as F  # noqa: N812 - its usual name

        if not aggregate.add:
            return made
        keys, there = (
            list(aggregate.keys),
            {key: f"__key_{number}" for number, key in enumerate(aggregate.keys)},
        )
        sums = {name: f"__sum_{number}" for number, name in enumerate(aggregate.add)}
        known = self._spark.table(relation(self._catalog_name, aggregate.table))
        known = known.select(
            *(F.col(quoted(name)).alias(alias) for name, alias in {**there, **sums}.items())
        )
        joined = made.join(known, [F.col(quoted(key)) == F.col(there[key]) for key in keys], "left")
        return joined.select(
            *(
                (F.coalesce(quoted(name), F.lit(0)) + F.coalesce(sums[name], F.lit(0))).alias(name)
                if name in sums
                else F.col(quoted(name))
                for name in made.columns
            )
        )

    def _fitting(
        self,
        cycle: CycleTable,
        aggregate: CycleAggregate,
        table: JavaTable | None,
        made: DataFrame,
        *,
        begins: bool,
    ) -> JavaTable:
        """The aggregate with the columns of these rows; it is created if it is missing."""
        fields = iceberg_fields(self._catalog.java, made)
        if table is None:
            self._create(cycle, aggregate, fields)
            table = self._catalog.load(aggregate.table)
        if changes := wanted_changes(
            cycle.request,
            aggregate.key,
            table.metadata(),
            fields,
            begins=begins,
            of=aggregate.table,
        ):
            table.evolve(changes)
            table.refresh()
        return table

    def _create(
        self, cycle: CycleTable, aggregate: CycleAggregate, fields: Sequence[Mapping[str, Any]]
    ) -> None:
        schema = {"type": "struct", "schema-id": 0, "fields": fields}
        version = str(max(cycle.metadata.format_version, 2))
        properties = {
            **CREATED_PROPERTIES,
            "format-version": version,
            **dict.fromkeys(WRITE_MODES, "merge-on-read"),
        }
        if self._catalog.create(aggregate.table, json.dumps(schema), None, properties):
            log.info(
                "created table %s",
                aggregate.table,
                extra={"action": "table_created", "table": aggregate.table},
            )

    # --- step 3

    def settle(self, table: JavaTable, property_key: str, request: CommitRequest | None) -> None:
        """Do what the property of a table announces, unless it was done.

        Raises:
            CatalogUnavailableError, TableForbiddenError: It fails for now; the property stays.
        """
        properties = table.metadata().properties
        self.settle_text(
            table.name, property_key, properties.get(PENDING + group_of(property_key), "")
        )

    def settle_text(self, table: str, property_key: str, text: str) -> None:
        """The same for the text of the property."""
        group = group_of(property_key)
        if not text or text in self._settled:
            return
        for each in json.loads(text)["made"]:
            self._settle(table, group, _Prepared.from_json(each))
        self._settled.add(text)

    def _settle(self, table: str, group: str, prepared: _Prepared) -> None:
        """One aggregate. Where it cannot take the files any more, the next commit makes it anew."""
        name = prepared.table
        request = prepared.request(group)
        try:
            with translating(name):
                found = self._catalog.find(name)
            if found is None:
                raise TableMissingError(name, "does not exist any more")
            now = look_up(found.metadata().view(MAIN, request.property_key))
            if request.commit_id in now.commits or (
                now.ledger and now.ledger.commit == request.commit_id
            ):
                return
            fault_point("before_aggregate_commit")
            outcome = self._commit(request)
            fault_point("after_aggregate_commit")
        except (TableForbiddenError, CommitStateUnknownError, CatalogUnavailableError) as error:
            why = (
                error.why if isinstance(error, TableError) else str(error).removeprefix(f"{name}: ")
            )
            raise CatalogUnavailableError(f"{table}: its aggregate {name} waits: {why}") from error
        except ConnectError as error:
            log.warning("table %s: is made anew by the next commit to %s: %s", name, table, error)
            return
        match outcome.status:
            case CommitStatus.COMMITTED:
                log.info("table %s: follows commit %s to %s", name, request.commit_id, table)
            case CommitStatus.CONFLICT:  # a newer coordinator was here, or a user
                log.info(
                    "table %s: has gone on without commit %s to %s", name, request.commit_id, table
                )
            case _:
                raise CatalogUnavailableError(
                    f"{table}: its aggregate {name} waits: {outcome.reason}"
                )

    # --- leftovers

    def delete_files(self, pending: str) -> None:
        """Delete the files that a text of the property names which no swap has set."""
        for each in json.loads(pending)["made"] if pending else ():
            prepared = _Prepared.from_json(each)
            with suppress(ConnectError), translating(prepared.table):
                table = self._catalog.find(prepared.table)
                for file in prepared.files:
                    if table is not None and file.path:
                        table.delete_file(file.path)


class _AggregatesRun(RuleRun):
    def __init__(self, request: CommitRequest, aggregates: Aggregates) -> None:
        self._request = request
        self._aggregates = aggregates

    def inspect(self, attempt: Attempt) -> None:
        """Run the queries, unless the commit is held: the aggregate follows when it is
        published."""
        if not self._request.aggregates or attempt.target_ref == self._request.unpublished_branch:
            return
        attempt.reads_table = True
        attempt.cycle.findings[_Pending] = _Pending(self._aggregates.prepare(attempt))

    def amend(self, attempt: Attempt, update: TableUpdate) -> None:
        """Announce the commits to the aggregates, or clear the property if there are none."""
        key, value = PENDING + group_of(self._request.property_key), _pending_value(attempt.cycle)
        if update.base().properties.get(key, "") != value:
            update.set_properties({key: value})

    def committed(self, attempt: Attempt, table: JavaTable) -> None:
        """Commit to the aggregates."""
        self._aggregates.settle_text(
            self._request.table, self._request.property_key, _pending_value(attempt.cycle)
        )

    def discard(self, cycle: CycleTable) -> None:
        """Delete the files that were written for aggregates."""
        self._aggregates.delete_files(_pending_value(cycle))


@dataclass(frozen=True, slots=True)
class _Pending:
    """The value of the property that announces the commits to aggregates."""

    value: str


def _pending_value(cycle: CycleTable) -> str:
    pending = cycle.findings.get(_Pending)
    return "" if pending is None else pending.value


def last_commit(metadata: TableMetadata, ref: str) -> str | None:
    """The id of the commit that changed the rows of a ref last; None: no commit of ours did."""
    for snapshot in metadata.ancestors(metadata.head(ref)):
        summary = snapshot["summary"]
        found: str | None = summary.get(COMMIT_ID_KEY)
        # a compaction changes no row
        if found is not None or summary.get("operation") != "replace":
            return found
    return None
