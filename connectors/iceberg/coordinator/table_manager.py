"""`TableManager`: the coordinator's table operations (open, create, evolve, commit, clean up).

The coordinator uses several threads, but never calls these operations concurrently for the same
table (see `TableManager.tables_of_commit`). All threads use one Spark driver, each with a separate
session.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime

from connect_py.api.errors import ConnectError
from connect_py.plurals import pluralize
from connectors.iceberg.commit.rules.expectations import described
from connectors.iceberg.config.keys import ATTEMPT_TIMEOUT, TABLE_PREFIX
from connectors.iceberg.config.layout_terms import SortTerm
from connectors.iceberg.config.maintenance_policy import DAYS
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.config.storage_settings import file_io_properties
from connectors.iceberg.conversion.types import ORDER
from connectors.iceberg.coordinator.control_events import EventPublisher
from connectors.iceberg.coordinator.health_monitor import HealthMonitor
from connectors.iceberg.coordinator.maintenance_schedule import MaintenanceKind, MaintenanceTask
from connectors.iceberg.coordinator.new_table import check_merged, new_table
from connectors.iceberg.coordinator.outlet import Outlet
from connectors.iceberg.coordinator.pending_schema_changes import PendingSchemaChanges
from connectors.iceberg.driver.lake_client import LakeClient, LakeSessions
from connectors.iceberg.driver.lake_session import LoadedTable
from connectors.iceberg.errors import (
    PairUnreadError,
    SchemaChangesPendingError,
    SparkDiedError,
    SparkLostError,
    TableMissingError,
    TableUnsuitableError,
)
from connectors.iceberg.maintenance.compaction import (
    CompactionOutcome,
    CompactionRequest,
    CompactionStatus,
    compact,
)
from connectors.iceberg.maintenance.expiration import ExpirationOutcome, expire
from connectors.iceberg.maintenance.full_maintenance import INSPECTION, FullMaintenance
from connectors.iceberg.protocol.actions import CommitTable
from connectors.iceberg.protocol.commit_request import (
    COMMIT_ID_KEY,
    MAIN,
    SNAPSHOT_ID,
    TASK_ID_KEY,
    CommitOutcome,
    CommitRequest,
    CommitStatus,
)
from connectors.iceberg.protocol.faults import fault_point
from connectors.iceberg.protocol.iceberg_metrics import IcebergMetrics
from connectors.iceberg.protocol.ledger import TableView, ledger_key, source_offsets_key
from connectors.iceberg.protocol.messages import Need
from connectors.iceberg.protocol.own_refs import ledger_tag, scratch_prefix, unpublished_branch
from connectors.iceberg.protocol.positions import Epoch
from connectors.iceberg.protocol.table_metadata import WRITE_MODES
from connectors.iceberg.staging.file_output import unsupported_reason
from connectors.iceberg.staging.staged_file_name import StagedFileName, table_digits
from connectors.iceberg.staging.write_settings import ignored_properties
from connectors.iceberg.table.schema_change import ChangeAction, ChangeKind, SchemaChange
from connectors.iceberg.table.table import TableDescription, TableRequest, WriteMode

log = logging.getLogger(__name__)

VALID_THROUGH_KEY = "kafka.connect.valid-through-ts"
# the task fails when the driver has exited during this many consecutive commits to a table
DEATHS = 3


class TableManager:
    """Performs table operations, and owns the sessions in the Spark driver.

    Methods may be called from any thread, but calls with overlapping tables (`tables_of_commit`)
    must not run concurrently. All mutable state is separate for each table or commit. Only the
    current call for a table accesses its state, so no locks are required.
    """

    def __init__(
        self,
        config: IcebergSinkConfig,
        sessions: LakeSessions,
        metrics: IcebergMetrics,
        events: EventPublisher,
        *,
        outlets: Sequence[Outlet] = (),
        maintenance: FullMaintenance | None = None,
        warns: Callable[[str, str | None], None] = lambda *_: None,
    ) -> None:
        """Create a table manager. No session is open yet.

        Args:
            config: The connector's configuration.
            sessions: Sessions in the Spark driver, which the table manager stops.
            metrics: The sink's metrics.
            events: Publishes commits on the control topic.
            outlets: Publishers of commits.
            maintenance: Implements the complete maintenance policy. None if no table requires it.
            warns: See `BoundedWaitReporter.warns`.
        """
        self._config = config
        self._sessions = sessions
        self._metrics = metrics
        self._events = events
        self._outlets = outlets
        self._maintenance = maintenance
        self._property_key = ledger_key(config.connect_group)
        self._described: dict[str, TableDescription] = {}
        # table -> key columns of its records, as reported by tasks
        self._record_keys: dict[str, tuple[str, ...]] = {}
        self._warned_properties: set[tuple[str, str]] = set()  # (table UUID, warning)
        self._pending = PendingSchemaChanges(metrics)
        # tables whose user step (`UserStep`) returns columns that only a user may add
        self._waiting_steps: set[str] = set()
        self._stopping = threading.Event()
        self._health = HealthMonitor(metrics, warns)
        self._expired_tables: set[str] = set()  # tables whose first expiration was logged
        # Driver failures since the last commit to each table. They are not counted by commit ID,
        # because a repeated commit may have another ID.
        self._deaths: dict[str, int] = {}
        self._suspects: set[str] = set()  # tables; see `is_suspect`

    def start(self) -> None:
        """Open a session if none is open, in a new driver if the previous driver has exited.

        Raises:
            RetriableError: The driver did not start. A later attempt may succeed.
            ConnectError: The driver cannot start.
        """
        with self._sessions.session():
            pass

    def stop(self) -> None:
        """End all sessions permanently. Calls in progress fail."""
        self._stopping.set()
        if self._maintenance:
            self._maintenance.stop()
        self._sessions.stop()

    def tables_of_commit(self, name: str) -> frozenset[str]:
        """Return the tables that a commit to a table may write.

        These are the table, its aggregates, and the table of its rejected rows.
        """
        return frozenset(
            {name, _rejected(name), *(each.table for each in self._config.table(name).aggregates)}
        )

    def is_suspect(self, name: str) -> bool:
        """Return True if the driver exited during the last commit to a table.

        The commit may be the cause. Therefore, the next commit to the table must run alone, so that
        it cannot interrupt commits to other tables again.
        """
        return name in self._suspects

    def view(self, name: str) -> TableView | None:
        """Load the commit protocol's view of a table. Return None if the table does not exist.

        Raises:
            ConnectError: The catalog does not respond, or rejects the request.
        """
        try:
            with self._sessions.session(name) as lake:
                return self._load(lake, name).view
        except TableMissingError:
            return None

    def view_to_commit(self, name: str) -> TableView | None:
        """Call `view` for a commit. An error counts as a failed attempt to commit."""
        with self._attempt(name):
            view = self.view(name)
        if view is None:
            self._metrics.not_committed(name, CommitStatus.MISSING)
        return view

    @contextmanager
    def _attempt(self, name: str) -> Iterator[None]:
        """Count a failed attempt to commit, unless the commit waits for a user or other rows."""
        try:
            yield
        except (PairUnreadError, SchemaChangesPendingError):
            raise
        except ConnectError as error:
            if not self._stopping.is_set():
                self._metrics.not_committed(name, status_of(error))
            raise

    def _load(self, lake: LakeClient, name: str) -> LoadedTable:
        table = self._config.table(name)
        if table.aggregates:
            lake.settle(name, self._property_key)
        loaded = lake.load(
            name,
            self._property_key,
            table.commit_branch or MAIN,
            self._config.mode_of(name),
            table.id_columns,
            unpublished_branch(self._config.connect_group),
        )
        description = loaded.description
        # record keys have the lowest precedence
        if description.mode is WriteMode.MERGE and not description.key_columns:
            description = dataclasses.replace(
                description, key_columns=self._record_keys.get(name, ())
            )
            loaded = dataclasses.replace(loaded, description=description)
        self._described[name] = description
        self._metrics.unpublished(name, commits=loaded.unpublished)
        if self._maintenance:  # actions that were due in an earlier run are still due
            self._maintenance.watch(name)
        return loaded

    def prepare(self, name: str, need: Need, request_text: str) -> tuple[TableView, str]:
        """Open a table for tasks. Create or evolve it if this is requested and allowed.

        Return the commit protocol's view of the table, and a description for tasks as JSON. The
        description omits the configured storage settings, because the tasks already have them.

        Raises:
            SchemaChangesPendingError: The rows require a change that only a user may allow. Waiting
                tasks repeat their requests.
            ConnectError: The table is unavailable. The message is sent to waiting tasks.
        """
        config, request = self._config, TableRequest.from_text(request_text)
        if request.keys:
            self._record_keys[name] = request.keys
        with self._sessions.session(name) as lake:
            loaded = self._open(lake, name, need, request)
        description = dataclasses.replace(
            loaded.description, sort_by=_file_order(config.table(name).sort_by)
        )
        if description.mode is WriteMode.MERGE:
            check_merged(name, description.key_columns, json.loads(description.schema))
        self._warn_ignored(description)
        # the configured settings include secrets, which must not be written to a topic
        configured = file_io_properties(config.catalog_properties()).items()
        vended = dict(description.io_properties.items() - configured)
        answer = dataclasses.replace(description, io_properties=vended)
        return loaded.view, json.dumps(answer.to_json(), separators=(",", ":"))

    def _open(self, lake: LakeClient, name: str, need: Need, request: TableRequest) -> LoadedTable:
        """Load a table, and change it as tasks and the configuration require."""
        try:
            loaded = self._load(lake, name)
        except TableMissingError:
            self._create(lake, name, request)
            loaded = self._load(lake, name)
        if need is Need.EVOLVE and request.changes:
            loaded = self._evolve(lake, loaded, request)
        if why := unsupported_reason(loaded.description) or why_not_merged(loaded.description):
            raise TableUnsuitableError(name, why)
        return self._with_write_mode(lake, self._with_order(lake, self._with_layout(lake, loaded)))

    def _warn_ignored(self, table: TableDescription) -> None:
        """Warn once about each table property that has no effect on staged files."""
        ignored = ignored_properties({**table.properties, **self._config.write_props})
        for warning in ignored:
            if (table.uuid, warning) not in self._warned_properties:
                self._warned_properties.add((table.uuid, warning))
                log.warning(
                    "table %s: %s",
                    table.name,
                    warning,
                    extra={"action": "property_ignored", "table": table.name},
                )

    def _with_order(self, lake: LakeClient, loaded: LoadedTable) -> LoadedTable:
        """Add the column with the source order of rows if ordering columns are configured."""
        table = loaded.description
        columns = {column["name"] for column in json.loads(table.schema)["fields"]}
        if (
            not self._config.ordering_columns
            or table.mode is not WriteMode.MERGE
            or ORDER in columns
        ):
            return loaded
        lake.evolve(table.name, [SchemaChange(ChangeKind.ADD, (ORDER,), '"string"')])
        log.info("table %s: added column %s for the order of rows", table.name, ORDER)
        return self._load(lake, table.name)

    def _with_layout(self, lake: LakeClient, loaded: LoadedTable) -> LoadedTable:
        """Set the configured sort order, and the partition fields if they may change."""
        name, config = loaded.description.name, self._config
        table = config.table(name)
        partition_by = table.partition_by if config.evolve_partitions else None
        if not table.sort_by and partition_by is None:
            return loaded
        if not lake.set_layout(name, table.sort_by, partition_by):
            return loaded
        log.info(
            "table %s: set the sort order and the partition fields of new files",
            name,
            extra={"action": "layout_set", "table": name},
        )
        return self._load(lake, name)

    def _with_write_mode(self, lake: LakeClient, loaded: LoadedTable) -> LoadedTable:
        """Set merge-on-read if the table has no write mode. Iceberg's default is copy-on-write."""
        table = loaded.description
        if table.mode is not WriteMode.MERGE or table.format_version < 2 or self._config.full_merge:
            return loaded
        if WRITE_MODES[0] in table.properties or self._config.keep_write_mode:
            return loaded
        lake.set_properties(table.name, dict.fromkeys(WRITE_MODES, "merge-on-read"))
        log.info(
            "table %s: setting %s=merge-on-read; iceberg.ext.keep-write-mode=true disables this",
            table.name,
            WRITE_MODES[0],
            extra={"action": "write_mode_set", "table": table.name},
        )
        return self._load(lake, table.name)

    def _evolve(self, lake: LakeClient, loaded: LoadedTable, request: TableRequest) -> LoadedTable:
        """Apply the allowed changes, and raise an error if the rows require other changes."""
        policy, name = self._config.evolution, loaded.description.name
        changes = [c for c in request.changes if policy[c.kind] is ChangeAction.APPLY]
        if changes and lake.evolve(name, changes):
            descriptions = [*map(str, changes)]
            log.info(
                "table %s: %s",
                name,
                ", ".join(descriptions),
                extra={"action": "table_evolved", "table": name},
            )
            self._metrics.evolved(name, descriptions)
            loaded = self._load(lake, name)
        pending = [c for c in request.changes if policy[c.kind] is ChangeAction.HOLD]
        if pending and loaded.description.schema_id == request.schema_id:
            self._pending.hold(name, pending)
            raise SchemaChangesPendingError(name, pending)
        self._pending.release(name)
        return loaded

    def _create(self, lake: LakeClient, name: str, request: TableRequest) -> None:
        new = new_table(self._config, name, request, self._record_keys.get(name, ()))
        created = lake.create(name, json.dumps(new.schema), json.dumps(new.spec), new.properties)
        fault_point("after_create_table")
        if created:
            log.info("created table %s", name, extra={"action": "table_created", "table": name})

    def commit(self, request: CommitTable, epoch: Epoch) -> CommitOutcome:
        """Commit one snapshot (steps 4 and 5 of the commit protocol).

        Raises:
            ConnectError: Nothing was committed.
        """
        with self._attempt(request.table):
            fault_point("before_prepare")
            outcome = self._commit(self._request(request, epoch))
        fault_point("after_compare_and_swap")
        if self._maintenance and outcome.status is CommitStatus.COMMITTED:
            for each in self._config.table(request.table).aggregates:
                self._maintenance.watch(each.table, changed=True)
        self._metrics.committed(request.table, outcome)
        if outcome.failed:
            log.warning(
                "commit %s to %s violates expectations: %s%s",
                request.commit,
                request.table,
                described(outcome.failed),
                "; it awaits approval by `connect-py gate --publish`"
                if outcome.unpublished
                else "",
                extra={
                    "action": "expectation_failed",
                    "table": request.table,
                    "commit_id": request.commit,
                },
            )
        counts = outcome.counts
        log.info(
            "commit %s to %s: %s by engine %s, %s in %s, %d replaced, %d ms%s",
            request.commit,
            request.table,
            outcome.status.value,
            outcome.engine.value,
            pluralize(counts.added_rows, "row"),
            pluralize(counts.added_files, "file"),
            counts.replaced_rows,
            counts.milliseconds,
            f" ({outcome.reason})" if outcome.reason else "",
            extra={"action": "table_commit", "table": request.table, "commit_id": request.commit},
        )
        if outcome.snapshot_id is not None:
            self._events.on_table_commit(
                request, outcome.snapshot_id, _utc(request.valid_through_ms)
            )
            for outlet in self._outlets:
                outlet.committed(request, outcome, self._described[request.table])
        return outcome

    def _request(self, request: CommitTable, epoch: Epoch) -> CommitRequest:
        """Return the commit request for the driver."""
        config, description = self._config, self._described[request.table]
        table = config.table(request.table)
        files = [file for files in request.files.values() for file in files]
        summary = {
            self._property_key: request.ledger.to_json(),
            COMMIT_ID_KEY: request.commit,
            TASK_ID_KEY: f"{config.connector}-0",
        }
        offsets = {source_offsets_key(config.connect_group): request.ledger.source_offsets()}
        if request.ledger.repeats_offsets:
            summary |= offsets
        valid_through = _utc(request.valid_through_ms)
        if valid_through is not None:
            summary[VALID_THROUGH_KEY] = valid_through.isoformat(timespec="milliseconds").replace(
                "+00:00", "Z"
            )
        return CommitRequest(
            table=request.table,
            commit_id=request.commit,
            expected=request.expected,
            property_key=self._property_key,
            property_template=request.property_text(SNAPSHOT_ID),
            summary=summary,
            # if the offsets are long, they are stored only once, in the newest metadata
            properties={} if request.ledger.repeats_offsets else offsets,
            files=files,
            mode=description.mode,
            key_columns=description.key_columns,
            ordered=bool(config.ordering_columns) and description.mode is WriteMode.MERGE,
            tags=table.tags,
            ledger_tag=ledger_tag(config.connect_group),
            keep_ledger_tag=table.maintenance.is_full,
            ref=table.commit_branch or MAIN,
            unpublished_branch=unpublished_branch(config.connect_group),
            expectations=table.expectations,
            step=table.step,
            aggregates=table.aggregates,
            evolution=config.evolution,
            creates=config.may_create(request.table),
            rejected_table=_rejected(request.table),
            work_branch=scratch_prefix(config.connect_group),
            # `clean` recognizes orphan files by this prefix
            file_prefix=StagedFileName.epoch_prefix(
                config.connector, epoch, table_digits(description.uuid)
            ),
        )

    def _commit(self, request: CommitRequest) -> CommitOutcome:
        """Commit in the driver.

        Raises:
            SparkLostError: The driver exited during each of the last commits to the table. Only the
                task of this connector fails.
            ConnectError: The commit failed.
        """
        try:
            aggregates = [each.table for each in request.aggregates]
            with (
                self._sessions.session(request.table) as lake,
                self._maintenance.commit(request.table, *aggregates)
                if self._maintenance
                else nullcontext(),
            ):
                outcome = lake.commit(request)
            self._suspects.discard(request.table)
            self._deaths.pop(request.table, None)
            if request.table in self._waiting_steps:
                self._waiting_steps.remove(request.table)
                self._pending.release(request.table)
            return outcome
        except SchemaChangesPendingError as pending:  # the user step's result requires them
            self._waiting_steps.add(request.table)
            self._pending.hold(request.table, pending.changes)
            raise
        except SparkDiedError as error:
            self._suspects.add(request.table)
            deaths = self._deaths[request.table] = self._deaths.get(request.table, 0) + 1
            if deaths < DEATHS:
                raise
            raise SparkLostError(
                f"the Spark driver exited in {deaths} consecutive commits to {request.table}"
                + _timeout_hint(request)
            ) from error

    def maintain(
        self, task: MaintenanceTask, epoch: Epoch
    ) -> CompactionOutcome | ExpirationOutcome:
        """Perform one maintenance action in the Spark driver that runs the commits.

        Raises:
            ConnectError: The action failed. The rows of the table are unchanged, and commits are
                not affected.
        """
        started = time.monotonic()
        try:
            with self._sessions.session(task.table) as lake:
                if task.kind is MaintenanceKind.EXPIRE:
                    return self._expired(lake, task)
                return self._compacted(lake, task, epoch)
        except Exception as error:
            if not self._stopping.is_set():
                action = INSPECTION if task.kind is MaintenanceKind.MEASURE else task.kind.value
                self._metrics.maintained(task.table, action, "failed", time.monotonic() - started)
            if isinstance(error, ConnectError):
                raise
            log.exception("table %s: %s failed", task.table, task.kind.value)
            raise ConnectError(f"{type(error).__name__}: {error}") from error

    def _compacted(
        self, lake: LakeClient, task: MaintenanceTask, epoch: Epoch
    ) -> CompactionOutcome:
        table = self._config.table(task.table)
        request = CompactionRequest(
            table.maintenance,
            self._config.connector,
            epoch,
            self._property_key,
            table.commit_branch or MAIN,
            task.cost_limit,
            task.seconds,
        )
        outcome = lake.run_within(request.seconds, task.table, compact, request)
        self._health.update(task.table, outcome.health)
        if outcome.status in (
            CompactionStatus.COMMITTED,
            CompactionStatus.CANCELED,
            CompactionStatus.REFUSED,
        ):
            self._metrics.maintained(
                task.table, MaintenanceKind.COMPACT.value, outcome.status.value, outcome.seconds
            )
            log.info(
                "table %s: compaction %s: %s replaced by %d in %.1f s%s (%s)",
                task.table,
                outcome.status.value,
                pluralize(outcome.replaced_files, "file"),
                outcome.new_files,
                outcome.seconds,
                ", delaying a commit" if task.delays_commits else "",
                outcome.reason,
                extra={
                    "action": "maintenance",
                    "table": task.table,
                    "outcome": outcome.status.value,
                },
            )
        return outcome

    def _expired(self, lake: LakeClient, task: MaintenanceTask) -> ExpirationOutcome:
        table = self._config.table(task.table)
        outcome = lake.run(task.table, expire, table.maintenance, table.commit_branch or MAIN)
        if outcome.reason:
            log.info("table %s: no snapshot expires: %s", task.table, outcome.reason)
            return outcome
        self._metrics.maintained(task.table, task.kind.value, "done", outcome.seconds)
        if outcome.expired and task.table not in self._expired_tables:
            self._expired_tables.add(task.table)
            days = table.maintenance.keep_ms / DAYS
            log.info(
                "table %s: snapshots expire after %s, or earlier if there are more than %d; "
                "%s%s.maintenance.snapshots=0 disables this",
                task.table,
                f"{days:g} {'day' if days == 1 else 'days'}",
                table.maintenance.auto_snapshots,
                TABLE_PREFIX,
                task.table,
                extra={"action": "snapshots_expire", "table": task.table},
            )
        log.info(
            "table %s: %s expired, %d retained (%.1f s)",
            task.table,
            pluralize(outcome.expired, "snapshot"),
            outcome.remaining,
            outcome.seconds,
            extra={"action": "maintenance", "table": task.table, "outcome": "done"},
        )
        return outcome

    def clean(self, name: str, table_uuid: str, epoch: Epoch) -> None:
        """Remove the staged files of earlier epochs that no snapshot references."""
        config = self._config
        fault_point("before_clean")
        with self._sessions.session(name) as lake:
            removed = lake.remove_files(
                name, table_uuid, StagedFileName.prefix(config.connector), epoch.number
            )
            for each in config.table(name).aggregates:
                uuid = lake.load(each.table, self._property_key).description.uuid
                lake.remove_files(
                    each.table, uuid, StagedFileName.prefix(config.connector), epoch.number
                )
        fault_point("after_clean")
        if removed is None:
            log.warning("table %s is too large to search for staged files of earlier epochs", name)
        elif removed:
            log.info(
                "table %s: removed %s of earlier epochs", name, pluralize(removed, "staged file")
            )


def _rejected(name: str) -> str:
    """Return the name of the table that contains a table's rejected rows."""
    return f"{name}_rejected"


def status_of(error: ConnectError) -> CommitStatus:
    """Return the status of an attempt to commit that ended with this error."""
    return CommitStatus.MISSING if isinstance(error, TableMissingError) else CommitStatus.FAILED


def _timeout_hint(request: CommitRequest) -> str:
    """Return a hint that user code may delay a commit, or an empty string."""
    keys = [each.key for each in (request.step, *request.aggregates) if each is not None]
    return f"; {', '.join(keys)} must finish within {ATTEMPT_TIMEOUT}" if keys else ""


def _utc(timestamp_ms: int | None) -> datetime | None:
    return None if timestamp_ms is None else datetime.fromtimestamp(timestamp_ms / 1000, UTC)


def _file_order(terms: Sequence[SortTerm]) -> tuple[tuple[str, bool, bool], ...]:
    """Return the columns by which the rows in a file are sorted.

    The list ends before the first term whose order differs from the order of its column.
    """
    file_terms = itertools.takewhile(lambda term: term.sorts_files, terms)
    return tuple((t.term.column, t.descending, t.nulls_first) for t in file_terms)


def why_not_merged(table: TableDescription) -> str | None:
    """Return the reason a table's rows cannot be replaced, with a remedy, or None if they can."""
    if table.mode is not WriteMode.MERGE or table.format_version >= 2:
        return None
    if table.properties.get(WRITE_MODES[0], "").lower() != "merge-on-read":
        return None
    return (
        "has format version 1, which does not support deletes, and write.merge.mode=merge-on-read: "
        "set format-version to 2, or write.merge.mode to copy-on-write"
    )
