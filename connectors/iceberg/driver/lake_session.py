"""`LakeSession`: the tables of one catalog in one Spark session, as a coordinator and the commands
use them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from connectors.iceberg.catalog import snapshot_history
from connectors.iceberg.catalog.java_catalog import JavaCatalog
from connectors.iceberg.catalog.java_errors import REFUSED, is_a, translating
from connectors.iceberg.catalog.java_table import JavaTable
from connectors.iceberg.catalog.sql_names import relation
from connectors.iceberg.catalog.staged_rows import content_file, extra_columns
from connectors.iceberg.commit import orphan_files
from connectors.iceberg.commit.engine import CommitEngine
from connectors.iceberg.commit.partial_rows import open_pairs
from connectors.iceberg.config.file_io_properties import file_io_properties
from connectors.iceberg.config.partition_by import PartitionTerm
from connectors.iceberg.config.sort_by import SortTerm
from connectors.iceberg.protocol.commit_request import CommitOutcome, CommitRequest, EngineSettings
from connectors.iceberg.protocol.faults import fault_point
from connectors.iceberg.protocol.ledger import TableView
from connectors.iceberg.protocol.table_metadata import TableMetadata
from connectors.iceberg.staging.staged_changes import HALF, PAIR, Half
from connectors.iceberg.table.schema_change import SchemaChange
from connectors.iceberg.table.table import TableDescription, WriteMode
from connectors.iceberg.table.table_history import TableHistory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")

_ATTEMPTS = 5  # of a change of a schema
# long, and of no use to tasks
_POSITIONS = (
    "connect-py.ledger.",
    "connect-py.unpublished.",
    "connect-py.rejected.",
    "connect-py.aggregates.",
    "connect-py.aggregate.ledger.",
    "kafka.connect.source-offsets.",
)


@dataclass(frozen=True, slots=True)
class LoadedTable:
    """What the catalog says about a table right now."""

    description: TableDescription
    view: TableView  # of the ref that was asked for, or of the branch of unpublished commits
    unpublished: bool = False  # whether it is of that branch


class LakeSession:
    """Tables by name. Names are split on every dot: `a.b.t` is table `t` in namespace `a.b`.

    Every method asks the catalog anew and raises, besides what it says itself:

        TableMissingError, TableForbiddenError: The catalog answers so.
        TableUnsuitableError: What was asked makes no sense for this table.
        CatalogUnavailableError: No answer; it may work later.
    """

    def __init__(self, spark: SparkSession, catalog: str, settings: EngineSettings) -> None:
        """Take a session that knows the catalog.

        Raises:
            CatalogUnavailableError, ConnectError: The catalog cannot be made.
        """
        with translating("the catalog", of_table=False):
            self._catalog = JavaCatalog(spark, catalog)
        self.spark = spark
        self.catalog_name = catalog
        self.engine = CommitEngine(spark, self._catalog, catalog, settings)

    def load(
        self,
        name: str,
        property_key: str,
        ref: str = "main",
        mode: WriteMode = WriteMode.APPEND,
        key_columns: Sequence[str] = (),
        unpublished_branch: str | None = None,
    ) -> LoadedTable:
        """Describe a table to tasks, and to the protocol; with commits that are unpublished.

        `mode` and `key_columns` are the connector's; without key columns, MERGE takes the table's
        identifier fields.
        """
        fault_point("catalog_load")
        with translating(name):
            table = self._catalog.load(name)
            metadata = table.metadata()
            at = metadata.commit_ref(ref, unpublished_branch)
            io = file_io_properties(table.io_properties(metadata.data_location))
            path = open_pairs(metadata, property_key, at) if mode is WriteMode.MERGE else None
            open_ = () if path is None else tuple(self._open_pairs(table, path))
        described = _described(name, metadata, io, mode, key_columns)
        described = dataclasses.replace(described, open_pairs=open_)
        return LoadedTable(described, metadata.view(at, property_key), unpublished=at != ref)

    def _open_pairs(self, table: JavaTable, path: str) -> Iterator[str]:
        """Pairs of which a file of open pairs has the delete."""
        if (file := table.changes_at(path)) is not None:
            with table.staged([content_file(file)], extra_columns()) as name:
                deletes = f"{HALF} IN ({int(Half.DELETE)}, {int(Half.NOTHING)})"
                for row in self.spark.table(name).where(deletes).select(PAIR).collect():
                    yield row[0]

    def metadata(self, name: str) -> tuple[str, dict[str, str]]:
        """The URI of the table's current metadata, and the file IO's settings: enough to read it
        without a catalog."""
        fault_point("catalog_metadata")
        with translating(name):
            table = self._catalog.load(name)
            io = table.io_properties(table.metadata().data_location)
            return table.metadata_location(), file_io_properties(io)

    def create(
        self,
        name: str,
        schema: str,
        spec: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> bool:
        """Create a table, and its namespaces. Returns False when it exists already, as it is.

        Args:
            name: As routed.
            schema: Iceberg schema JSON; field ids are assigned anew, in order.
            spec: Iceberg partition spec JSON on the schema's ids; None: unpartitioned.
            properties: Table properties; `format-version` among them.
        """
        fault_point("catalog_create")
        with translating(name):
            return self._catalog.create(name, schema, spec, properties or {})

    def evolve(self, name: str, changes: Sequence[SchemaChange]) -> bool:
        """Make all changes in one transaction; those that the table has already are left out.

        Former names and versions of columns are noted in the table's property `connect-py.columns`.

        Returns whether the schema changed.
        """
        fault_point("catalog_evolve")
        with translating(name):
            for _ in range(_ATTEMPTS - 1):
                try:
                    return self._catalog.load(name).evolve(changes)
                except Exception as error:
                    # A commit of others came in between, or the catalog refused what it had made:
                    # look again.
                    if not is_a(error, REFUSED):
                        raise
            return self._catalog.load(name).evolve(changes)

    def set_properties(self, name: str, properties: Mapping[str, str]) -> None:
        """Set properties of the table."""
        fault_point("catalog_set_properties")
        with translating(name):
            self._catalog.load(name).set_properties(properties)

    def set_layout(
        self, name: str, sort_by: Sequence[SortTerm], partition_by: Sequence[PartitionTerm] | None
    ) -> bool:
        """Give the table this sort order, and these partition fields unless they are None; files
        stay as they are.

        Returns whether something changed.
        """
        fault_point("catalog_set_layout")
        with translating(name):
            table = self._catalog.load(name)
            changed = bool(sort_by) and table.set_sort_order(sort_by)
            if partition_by is not None:
                changed |= table.set_partition_fields(partition_by)
            return changed

    def commit(self, request: CommitRequest) -> CommitOutcome:
        """See `CommitEngine.commit`."""
        return self.engine.commit(request)

    def settle(self, name: str, property_key: str) -> None:
        """Have the tables that follow this one in step with its last commit, if a crash kept them
        from it."""
        with translating(name):
            self.engine.settle(self._catalog.load(name), property_key)

    def remove_files(self, name: str, uuid: str, prefix: str, below: int) -> int | None:
        """Delete files of earlier epochs below the table's data location, unless a snapshot
        references them.

        They are named `prefix`, an epoch's number that is lower than `below`, a dash, a nonce, and
        the digits of this table, as `StagedFileName` has it: a newer epoch may be at work beside
        us, and another table in the same folder. A table with another uuid is left alone, and so is
        one with `gc.enabled=false`. Call it only after a commit of the own epoch on this table:
        until then a sleeper's commit could still refer to the files.

        Returns how many were deleted; None: it took too long and nothing was.
        """
        fault_point("catalog_removeFiles")
        with translating(name):
            return orphan_files.remove(self._catalog.load(name), uuid, prefix, below)

    def history(self, name: str, ref: str) -> TableHistory:
        """Everything that a table remembers, for an audit; reads every manifest that the ref's
        snapshots have left."""
        with translating(name):
            return snapshot_history.read(self._catalog.load(name), ref)

    def delete_rows(self, name: str, condition: str, branch: str | None = None) -> None:
        """Delete the rows of a table that fulfil a condition in SQL, in a commit of its own."""
        with translating(name):
            self.spark.sql(
                f"DELETE FROM {relation(self.catalog_name, name, branch)} WHERE {condition}"
            )

    def run(self, name: str, function: Callable[..., T], *args: Any) -> T:
        """Call a function with this session, the name, and `args`. These and the result travel
        between processes."""
        with translating(name):
            return function(self, name, *args)

    def table(self, name: str) -> JavaTable:
        """Java's view of a table, for this package."""
        with translating(name):
            return self._catalog.load(name)


def _described(
    name: str,
    metadata: TableMetadata,
    io: Mapping[str, str],
    mode: WriteMode,
    key_columns: Sequence[str],
) -> TableDescription:
    keys = tuple(key_columns) or metadata.identifier_columns()
    return TableDescription(
        name=name,
        uuid=metadata.uuid,
        format_version=metadata.format_version,
        location=metadata.location,
        data_location=metadata.data_location,
        schema_id=metadata.schema["schema-id"],
        schema=json.dumps(metadata.schema, separators=(",", ":")),
        spec=json.dumps(metadata.spec, separators=(",", ":")),
        mode=mode,
        key_columns=keys if mode is WriteMode.MERGE else (),
        properties={
            key: value
            for key, value in metadata.properties.items()
            if not key.startswith(_POSITIONS)
        },
        io_properties=io,
    )
