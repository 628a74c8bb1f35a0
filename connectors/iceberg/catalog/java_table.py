"""`JavaTable`: one table as Iceberg's Java classes present it, called through py4j, for metadata
only.

Rows never pass through here. Data passes through Spark SQL and DataFrames.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from connectors.iceberg.catalog.java_classes import JavaClasses
from connectors.iceberg.catalog.recorded_table import RecordedTable
from connectors.iceberg.catalog.schema_update import pending, remembered
from connectors.iceberg.catalog.table_update import TableUpdate
from connectors.iceberg.config.partition_by import PartitionTerm
from connectors.iceberg.config.sort_by import SortTerm
from connectors.iceberg.config.spark_config import STAGING_CATALOG
from connectors.iceberg.conversion.full_names import columns_inside
from connectors.iceberg.errors import TableUnsuitableError
from connectors.iceberg.protocol.commit_request import MAIN
from connectors.iceberg.protocol.table_metadata import Snapshot, TableMetadata
from connectors.iceberg.table.schema_change import ChangeKind, SchemaChange
from connectors.iceberg.table.table import StagedFile, StagedKind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# a format 3 writer asks for them when it rewrites rows
_LINEAGE: Final = ("_row_id", "_last_updated_sequence_number")
# Bytes that opening a file counts for when a MERGE plans its tasks. With Iceberg's default of 4 MB,
# Spark starts one task for every four small files.
_OPEN_FILE_COST: Final = "65536"


class JavaTable:
    """One load of a table, for one attempt of a commit or for one question."""

    def __init__(self, spark: SparkSession, java: JavaClasses, table: Any, name: str) -> None:
        self.name = name
        self._spark = spark
        self._java = java
        self._table = table
        self._operations = table.operations()

    # --- what the catalog says

    def metadata(self) -> TableMetadata:
        """Of the newest load or refresh."""
        return self._java.metadata(self._operations.current())

    def refresh(self) -> TableMetadata:
        self._table.refresh()
        return self.metadata()

    def has_changed(self) -> bool:
        """Refresh, and return True if the table has other metadata than before."""
        before = self.metadata_location()
        self._table.refresh()
        return self.metadata_location() != before

    def metadata_location(self) -> str:
        return str(self._operations.current().metadataFileLocation())

    def io_properties(self, data_location: str) -> dict[str, str]:
        """The settings of the table's file IO, and the credentials that the catalog lent for this
        location."""
        io = self._table.io()
        found: dict[str, str] = self._java.json(io.properties())
        if self._java.is_instance(io, "org.apache.iceberg.io.SupportsStorageCredentials"):
            longest = ""
            for credential in io.credentials():
                prefix = credential.prefix()
                if data_location.startswith(prefix) and len(prefix) >= len(longest):
                    found |= self._java.json(credential.config())
                    longest = prefix
        return found

    # --- changes of the schema and of properties

    def evolve(self, changes: Sequence[SchemaChange]) -> bool:
        """Make those changes that the table lacks, in one transaction; returns whether there were
        any."""
        transaction = self._table.newTransaction()
        # newer than ours, if another writer was at it too
        metadata = self._java.metadata(transaction.startMetadata())
        lacking = pending(self.name, metadata.schema, metadata.format_version, changes)
        if not lacking:
            return False
        update = transaction.updateSchema()
        for change in lacking:
            self._apply(update, change)
        update.commit()
        after = self._java.metadata(transaction.currentMetadata())
        properties = remembered(metadata.properties, metadata.schema, after.schema, lacking)
        if properties:
            self.set_properties(properties, transaction)
        transaction.commitTransaction()
        return True

    def _apply(self, update: Any, change: SchemaChange) -> None:
        *parents, name = change.path
        path, parent = ".".join(change.path), ".".join(parents) or None
        match change.kind:
            case ChangeKind.ADD if change.default is not None:
                # the default stays in Java: here a small long would become an int
                made = self._column(change)
                update.addColumn(parent, name, made.type(), None, made.initialDefaultLiteral())
            case ChangeKind.ADD:
                update.addColumn(parent, name, self._column(change).type())
            case ChangeKind.VERSION:
                doc = f"Values of {name} since their type changed"
                update.addColumn(parent, change.name, self._column(change).type(), doc)
            case ChangeKind.RENAME:
                update.renameColumn(path, change.name)
            case ChangeKind.WIDEN:
                update.updateColumn(path, self._column(change).type())
            case ChangeKind.OPTIONAL:
                update.makeColumnOptional(path)

    def _column(self, change: SchemaChange) -> Any:
        """Type and default of a change, through a schema of one column."""
        field = {
            "id": 1_000_000,
            "name": "x",
            "required": False,
            "type": json.loads(change.type or ""),
        }
        if change.default is not None:
            field["initial-default"] = json.loads(change.default)
        return self._java.schema([field]).findField("x")

    def set_properties(self, properties: Mapping[str, str], transaction: Any = None) -> None:
        """`transaction`: in which they are set; None: at once."""
        update = (transaction or self._table).updateProperties()
        for key, value in properties.items():
            update.set(key, value)
        update.commit()

    def set_sort_order(self, terms: Sequence[SortTerm]) -> bool:
        """Give the table this order; returns False if it has it."""
        wanted = self._java.iceberg("SortOrder").builderFor(self._table.schema())
        self._order(wanted, terms)
        if self._table.sortOrder().sameOrder(wanted.build()):
            return False
        update = self._table.replaceSortOrder()
        self._order(update, terms)
        update.commit()
        return True

    def _order(self, builder: Any, terms: Sequence[SortTerm]) -> None:
        nulls = self._java.iceberg("NullOrder")
        for each in terms:
            place = nulls.NULLS_FIRST if each.nulls_first else nulls.NULLS_LAST
            (builder.desc if each.descending else builder.asc)(
                self._java.transform(each.term), place
            )

    def set_partition_fields(self, terms: Sequence[PartitionTerm]) -> bool:
        """Have new files partitioned by these; returns False if they are."""
        metadata = self.metadata()
        names = {column["id"]: path for path, column in columns_inside(metadata.schema)}
        there = {
            (".".join(names.get(field["source-id"], ())), field["transform"]): field["name"]
            for field in metadata.spec["fields"]
            if field["transform"] != "void"
        }
        wanted = {
            (each.column, each.iceberg_transform): each
            for each in terms
            if each.transform != "void"
        }
        if there.keys() == wanted.keys():
            return False
        update = self._table.updateSpec()
        for key in there.keys() - wanted.keys():
            update.removeField(there[key])
        for key, each in wanted.items():
            if key not in there:
                update.addField(each.name, self._java.transform(each))
        update.commit()
        return True

    # --- staged files

    @contextmanager
    def staged(
        self, files: Sequence[Mapping[str, Any]], extra: Sequence[Mapping[str, Any]] = ()
    ) -> Iterator[str]:
        """Name of a relation of staged files for SQL. Iceberg reads them: by field id, with the
        table's file IO.

        Args: files: Content files as Iceberg's JSON has them, unpartitioned. extra: Columns beside
            the table's, as fields of Iceberg's schema JSON; their ids are no column's.
        """
        java, name = self._java, f"staged_{uuid.uuid4().hex}"
        table = self._as_if(self._with_columns(extra)) if extra else self._table
        no_deletes = java.array("org.apache.iceberg.DeleteFile", [])
        spec = java.unpartitioned  # keys alone lack the columns of partitions
        schema = java.iceberg("SchemaParser").toJson(table.schema())
        spec_text = java.iceberg("PartitionSpecParser").toJson(spec)
        residuals = java.iceberg("expressions.ResidualEvaluator").unpartitioned(java.every_row)
        staged = [
            java.content_file({**file, "spec-id": 0, "partition": {}}, spec) for file in files
        ]
        task = java.iceberg("BaseFileScanTask")
        tasks = [task(file, no_deletes, schema, spec_text, residuals) for file in staged]
        sets, cache = (
            java.singleton("spark.ScanTaskSetManager"),
            java.singleton("spark.SparkTableCache"),
        )
        cache.add(name, table)
        sets.stageTasks(table, name, java.objects(tasks))
        try:
            yield f"{STAGING_CATALOG}.{name}"
        finally:
            sets.removeTasks(table, name)
            cache.remove(name)

    def _with_columns(self, extra: Sequence[Mapping[str, Any]]) -> Any:
        """The metadata of the table with more columns; every column may be null, as staged changes
        lack values."""
        builder = self._java.iceberg("TableMetadata").buildFrom(self._operations.current())
        builder.setCurrentSchema(self._optional(extra), max(field["id"] for field in extra))
        return builder.discardChanges().build()

    def _optional(self, extra: Sequence[Mapping[str, Any]]) -> Any:
        """The schema of the table with more columns, where every column may be null."""
        return self._java.schema(
            [{**f, "required": False} for f in [*self.metadata().schema["fields"], *extra]]
        )

    def _as_if(self, metadata: Any, io: Any = None) -> Any:
        """The table with other metadata; the catalog does not see it. `io`: its file access; None:
        the table's."""
        java = self._java
        places = java.iceberg("LocationProviders").locationsFor(
            self._table.location(), metadata.properties()
        )
        operations = java.iceberg("StaticTableOperations")(metadata, io or self._table.io(), places)
        return java.iceberg("BaseTable")(operations, self._table.name())

    def elsewhere(self, location: str, io_properties: Mapping[str, str]) -> Any:
        """The table as if its files went to a location, with these settings of the file access
        beside its own."""
        java, metadata, io = self._java, self._operations.current(), self._table.io()
        own = java.map({**java.json(metadata.properties()), "write.data.path": location})
        if io_properties:
            settings = java.map({**java.json(io.properties()), **io_properties})
            hadoop = self._spark._jsc.hadoopConfiguration()
            io = java.iceberg("CatalogUtil").loadFileIO(io.getClass().getName(), settings, hadoop)
        return self._as_if(metadata.replaceProperties(own), io)

    def scan_tasks(self, snapshot: int, condition: Any) -> list[Any]:
        """Java's tasks that read the files which may have rows of a condition, whole."""
        found = (
            self._table.newScan()
            .useSnapshot(snapshot)
            .filter(condition)
            .ignoreResiduals()
            .planFiles()
        )
        try:
            return list(self._java.each(found))
        finally:
            found.close()

    def write(self, rows: DataFrame, folder: str) -> list[Any]:
        """Write rows of the table's columns as data files that no snapshot refers to; returns
        Java's data files.

        `folder`: below the table's data location.
        """
        java, metadata = self._java, self._operations.current()
        lineage = _LINEAGE if metadata.formatVersion() >= 3 else ()
        rows = rows.selectExpr("*", *(f"cast(NULL AS bigint) AS {column}" for column in lineage))
        own = java.map({**java.json(metadata.properties()), **self._below(folder)})
        return self._written(rows, metadata.replaceProperties(own))

    def _below(self, folder: str) -> dict[str, str]:
        """The property that has files written to a folder."""
        return {"write.data.path": f"{self.metadata().data_location}/{folder}"}

    def _written(self, rows: DataFrame, metadata: Any) -> list[Any]:
        java, table, name = self._java, self._as_if(metadata), f"written_{uuid.uuid4().hex}"
        cache, written = (
            java.singleton("spark.SparkTableCache"),
            java.singleton("spark.FileRewriteCoordinator"),
        )
        cache.add(name, table)
        try:
            rows.writeTo(f"{STAGING_CATALOG}.{name}").option("fanout-enabled", "true").append()
            return list(written.fetchNewFiles(table, name))
        finally:
            written.clearRewrite(table, name)
            cache.remove(name)

    def write_unbound(
        self, rows: DataFrame, folder: str, extra: Sequence[Mapping[str, Any]]
    ) -> list[Any]:
        """As `write`, unpartitioned, with more columns, and every column may be null."""
        java = self._java
        builder = (
            java.iceberg("TableMetadata")
            .buildFromEmpty(2)
            .assignUUID()
            .setLocation(self._table.location())
        )
        builder.setCurrentSchema(self._optional(extra), extra[-1]["id"])
        builder.setDefaultPartitionSpec(java.unpartitioned)
        builder.setDefaultSortOrder(java.iceberg("SortOrder").unsorted())
        builder.setProperties(java.map(self._below(folder)))
        return self._written(rows, builder.discardChanges().build())

    def changes_at(self, path: str) -> StagedFile | None:
        """A Parquet file of changes, as if a task had staged it; None: it is gone."""
        java, file = self._java, self._table.io().newInputFile(path)
        if not file.exists():
            return None
        config = java.iceberg("MetricsConfig").getDefault()
        rows = int(java.iceberg("parquet.ParquetUtil").fileMetrics(file, config).recordCount())
        return StagedFile(StagedKind.CHANGES, path, rows, int(file.getLength()), 0, 0)

    def data_file(
        self, content: Mapping[str, Any], spec_id: int, path: str, size: int, rows: int
    ) -> Any:
        """A staged file as a data file of the table, with the metrics of its footer.

        Raises:
            TableUnsuitableError: The file holds another number of rows.
        """
        java, spec = self._java, self._table.specs()[spec_id]
        file = java.content_file(content, spec)
        config = java.iceberg("MetricsConfig").forTable(self._table)
        metrics = java.iceberg("parquet.ParquetUtil").fileMetrics(
            self._table.io().newInputFile(path, size), config
        )
        if metrics.recordCount() != rows:
            raise TableUnsuitableError(
                self.name, f"{path} holds {metrics.recordCount()} rows, reported were {rows}"
            )
        return java.iceberg("DataFiles").builder(spec).copy(file).withMetrics(metrics).build()

    def content_file(self, file: Any) -> dict[str, Any]:
        """The JSON form of a data file."""
        spec = self._table.specs()[file.specId()]
        found: dict[str, Any] = json.loads(
            self._java.iceberg("ContentFileParser").toJson(file, spec)
        )
        return found

    # --- snapshots

    def snapshot(self, snapshot: int) -> Any:
        return self._operations.current().snapshot(snapshot)

    def has_data_files(self, snapshot: Snapshot | None) -> bool:
        """Whether a snapshot's manifests hold data files, whatever its summary counts."""
        if snapshot is None:
            return False
        manifests = self.snapshot(snapshot["snapshot-id"]).dataManifests(self._table.io())
        return any(
            manifest.hasAddedFiles() or manifest.hasExistingFiles() for manifest in manifests
        )

    def changes(self, snapshot: Any) -> Any:
        """What a snapshot added and removed, from its manifests: Java's `SnapshotChanges`."""
        return (
            self._java.iceberg("SnapshotChanges").builderFor(self._table).snapshot(snapshot).build()
        )

    def new_update(self) -> TableUpdate:
        """Begin a change of the newest metadata."""
        return TableUpdate(self._java, self._table, self._operations)

    @contextmanager
    def record(self, ref: str, folder: str) -> Iterator[RecordedTable]:
        """Provide the table on its loaded metadata to Spark SQL; a MERGE into it commits nothing.

        Args:
            ref: The branch that is read; main if the branch does not exist.
            folder: Where the files of the MERGE are written, below the table's data location.
        """
        metadata = self._operations.current()
        branch = ref if ref != MAIN and metadata.ref(ref) is not None else None
        overrides = {**self._below(folder), "read.split.open-file-cost": _OPEN_FILE_COST}
        java_class = self._java("connectpy.RecordedTable")
        recorded = java_class(
            self._operations, metadata, self.name, branch, self._java.map(overrides)
        )
        with RecordedTable(self._java, recorded, self.name).registered() as table:
            yield table

    @contextmanager
    def show(self, recorded: RecordedTable, ref: str) -> Iterator[str]:
        """Name of a relation of the rows as the recorded files leave them; the metadata stays in
        this JVM."""
        transaction = self._table.newTransaction()
        update = transaction.newOverwrite() if recorded.is_overwrite else transaction.newRowDelta()
        recorded.add_to(update)
        update.toBranch(ref).commit()
        metadata = transaction.currentMetadata()
        snapshot = self._java.iceberg("util.SnapshotUtil").latestSnapshot(metadata, ref)
        branch = ref if ref != MAIN else None
        java_class = self._java("connectpy.RecordedTable")
        shown = java_class(self._operations, metadata, self.name, branch, self._java.map({}))
        try:
            with RecordedTable(self._java, shown, self.name).registered() as table:
                yield table.relation
        finally:
            for path in self.own_metadata_files(snapshot):
                self.delete_file(path)

    def own_metadata_files(self, snapshot: Any) -> list[str]:
        """The manifest list of a snapshot, and the manifests that it made itself."""
        made = snapshot.allManifests(self._table.io())
        own = [
            manifest.path() for manifest in made if manifest.snapshotId() == snapshot.snapshotId()
        ]
        return [str(snapshot.manifestListLocation()), *map(str, own)]

    def files_added_by(self, snapshot: Any) -> list[str]:
        """Return the locations of the data and delete files that a snapshot added."""
        changes = self.changes(snapshot)
        return [
            str(file.location())
            for file in [*changes.addedDeleteFiles(), *changes.addedDataFiles()]
        ]

    def delete_file(self, location: str) -> None:
        self._table.io().deleteFile(location)

    # --- for commands that look at files

    @property
    def java(self) -> JavaClasses:
        """The classes of the JVM that loaded it."""
        return self._java

    @property
    def java_table(self) -> Any:
        """Java's table."""
        return self._table

    def java_schema(self) -> Any:
        return self._table.schema()

    def java_spec(self, spec_id: int) -> Any:
        return self._table.specs()[spec_id]

    def java_file(self, path: str) -> Any:
        """A file of the table's storage, to be read."""
        return self._table.io().newInputFile(path)

    def first_bytes(self, path: str, size: int) -> bytes:
        """What a file of the table's storage begins with; all of it if it is shorter."""
        stream = self.java_file(path).newStream()
        try:
            return bytes(stream.readNBytes(size))
        finally:
            stream.close()

    def data_files(self, snapshot: int) -> Iterator[Any]:
        """Java's data files of a snapshot, with their metrics."""
        found = self._table.newScan().useSnapshot(snapshot).includeColumnStats().planFiles()
        try:
            for task in self._java.each(found):
                yield task.file()
        finally:
            found.close()

    # --- for clean-up and audit

    def list_files(self, location: str) -> Iterator[str] | None:
        """Every file below a location; None: the storage cannot list."""
        io = self._table.io()
        if not self._java.is_instance(io, "org.apache.iceberg.io.SupportsPrefixOperations"):
            return None
        return (str(info.location()) for info in self._java.each(io.listPrefix(location)))

    def files_of_manifest(self, manifest: Any) -> Iterator[str]:
        """Paths of the live entries of a manifest."""
        manifests, io, specs = (
            self._java.iceberg("ManifestFiles"),
            self._table.io(),
            self._table.specs(),
        )
        data = str(manifest.content()) == "DATA"
        read = (
            manifests.read(manifest, io, specs)
            if data
            else manifests.readDeleteManifest(manifest, io, specs)
        )
        try:
            for file in self._java.each(read):
                yield str(file.location())
        finally:
            read.close()

    def live_data_files(self, snapshot: int) -> Iterator[str]:
        """With those that are named more than once."""
        for manifest in self.snapshot(snapshot).dataManifests(self._table.io()):
            yield from self.files_of_manifest(manifest)

    def manifests(self, snapshot: int) -> list[Any]:
        return list(self.snapshot(snapshot).allManifests(self._table.io()))
