"""What the coordinator does to tables: open, create, evolve, commit, clean up.

Everything runs on the coordinator's table thread, through the one Spark driver of the coordinator.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from connect_py.api.errors import DataError
from connectors.iceberg.config import IcebergSinkConfig
from connectors.iceberg.events import CommitListener
from connectors.iceberg.evolution.evolution_policy import ChangeAction
from connectors.iceberg.evolution.held_changes import ChangesHeldError, HeldChanges
from connectors.iceberg.evolution.unified_view import UnifiedView
from connectors.iceberg.faults import fault_point
from connectors.iceberg.iceberg_metrics import IcebergMetrics
from connectors.iceberg.protocol import actions
from connectors.iceberg.protocol.coordinator_state import Outcome
from connectors.iceberg.protocol.ledger import TableView, ledger_key, look_up, source_offsets_key
from connectors.iceberg.protocol.messages import Need
from connectors.iceberg.protocol.positions import Epoch
from connectors.iceberg.spark.catalog import LoadedTable, TableCatalog, add_order, keeps_order
from connectors.iceberg.spark.commit_request import (
    COMMIT_ID_KEY,
    MAIN,
    SNAPSHOT_ID,
    CommitRequest,
    CommitStatus,
    EngineName,
    holds_deletes,
    may_merge_by_sql,
    why_not_merged,
)
from connectors.iceberg.spark.committer import TableCommitter
from connectors.iceberg.spark.errors import (
    CatalogUnavailableError,
    SparkLostError,
    TableForbiddenError,
    TableMissingError,
    TableNotCreatedError,
    TableUnsuitableError,
)
from connectors.iceberg.spark.session import SparkConfig, SparkDriver
from connectors.iceberg.staging.file_output import why_not_written
from connectors.iceberg.staging.staged_file_name import StagedFileName, table_digits
from connectors.iceberg.staging.types import partition_spec, time_columns
from connectors.iceberg.staging.wish import Wish
from connectors.iceberg.storage_settings import storage_settings
from connectors.iceberg.table import TableDescription, WriteMode

log = logging.getLogger(__name__)

TASK_ID_KEY = "kafka.connect.task-id"
VALID_THROUGH_KEY = "kafka.connect.valid-through-ts"
REPLACEMENTS = 3  # of a driver that died, without a commit in between; then the task fails
BACKOFF_SECONDS = (0.0, 2.0, 8.0)  # before each of them

_OUTCOMES: Mapping[CommitStatus, Outcome] = {
    CommitStatus.COMMITTED: Outcome.COMMITTED,
    CommitStatus.CONFLICT: Outcome.CONFLICT,
    CommitStatus.FAILED_RETRY: Outcome.CONFLICT,
    CommitStatus.UNKNOWN: Outcome.UNKNOWN,
}


@dataclass(frozen=True, slots=True)
class Committed:
    """How a commit ended, in the protocol's words."""

    outcome: Outcome
    reason: str
    snapshot: int | None


class TableKeeper:
    """Owns the Spark driver. All methods but `stop` are called on one thread at a time."""

    def __init__(self, config: IcebergSinkConfig, listener: CommitListener, metrics: IcebergMetrics) -> None:
        self._config = config
        self._listener = listener
        self._metrics = metrics
        hadoop = config.hadoop_settings()
        merges_by_sql = config.commit_engine.value == EngineName.MERGE.value
        spark = SparkConfig(config.catalog_name, config.catalog, hadoop, config.spark, config.quick_jvm)
        self._needs_spark = config.mode is WriteMode.MERGE and (merges_by_sql or not spark.local)
        self._driver = SparkDriver(dataclasses.replace(spark, needs_spark=self._needs_spark and not spark.remote))
        self._catalog = TableCatalog(self._driver)
        self._committer = TableCommitter(
            self._driver,
            self._catalog,
            EngineName(config.commit_engine.value),
            refuse_foreign_rows=config.foreign_writers.value == "refuse",
            deadline_seconds=config.commit_attempt_timeout_ms / 1000,
            write_props=config.write_props,
        )
        self._remote = bool(spark.remote)
        self._property_key = ledger_key(config.connect_group)
        self._described: dict[str, TableDescription] = {}
        self._record_keys: dict[str, tuple[str, ...]] = {}  # by table, what tasks saw in its records
        self._held = HeldChanges(metrics)
        self._stopping = threading.Event()
        self._started = False
        self._deaths = 0  # of the driver, since the last commit

    def start(self) -> None:
        """Have the driver running; starts it, or a new one when it died.

        Raises:
            CatalogUnavailableError: It does not start.
            SparkLostError: It died again and again.
        """
        if self._driver.alive():
            return
        if self._started:
            self._deaths += 1
            if self._deaths > REPLACEMENTS:
                raise SparkLostError(f"the Spark driver died {self._deaths} times without a commit in between")
            log.warning("the Spark driver died and is replaced (%d of %d)", self._deaths, REPLACEMENTS)
            self._metrics.driver_replaced()
            if self._stopping.wait(BACKOFF_SECONDS[self._deaths - 1]):
                raise CatalogUnavailableError("the task stops")
        self._driver.restart()
        if self._needs_spark:
            self._driver.start_session()  # now, and not while the first cycle waits
        self._started = True

    def stop(self) -> None:
        """End the driver and its JVM, for good. From any thread; a call under way fails."""
        self._stopping.set()
        self._driver.stop()

    def view(self, name: str) -> TableView | None:
        """What the protocol wants to know of a table, from the catalog; None: it does not exist.

        Raises:
            ConnectError: The catalog does not answer, or refuses.
        """
        try:
            return self._load(name).view
        except TableMissingError:
            return None

    def has_ledger(self, view: TableView) -> bool:
        return look_up(view).ledger is not None

    def _load(self, name: str) -> LoadedTable:
        self.start()
        table = self._config.table(name)
        loaded = self._catalog.load(
            name, self._property_key, table.commit_branch or MAIN, self._config.mode_of(name), table.id_columns
        )
        description = loaded.description
        if description.mode is WriteMode.MERGE and not description.key_columns:  # the records' own key comes last
            description = dataclasses.replace(description, key_columns=self._record_keys.get(name, ()))
            loaded = dataclasses.replace(loaded, description=description)
        self._described[name] = description
        return loaded

    def prepare(self, name: str, need: Need, wish_text: str) -> tuple[TableView, str]:
        """Open a table for tasks, creating or evolving it as they asked and the configuration allows.

        Returns the view of the protocol and the description that goes to the tasks, without what the configuration
        says of the storage: that they know themselves.

        Raises:
            ChangesHeldError: The rows need what only a person may change; whoever waits for it asks again and again.
            ConnectError: It cannot be had; the text goes to the tasks that wait.
        """
        config, wish = self._config, Wish.from_text(wish_text)
        if wish.keys:
            self._record_keys[name] = wish.keys
        try:
            loaded = self._load(name)
        except TableMissingError:
            self._create(name, wish)
            loaded = self._load(name)
        if need is Need.EVOLVE and wish.changes:
            loaded = self._evolve(loaded, wish)
        engine = EngineName(config.commit_engine.value)
        if why := why_not_written(loaded.description) or why_not_merged(loaded.description, engine):
            raise TableUnsuitableError(name, why)
        loaded = self._with_order(loaded)
        description = loaded.description
        if description.mode is WriteMode.MERGE:
            _check_merged(name, description.key_columns, json.loads(description.schema))
        own = storage_settings(config.catalog_properties()).items()  # keys among them, which no topic needs to hold
        lent = dict(description.io_properties.items() - own)
        told = dataclasses.replace(description, io_properties=lent)
        return loaded.view, json.dumps(told.to_json(), separators=(",", ":"))

    def _with_order(self, loaded: LoadedTable) -> LoadedTable:
        """With a column for the order of rows, where SQL would lose it otherwise."""
        table = loaded.description
        engine = EngineName(self._config.commit_engine.value)
        if not self._config.ordering_columns or not may_merge_by_sql(engine, table, self._remote):
            return loaded
        if keeps_order(table):
            return loaded
        by_deltas = engine is EngineName.AUTO and not self._remote and holds_deletes(table)
        if by_deltas and self.has_ledger(loaded.view):
            return loaded  # rows that are there keep their order where SQL does not see it: deltas go on
        add_order(self._catalog, table.name)
        return self._load(table.name)

    def _evolve(self, loaded: LoadedTable, wish: Wish) -> LoadedTable:
        """Make the changes that may be made; hold the rows if they need others."""
        policy, name = self._config.evolution, loaded.description.name
        wanted = [c for c in wish.changes if policy.action(c.kind) is ChangeAction.APPLY]
        changed = bool(wanted) and self._catalog.evolve(name, wanted)
        if changed:
            made = ", ".join(map(str, wanted))
            log.info("table %s: %s", name, made, extra={"action": "table_evolved", "table": name})
            loaded = self._load(name)
        elsewhere = wish.schema_id is not None and loaded.description.schema_id != wish.schema_id
        if changed or elsewhere:  # also by an earlier attempt, which may have ended before the view was made
            self._show_unified(loaded.description)
        held = [c for c in wish.changes if policy.action(c.kind) is ChangeAction.HOLD]
        if held and loaded.description.schema_id == wish.schema_id:
            self._held.hold(name, held)
            raise ChangesHeldError(name, held)
        self._held.release(name)
        return loaded

    def _show_unified(self, description: TableDescription) -> None:
        """Make or renew the view over versions of columns. Without it nothing is lost: the columns can be read."""
        view = UnifiedView.of(description) if self._config.evolution_view else None
        if view is None:
            return
        name = self._config.evolution_view.replace("{table}", description.name)
        try:
            shown = self._catalog.replace_view(name, view.schema, view.sql)
        except (TableForbiddenError, TableUnsuitableError) as error:
            log.warning("view %s over table %s is not made: %s", name, description.name, error.why)
            return
        if shown:
            log.info("view %s shows table %s with one column per field", name, description.name)
        else:
            log.warning("this catalog has no views: %s over table %s is not made", name, description.name)

    def _create(self, name: str, wish: Wish) -> None:
        config = self._config
        if not config.may_create(name):
            raise TableMissingError(name, "does not exist, and iceberg.tables.auto-create-enabled is false")
        if wish.schema is None:
            raise TableNotCreatedError(name, f"does not exist, and cannot be created: {wish.reason}")
        if config.mode_of(name) is WriteMode.MERGE:  # before it is there, and refused for good
            keys = config.table(name).id_columns or wish.keys or self._record_keys.get(name, ())
            _check_merged(name, keys, wish.schema)
        try:
            spec = partition_spec(wish.schema, config.table(name).partition_by)
        except DataError as error:
            raise TableUnsuitableError(name, str(error)) from error
        properties = {"format-version": str(config.format_version_of(name))}
        by_deletes = config.mode_of(name) is WriteMode.MERGE and config.format_version_of(name) >= 2
        if by_deletes:  # for SQL merges: rewriting whole files costs several times more
            properties |= dict.fromkeys(("write.merge.mode", "write.update.mode", "write.delete.mode"), "merge-on-read")
        properties |= config.auto_create_props
        created = self._catalog.create(name, json.dumps(wish.schema), json.dumps(spec), properties)
        fault_point("after_create_table")
        if created:
            log.info("created table %s", name, extra={"action": "table_created", "table": name})

    def commit(self, request: actions.CommitRequest, epoch: Epoch) -> Committed:
        """Make one snapshot (steps 4 and 5).

        Raises:
            ConnectError: Certainly nothing was committed.
        """
        self.start()
        config = self._config
        description = self._described[request.table]
        table = config.table(request.table)
        files = [file for found in request.files.values() for file in found]
        summary = {
            self._property_key: request.ledger.to_json(),
            COMMIT_ID_KEY: request.commit,
            TASK_ID_KEY: f"{config.connector}-0",
        }
        offsets = {source_offsets_key(config.connect_group): request.ledger.source_offsets()}
        if request.ledger.is_told:
            summary |= offsets
        valid_through = None
        if request.valid_through_ms is not None:
            valid_through = datetime.fromtimestamp(request.valid_through_ms / 1000, UTC)
            summary[VALID_THROUGH_KEY] = valid_through.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        fault_point("before_prepare")
        outcome = self._committer.commit(
            CommitRequest(
                table=request.table,
                commit_id=request.commit,
                expected=request.expected,
                property_key=self._property_key,
                property_template=request.property_text(SNAPSHOT_ID),
                summary=summary,
                properties={} if request.ledger.is_told else offsets,  # of now only: thousands of partitions are long
                files=files,
                mode=description.mode,
                key_columns=description.key_columns,
                ordered=bool(config.ordering_columns) and description.mode is WriteMode.MERGE,
                ref=table.commit_branch or MAIN,
                work_branch=f"connect-{config.connector}-{epoch.number}-{epoch.nonce}",
                file_prefix=StagedFileName.epoch_prefix(  # so that `clean` finds orphans
                    config.connector, epoch, table_digits(description.uuid)
                ),
            )
        )
        fault_point("after_compare_and_swap")
        if outcome.status is CommitStatus.COMMITTED:
            self._deaths = 0
        self._metrics.committed(request.table, outcome, request.valid_through_ms)
        counts = outcome.counts
        log.info(
            "commit %s to %s: %s by engine %s, %d rows in %d files, %d replaced, %d ms%s",
            request.commit, request.table, outcome.status.value, outcome.engine.value, counts.added_rows,
            counts.added_files, counts.replaced_rows, counts.milliseconds,
            f" ({outcome.reason})" if outcome.reason else "",
            extra={"action": "table_commit", "table": request.table, "commit_id": request.commit},
        )  # fmt: skip
        if outcome.snapshot_id is not None:
            self._listener.on_table_commit(request, outcome.snapshot_id, valid_through)
        return Committed(_OUTCOMES[outcome.status], outcome.reason, outcome.snapshot_id)

    def clean(self, name: str, table_uuid: str, epoch: Epoch) -> None:
        """Remove what earlier epochs left: staged files that no snapshot references, and their branches."""
        config = self._config
        fault_point("before_clean")
        if config.mode_of(name) is WriteMode.MERGE:  # a life before may have merged by SQL
            self._catalog.drop_branches(name, f"connect-{config.connector}-", epoch.number)
        removed = self._catalog.remove_files(name, table_uuid, StagedFileName.prefix(config.connector), epoch.number)
        fault_point("after_clean")
        if removed is None:
            log.warning("table %s is too large to look for staged files of earlier epochs: they stay", name)
        elif removed:
            log.info("table %s: removed %d staged files of earlier epochs", name, removed)


def _check_merged(name: str, keys: Sequence[str], schema: Mapping[str, Any]) -> None:
    """Whether rows of such a schema can be merged by these columns.

    Raises:
        TableUnsuitableError: They cannot.
    """
    if not keys:
        raise TableUnsuitableError(
            name,
            f"MERGE needs to know the key: set iceberg.table.{name}.id-columns or "
            "iceberg.tables.default-id-columns, identifier fields on the table, or iceberg.ext.key-source=record",
        )
    names = {column["name"] for column in schema["fields"]}
    if gone := [key for key in keys if key not in names]:
        raise TableUnsuitableError(name, f"has no key column {gone[0]}")
    if times := time_columns(schema):
        raise TableUnsuitableError(
            name, f"column {times[0]} is of type time, which Spark cannot read, so rows cannot be merged"
        )
