"""`LakeSession`: operations on the tables of one catalog in one Spark session."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from connectors.iceberg.catalog import snapshot_history
from connectors.iceberg.catalog.java_catalog import CHANGE_COLUMNS, JavaCatalog, JavaTable
from connectors.iceberg.catalog.java_errors import REFUSED, is_a, translating
from connectors.iceberg.catalog.sql_names import relation
from connectors.iceberg.commit import orphan_files
from connectors.iceberg.commit.engine import CommitEngine
from connectors.iceberg.commit.partial_rows import open_pairs
from connectors.iceberg.config.layout_terms import PartitionTerm, SortTerm
from connectors.iceberg.config.storage_settings import file_io_properties
from connectors.iceberg.protocol.commit_request import EngineSettings
from connectors.iceberg.protocol.faults import fault_point
from connectors.iceberg.protocol.ledger import TableView
from connectors.iceberg.staging.staged_changes import HALF, PAIR, Half
from connectors.iceberg.table.schema_change import SchemaChange
from connectors.iceberg.table.table import TableDescription, WriteMode
from connectors.iceberg.table.table_history import TableHistory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")

_ATTEMPTS: Final = 5  # maximum number of attempts to apply a schema change
# prefixes of long table properties that tasks do not use
_POSITIONS: Final = (
    "connect-py.ledger.",
    "connect-py.unpublished.",
    "connect-py.rejected.",
    "connect-py.aggregates.",
    "connect-py.aggregate.ledger.",
    "kafka.connect.source-offsets.",
)


@dataclass(frozen=True, slots=True)
class LoadedTable:
    """State of a table in the catalog at one point in time."""

    description: TableDescription
    view: TableView  # view of the requested ref, or of the branch with unapproved commits
    unpublished: bool = False  # True if `view` shows the branch with unapproved commits


class LakeSession:
    """Operations on the tables of a catalog.

    Table names are split at every dot: `a.b.t` is table `t` in namespace `a.b`. Every method loads
    the table from the catalog and may raise these errors in addition to its own errors:

        TableMissingError: The table does not exist.
        TableForbiddenError: The catalog denies access to the table.
        TableUnsuitableError: The request is not valid for this table.
        CatalogUnavailableError: The catalog does not respond. A later call may succeed.
    """

    def __init__(self, spark: SparkSession, catalog: str, settings: EngineSettings) -> None:
        """Open the catalog that the Spark session's settings define.

        Raises:
            CatalogUnavailableError, ConnectError: The catalog cannot be created.
        """
        with translating("the catalog", of_table=False):
            self._catalog = JavaCatalog(spark, catalog)
        self.spark = spark
        self.catalog_name = catalog
        self.engine = CommitEngine(self._catalog, settings)
        self.commit = self.engine.commit

    def load(
        self,
        name: str,
        property_key: str,
        ref: str = "main",
        mode: WriteMode = WriteMode.APPEND,
        key_columns: Sequence[str] = (),
        unpublished_branch: str | None = None,
    ) -> LoadedTable:
        """Load the state of a table that tasks and the coordinator require.

        `property_key` is the table property that contains the connector's ledger. If commits await
        approval on `unpublished_branch`, the view includes them. `mode` and `key_columns` are
        connector settings. Without key columns, MERGE uses the table's identifier fields.
        """
        with self._loaded(name, "catalog_load") as table:
            metadata = table.metadata()
            commit_ref = metadata.commit_ref(ref, unpublished_branch)
            io_properties = file_io_properties(table.io_properties())
            is_merge = mode is WriteMode.MERGE
            path = open_pairs(metadata, property_key, commit_ref) if is_merge else None
            pairs = [] if path is None else self._deleted_pairs(table, path)
        description = TableDescription(
            name=name,
            uuid=metadata.uuid,
            format_version=metadata.format_version,
            location=metadata.location,
            data_location=metadata.data_location,
            schema_id=metadata.schema["schema-id"],
            schema=json.dumps(metadata.schema, separators=(",", ":")),
            spec=json.dumps(metadata.spec, separators=(",", ":")),
            mode=mode,
            key_columns=(tuple(key_columns) or metadata.identifier_columns()) if is_merge else (),
            properties={
                key: value
                for key, value in metadata.properties.items()
                if not key.startswith(_POSITIONS)
            },
            io_properties=io_properties,
            open_pairs=tuple(pairs),
        )
        return LoadedTable(
            description,
            metadata.view(commit_ref, property_key),
            unpublished=commit_ref != ref,
        )

    def _deleted_pairs(self, table: JavaTable, path: str) -> list[str]:
        """Return the pair IDs of the deletes in an open-pairs file.

        If a primary key changes, Debezium emits a pair of events: the delete of the old key and the
        insert of the new key. The file stores events whose counterpart has not been read yet.
        """
        if (file := table.changes_at(path)) is None:
            return []
        with table.staged([file], CHANGE_COLUMNS) as name:
            deletes = f"{HALF} IN ({int(Half.DELETE)}, {int(Half.NOTHING)})"
            rows = self.spark.table(name).where(deletes).select(PAIR).collect()
        return [row[0] for row in rows]

    def metadata(self, name: str) -> tuple[str, dict[str, str]]:
        """Return the URI of the current table metadata, and the table's FileIO properties.

        These values are sufficient to read the table without a catalog.
        """
        with self._loaded(name, "catalog_metadata") as table:
            return table.metadata_location(), file_io_properties(table.io_properties())

    def create(
        self,
        name: str,
        schema: str,
        spec: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> bool:
        """Create a table and its namespaces. Return False if the table already exists.

        Args:
            name: The table name that the connector's routing produced.
            schema: Iceberg schema JSON. Field IDs are reassigned in order.
            spec: Iceberg partition spec JSON with the field IDs in `schema`, or None for an
                unpartitioned table.
            properties: Table properties, including `format-version`.
        """
        fault_point("catalog_create")
        with translating(name):
            return self._catalog.create(name, schema, spec, properties or {})

    def evolve(self, name: str, changes: Sequence[SchemaChange]) -> bool:
        """Apply, in one transaction, the changes that the table does not have yet.

        Return True if any change was applied. The table property `connect-py.columns` stores
        former column names, and the columns that `ChangeKind.VERSION` has added.
        """
        fault_point("catalog_evolve")
        with translating(name):
            for _ in range(_ATTEMPTS - 1):
                try:
                    return self._catalog.load(name).evolve(changes)
                except Exception as error:
                    # Another commit was first, or the catalog reported a failure for a change that
                    # it had in fact committed. Load the table again.
                    if not is_a(error, REFUSED):
                        raise
            return self._catalog.load(name).evolve(changes)

    def set_properties(self, name: str, properties: Mapping[str, str]) -> None:
        """Set table properties."""
        with self._loaded(name, "catalog_set_properties") as table:
            table.set_properties(properties)

    def set_layout(
        self, name: str, sort_by: Sequence[SortTerm], partition_by: Sequence[PartitionTerm] | None
    ) -> bool:
        """Set the sort order and the partition fields for new files.

        An empty `sort_by` leaves the sort order unchanged. If `partition_by` is None, the partition
        fields are unchanged. Existing files are not rewritten. Return True if the layout changed.
        """
        with self._loaded(name, "catalog_set_layout") as table:
            changed = bool(sort_by) and table.set_sort_order(sort_by)
            if partition_by is not None:
                changed |= table.set_partition_fields(partition_by)
            return changed

    def settle(self, name: str, property_key: str) -> None:
        """Finish work that a crash interrupted after a commit, such as updating aggregates."""
        with translating(name):
            self.engine.rules.settle(self._catalog.load(name), property_key, None)

    def remove_files(self, name: str, uuid: str, prefix: str, below: int) -> int | None:
        """Delete unreferenced files that earlier epochs left in the table's data location.

        The names of these files begin with `prefix`, an epoch number lower than `below`, a dash, a
        nonce, a dot, and the last digits of the table's UUID (see `StagedFileName`). Files that
        belong to a newer epoch or to another table in the same folder do not match. A table with
        another UUID or with `gc.enabled=false` is not changed.

        Call this method only after epoch `below` has committed to the table. Until then, a late
        commit from an earlier epoch could reference the files.

        Return the number of deleted files, or None if the search took too long and nothing was
        deleted.
        """
        with self._loaded(name, "catalog_removeFiles") as table:
            return orphan_files.remove(table, uuid, prefix, below)

    def history(self, name: str, ref: str) -> TableHistory:
        """Return the complete history of a table for an audit.

        This reads every manifest of the ref's snapshots that still exists.
        """
        with translating(name):
            return snapshot_history.read(self._catalog.load(name), ref)

    def delete_rows(self, name: str, condition: str, branch: str | None = None) -> None:
        """Delete the rows of a table that match an SQL condition, in a separate commit."""
        table = relation(self.catalog_name, name, branch)
        with translating(name):
            self.spark.sql(f"DELETE FROM {table} WHERE {condition}")

    def run(self, name: str, function: Callable[..., T], *args: Any) -> T:
        """Call a function with this session, the table name, and `args`.

        The function, `args`, and the result must be picklable.
        """
        with translating(name):
            return function(self, name, *args)

    def table(self, name: str) -> JavaTable:
        """Load a table. Intended for functions that are passed to `run`."""
        with translating(name):
            return self._catalog.load(name)

    @contextmanager
    def _loaded(self, name: str, point: str) -> Iterator[JavaTable]:
        """Trigger a fault point, then load a table for use in the `with` block."""
        fault_point(point)
        with translating(name):
            yield self._catalog.load(name)
