"""`JavaCatalog` and `JavaTable`: access to a catalog and its tables through Iceberg's Java classes.

Java is called through py4j. Rows never pass through Python: Spark SQL and DataFrames read and write
them.
"""

from __future__ import annotations

import dataclasses
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from connect_py.plurals import pluralize
from connectors.iceberg.catalog.java_classes import JavaClasses
from connectors.iceberg.catalog.java_errors import EXCEPTIONS, is_a, translating
from connectors.iceberg.catalog.sql_names import relation
from connectors.iceberg.catalog.table_update import RecordedTable, TableChange, TableUpdate
from connectors.iceberg.config.layout_terms import PartitionTerm, SortTerm
from connectors.iceberg.config.spark_config import STAGING_CATALOG
from connectors.iceberg.conversion.column_names import HISTORY, ColumnHistory
from connectors.iceberg.conversion.full_names import Field, columns_inside
from connectors.iceberg.errors import TableMissingError, TableUnsuitableError
from connectors.iceberg.protocol.commit_request import MAIN
from connectors.iceberg.protocol.table_metadata import Snapshot, TableMetadata
from connectors.iceberg.staging.staged_changes import FIELD_IDS, PLAIN
from connectors.iceberg.table.schema_change import ChangeKind, SchemaChange
from connectors.iceberg.table.table import StagedFile, StagedKind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Additional columns of staged changes, as fields in Iceberg's schema JSON.
CHANGE_COLUMNS: Final[Sequence[Mapping[str, Any]]] = tuple(
    {"id": FIELD_IDS[name], "name": name, "required": False, "type": type_} for name, type_ in PLAIN
)
# Spark's writer for tables with format version 3 expects these columns.
_LINEAGE: Final = ("_row_id", "_last_updated_sequence_number")
# Cost of opening a file, in bytes, when a MERGE plans its tasks. With Iceberg's default of 4 MB,
# Spark starts a task for every four small files.
_OPEN_FILE_COST: Final = "65536"
_DEFAULTS_SINCE: Final = 3  # first format version with column defaults


class JavaCatalog:
    """One Iceberg catalog of a Spark session.

    Table names are split at every dot: `a.b.t` is table `t` in namespace `a.b`.
    """

    def __init__(self, spark: SparkSession, name: str) -> None:
        self.spark = spark
        self.name = name
        self.java = JavaClasses(spark)
        self._catalog = self.java.iceberg("spark.Spark3Util").loadIcebergCatalog(
            spark._jsparkSession, name
        )

    def load(self, name: str) -> JavaTable:
        """Load a table."""
        java_table = self._catalog.loadTable(self._identifier(name))
        if not self.java.is_instance(java_table, "org.apache.iceberg.HasTableOperations"):
            raise TableUnsuitableError(name, "is a metadata table")
        return JavaTable(self.java, java_table, name)

    def find(self, name: str) -> JavaTable | None:
        """Load a table. Return None if it does not exist."""
        try:
            with translating(name):
                return self.load(name)
        except TableMissingError:
            return None

    def create(
        self, name: str, schema: str, spec: str | None, properties: Mapping[str, str]
    ) -> bool:
        """Create a table and its namespaces. Return False if the table already exists."""
        java = self.java
        java_schema = java.iceberg("SchemaParser").fromJson(schema)
        java_spec = (
            java.unpartitioned
            if spec is None
            else java.iceberg("PartitionSpecParser").fromJson(java_schema, spec)
        )
        levels = name.split(".")[:-1]
        for length in range(1, len(levels) + 1):
            # The namespace may exist, or the user may not be allowed to create it. If it is really
            # missing, the creation of the table fails.
            with suppress(Exception):
                namespace = relation(self.name, ".".join(levels[:length]))
                self.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {namespace}")
        try:
            self._catalog.createTable(
                self._identifier(name), java_schema, java_spec, java.map(properties)
            )
        except Exception as error:
            if is_a(error, f"{EXCEPTIONS}AlreadyExistsException"):
                return False
            raise
        return True

    def _identifier(self, name: str) -> Any:
        return self.java.iceberg("catalog.TableIdentifier").parse(name)


class JavaTable:
    """A loaded table, used for one commit attempt or for one request."""

    def __init__(self, java: JavaClasses, java_table: Any, name: str) -> None:
        self.name = name
        self.java = java
        self.java_table = java_table
        self._operations = java_table.operations()

    # --- metadata

    def metadata(self) -> TableMetadata:
        """Return the metadata from the last load or refresh."""
        return self.java.metadata(self._operations.current())

    def metadata_location(self) -> str:
        """Return the URI of the metadata file."""
        return str(self._operations.current().metadataFileLocation())

    def refresh(self) -> TableMetadata:
        """Read the newest metadata from the catalog and return it."""
        self.java_table.refresh()
        return self.metadata()

    def has_changed(self) -> bool:
        """Refresh the metadata. Return True if it has changed."""
        before = self.metadata_location()
        self.java_table.refresh()
        return self.metadata_location() != before

    def io_properties(self) -> dict[str, str]:
        """Return the table's FileIO properties, including vended credentials for its data."""
        io, location = self.java_table.io(), self.metadata().data_location
        properties: dict[str, str] = self.java.json(io.properties())
        if self.java.is_instance(io, "org.apache.iceberg.io.SupportsStorageCredentials"):
            credentials = [(str(each.prefix()), each) for each in io.credentials()]
            for prefix, credential in sorted(credentials, key=lambda each: len(each[0])):
                if location.startswith(prefix):  # the longest prefix wins
                    properties |= self.java.json(credential.config())
        return properties

    # --- schema, properties, and layout

    def evolve(self, changes: Sequence[SchemaChange]) -> bool:
        """Apply, in one transaction, the changes that the table does not have yet.

        Return True if any change was applied.
        """
        transaction = self.java_table.newTransaction()
        # newer than the loaded metadata if another writer has evolved the table
        metadata = self.java.metadata(transaction.startMetadata())
        changes = _missing_changes(self.name, metadata.schema, metadata.format_version, changes)
        if not changes:
            return False
        update = transaction.updateSchema()
        for change in changes:
            self._apply(update, change)
        update.commit()
        after = self.java.metadata(transaction.currentMetadata())
        properties = _history_property(metadata.properties, metadata.schema, after.schema, changes)
        if properties:
            self.set_properties(properties, transaction)
        transaction.commitTransaction()
        return True

    def _apply(self, update: Any, change: SchemaChange) -> None:
        *parents, name = change.path
        path, parent = ".".join(change.path), ".".join(parents) or None
        match change.kind:
            case ChangeKind.ADD if change.default is not None:
                # keep the default in Java, because py4j would convert a small long to an int
                column = self._column(change)
                update.addColumn(parent, name, column.type(), None, column.initialDefaultLiteral())
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
        """Return a Java column with the type and the default value of a change."""
        column = {
            "id": 1_000_000,
            "name": "x",
            "required": False,
            "type": json.loads(change.type or ""),
        }
        if change.default is not None:
            column["initial-default"] = json.loads(change.default)
        return self.java.schema([column]).findField("x")

    def set_properties(self, properties: Mapping[str, str], transaction: Any = None) -> None:
        """Set table properties in a transaction, or immediately if there is none."""
        update = (transaction or self.java_table).updateProperties()
        for key, value in properties.items():
            update.set(key, value)
        update.commit()

    def set_sort_order(self, terms: Sequence[SortTerm]) -> bool:
        """Set the sort order of the table. Return False if it is unchanged."""
        update, nulls = self.java_table.replaceSortOrder(), self.java.iceberg("NullOrder")
        for each in terms:
            add = update.desc if each.descending else update.asc
            null_order = nulls.NULLS_FIRST if each.nulls_first else nulls.NULLS_LAST
            add(self.java.transform(each.term), null_order)
        if self.java_table.sortOrder().sameOrder(update.apply()):
            return False
        update.commit()
        return True

    def set_partition_fields(self, terms: Sequence[PartitionTerm]) -> bool:
        """Set the partition fields for new files. Return False if they are unchanged."""
        metadata = self.metadata()
        columns = {column["id"]: path for path, column in columns_inside(metadata.schema)}
        existing_fields = {
            (".".join(columns.get(field["source-id"], ())), field["transform"]): field["name"]
            for field in metadata.spec["fields"]
            if field["transform"] != "void"
        }
        new_fields = {
            (each.column, each.iceberg_transform): each
            for each in terms
            if each.transform != "void"
        }
        if existing_fields.keys() == new_fields.keys():
            return False
        update = self.java_table.updateSpec()
        for key in existing_fields.keys() - new_fields.keys():
            update.removeField(existing_fields[key])
        for key, each in new_fields.items():
            if key not in existing_fields:
                update.addField(each.name, self.java.transform(each))
        update.commit()
        return True

    # --- staged files

    def staged(
        self, files: Sequence[StagedFile | Any], extra: Sequence[Mapping[str, Any]] = ()
    ) -> AbstractContextManager[str]:
        """Provide a relation for Spark SQL with the rows of files that no snapshot references.

        Iceberg reads the files by field ID with the table's FileIO. The context manager yields the
        name of the relation.

        Args:
            files: Staged files, or Java data files.
            extra: Columns that the table does not have, as fields in Iceberg's schema JSON. Their
                IDs must differ from the IDs of the table's columns.
        """
        java, table = self.java, self.java_table
        if extra:
            builder = java.iceberg("TableMetadata").buildFrom(self._operations.current())
            builder.setCurrentSchema(self._optional(extra), max(field["id"] for field in extra))
            table = self._as_if(builder.discardChanges().build())
        no_deletes = java.array("org.apache.iceberg.DeleteFile", [])
        spec = java.unpartitioned  # files that contain only keys may lack partition columns
        schema = java.iceberg("SchemaParser").toJson(table.schema())
        spec_json = java.iceberg("PartitionSpecParser").toJson(spec)
        residuals = java.iceberg("expressions.ResidualEvaluator").unpartitioned(java.every_row)
        task = java.iceberg("BaseFileScanTask")
        tasks = []
        for file in files:
            content = _content(file) if isinstance(file, StagedFile) else self.content_file(file)
            unpartitioned = java.content_file({**content, "spec-id": 0, "partition": {}}, spec)
            tasks.append(task(unpartitioned, no_deletes, schema, spec_json, residuals))
        return scan_relation(java, table, tasks)

    def _optional(self, extra: Sequence[Mapping[str, Any]]) -> Any:
        """Return the table's schema with additional columns.

        Every column is optional, because staged changes may lack values.
        """
        columns = [*self.metadata().schema["fields"], *extra]
        return self.java.schema([{**column, "required": False} for column in columns])

    def _as_if(self, metadata: Any, io: Any = None) -> Any:
        """Return a copy of the Java table with other metadata, which is not in the catalog.

        `io` replaces the table's FileIO.
        """
        locations = self.java.iceberg("LocationProviders").locationsFor(
            self.java_table.location(), metadata.properties()
        )
        operations = self.java.iceberg("StaticTableOperations")(
            metadata, io or self.java_table.io(), locations
        )
        return self.java.iceberg("BaseTable")(operations, self.java_table.name())

    def elsewhere(self, location: str, io_properties: Mapping[str, str]) -> Any:
        """Return a copy of the table with another data location and extra FileIO properties."""
        java, metadata, io = self.java, self._operations.current(), self.java_table.io()
        properties = {**java.json(metadata.properties()), "write.data.path": location}
        if io_properties:
            settings = java.map({**java.json(io.properties()), **io_properties})
            hadoop = self.java.spark._jsc.hadoopConfiguration()
            io = java.iceberg("CatalogUtil").loadFileIO(io.getClass().getName(), settings, hadoop)
        return self._as_if(metadata.replaceProperties(java.map(properties)), io)

    def scan_tasks(self, snapshot: int, condition: Any) -> list[Any]:
        """Return Java scan tasks for whole files that may contain rows that match a condition."""
        scan = self.java_table.newScan().useSnapshot(snapshot).filter(condition).ignoreResiduals()
        with closing(scan.planFiles()) as tasks:
            return list(self.java.each(tasks))

    def write(self, rows: DataFrame, folder: str) -> list[Any]:
        """Write rows with the table's columns to a folder in its data location.

        Return the Java data files, which no snapshot references yet.
        """
        lineage = _LINEAGE if self._operations.current().formatVersion() >= 3 else ()
        rows = rows.selectExpr("*", *(f"cast(NULL AS bigint) AS {column}" for column in lineage))
        return write_files(self.java, self.elsewhere(self._folder(folder), {}), rows)

    def _folder(self, folder: str) -> str:
        return f"{self.metadata().data_location}/{folder}"

    def write_unbound(
        self, rows: DataFrame, folder: str, extra: Sequence[Mapping[str, Any]]
    ) -> list[Any]:
        """Write rows like `write`, but unpartitioned and with additional columns.

        Every column is optional.
        """
        java = self.java
        builder = java.iceberg("TableMetadata").buildFromEmpty(2).assignUUID()
        builder.setLocation(self.java_table.location())
        builder.setCurrentSchema(self._optional(extra), extra[-1]["id"])
        builder.setDefaultPartitionSpec(java.unpartitioned)
        builder.setDefaultSortOrder(java.iceberg("SortOrder").unsorted())
        builder.setProperties(java.map({"write.data.path": self._folder(folder)}))
        return write_files(java, self._as_if(builder.discardChanges().build()), rows)

    def changes_at(self, path: str) -> StagedFile | None:
        """Return a Parquet file with changes as a staged file, or None if it does not exist."""
        file = self.java_table.io().newInputFile(path)
        if not file.exists():
            return None
        config = self.java.iceberg("MetricsConfig").getDefault()
        metrics = self.java.iceberg("parquet.ParquetUtil").fileMetrics(file, config)
        size, rows = int(file.getLength()), int(metrics.recordCount())
        return StagedFile(StagedKind.CHANGES, path, rows, size, 0, 0)

    def data_file(self, file: StagedFile) -> Any:
        """Convert a staged file with complete rows to a Java data file with metrics.

        The metrics are from the file's footer.

        Raises:
            TableUnsuitableError: The row count of the file differs from the reported count.
        """
        java, spec = self.java, self.java_table.specs()[file.spec_id]
        fields = self.metadata().spec_of(file.spec_id)["fields"]
        values = zip(fields, file.partition, strict=True)
        partition = {
            str(field["field-id"]): json.loads(value)
            for field, value in values
            if value is not None
        }
        content = {**_content(file), "spec-id": file.spec_id, "partition": partition}
        config = java.iceberg("MetricsConfig").forTable(self.java_table)
        metrics = java.iceberg("parquet.ParquetUtil").fileMetrics(
            self.java_table.io().newInputFile(file.path, file.size), config
        )
        if metrics.recordCount() != file.rows:
            rows = pluralize(metrics.recordCount(), "row")
            raise TableUnsuitableError(
                self.name, f"{file.path} has {rows}, but its task reported {file.rows}"
            )
        builder = java.iceberg("DataFiles").builder(spec).copy(java.content_file(content, spec))
        return builder.withMetrics(metrics).build()

    def content_file(self, file: Any) -> dict[str, Any]:
        """Return a Java data file in Iceberg's JSON representation."""
        spec = self.java_table.specs()[file.specId()]
        content: dict[str, Any] = json.loads(
            self.java.iceberg("ContentFileParser").toJson(file, spec)
        )
        return content

    def as_staged(self, file: Any) -> StagedFile:
        """Convert a Java data file with complete rows to a staged file."""
        content = self.content_file(file)
        return StagedFile(
            StagedKind.ROWS,
            content["file-path"],
            content["record-count"],
            content["file-size-in-bytes"],
            self.metadata().schema["schema-id"],
            content["spec-id"],
            tuple(None if value is None else json.dumps(value) for value in content["partition"]),
        )

    # --- updates

    def new_update(self) -> TableUpdate:
        """Start an update of the newest metadata."""
        return TableUpdate(self.java, self.java_table, self._operations)

    def record(self, ref: str, folder: str) -> AbstractContextManager[RecordedTable]:
        """Provide the loaded metadata to Spark SQL as a table that records a MERGE.

        A MERGE into this table commits nothing.

        Args:
            ref: The branch to read, or main if the branch does not exist.
            folder: The folder in the table's data location for the files that the MERGE writes.
        """
        overrides = {
            "write.data.path": self._folder(folder),
            "read.split.open-file-cost": _OPEN_FILE_COST,
        }
        return self._recorded(self._operations.current(), ref, overrides).registered()

    @contextmanager
    def show(self, change: TableChange, ref: str) -> Iterator[str]:
        """Provide a relation with the rows of the table after a recorded change.

        The new metadata exists only in this JVM. The context manager yields the name of the
        relation.

        Raises:
            StaleAttemptError: The change is not valid for the newest metadata.
        """
        update = self.new_update()
        update.add(dataclasses.replace(change, files=()), ref, {})
        try:
            with self._recorded(update.after, ref, {}).registered() as table:
                yield table.relation
        finally:
            for path in self.own_metadata_files(update.snapshot):
                self.delete_file(path)

    def _recorded(self, metadata: Any, ref: str, overrides: Mapping[str, str]) -> RecordedTable:
        branch = ref if ref != MAIN and metadata.ref(ref) is not None else None
        java_table = self.java("connectpy.RecordedTable")(
            self._operations, metadata, self.name, branch, self.java.map(overrides)
        )
        return RecordedTable(self.java, java_table, self.name)

    # --- files

    def has_data_files(self, snapshot: Snapshot | None) -> bool:
        """Return True if the manifests of a snapshot list data files, regardless of its summary."""
        return snapshot is not None and any(
            manifest.hasAddedFiles() or manifest.hasExistingFiles()
            for manifest in self.data_manifests(snapshot["snapshot-id"])
        )

    def changes(self, snapshot: Any) -> Any:
        """Return the Java `SnapshotChanges` of a snapshot: the files that it added and removed."""
        builder = self.java.iceberg("SnapshotChanges").builderFor(self.java_table)
        return builder.snapshot(snapshot).build()

    def own_metadata_files(self, snapshot: Any) -> list[str]:
        """Return the manifest list of a Java snapshot and the manifests that the snapshot added."""
        manifests = snapshot.allManifests(self.java_table.io())
        paths = (each.path() for each in manifests if each.snapshotId() == snapshot.snapshotId())
        return [str(snapshot.manifestListLocation()), *map(str, paths)]

    def files_added_by(self, snapshot: Any) -> list[str]:
        """Return the locations of the data and delete files that a Java snapshot added."""
        changes = self.changes(snapshot)
        return [
            str(file.location())
            for file in (*changes.addedDeleteFiles(), *changes.addedDataFiles())
        ]

    def delete_file(self, location: str) -> None:
        """Delete a file with the table's FileIO."""
        self.java_table.io().deleteFile(location)

    def first_bytes(self, path: str, size: int) -> bytes:
        """Return up to `size` bytes from the start of a file."""
        with closing(self.java_table.io().newInputFile(path).newStream()) as stream:
            return bytes(stream.readNBytes(size))

    def data_files(self, snapshot: int) -> Iterator[Any]:
        """Yield the Java data files of a snapshot, with their metrics."""
        scan = self.java_table.newScan().useSnapshot(snapshot).includeColumnStats()
        with closing(scan.planFiles()) as tasks:
            for task in self.java.each(tasks):
                yield task.file()

    def list_files(self, location: str) -> Iterator[str] | None:
        """Return every file below a location, or None if the storage cannot list files."""
        io = self.java_table.io()
        if not self.java.is_instance(io, "org.apache.iceberg.io.SupportsPrefixOperations"):
            return None
        return (str(info.location()) for info in self.java.each(io.listPrefix(location)))

    def manifests(self, snapshot: int) -> list[Any]:
        """Return the Java manifests of a snapshot."""
        return list(self.java_table.snapshot(snapshot).allManifests(self.java_table.io()))

    def data_manifests(self, snapshot: int) -> list[Any]:
        """Return the Java manifests of a snapshot that list data files."""
        return list(self.java_table.snapshot(snapshot).dataManifests(self.java_table.io()))

    def files_of_manifest(self, manifest: Any) -> Iterator[str]:
        """Yield the locations of the live entries in a manifest."""
        manifests = self.java.iceberg("ManifestFiles")
        is_data = str(manifest.content()) == "DATA"
        read = manifests.read if is_data else manifests.readDeleteManifest
        with closing(read(manifest, self.java_table.io(), self.java_table.specs())) as files:
            for file in self.java.each(files):
                yield str(file.location())


@contextmanager
def scan_relation(java: JavaClasses, table: Any, tasks: Sequence[Any]) -> Iterator[str]:
    """Provide the rows of Java scan tasks as a relation for Spark SQL, and yield its name."""
    name, sets = f"scan_{uuid.uuid4().hex}", java.singleton("spark.ScanTaskSetManager")
    cache = java.singleton("spark.SparkTableCache")
    cache.add(name, table)
    sets.stageTasks(table, name, java.objects(tasks))
    try:
        yield f"{STAGING_CATALOG}.{name}"
    finally:
        sets.removeTasks(table, name)
        cache.remove(name)


def write_files(java: JavaClasses, table: Any, rows: DataFrame) -> list[Any]:
    """Write rows to data files of a Java table, and return the Java data files.

    No snapshot references these files yet.
    """
    name, cache = f"written_{uuid.uuid4().hex}", java.singleton("spark.SparkTableCache")
    coordinator = java.singleton("spark.FileRewriteCoordinator")
    cache.add(name, table)
    try:
        rows.writeTo(f"{STAGING_CATALOG}.{name}").option("fanout-enabled", "true").append()
        return list(coordinator.fetchNewFiles(table, name))
    finally:
        coordinator.clearRewrite(table, name)
        cache.remove(name)


def _content(file: StagedFile) -> dict[str, Any]:
    """Return a staged file in Iceberg's JSON representation, without its partition and metrics."""
    return {
        "spec-id": 0,
        "content": "DATA",
        "file-path": file.path,
        "file-format": "PARQUET",
        "partition": {},
        "file-size-in-bytes": file.size,
        "record-count": file.rows,
    }


def _missing_changes(
    table: str, schema: Field, format_version: int, changes: Sequence[SchemaChange]
) -> list[SchemaChange]:
    """Return the changes that a table with this schema does not have yet.

    Raises:
        TableUnsuitableError: A column to change does not exist.
    """
    missing: list[SchemaChange] = []
    for change in changes:
        column = _column_at(schema, change.path)
        new_name = change.path[-1] if change.name is None else change.name
        has_new_name = _column_at(schema, (*change.path[:-1], new_name)) is not None
        if change.kind in (ChangeKind.ADD, ChangeKind.RENAME) and has_new_name:
            continue
        if change.kind is ChangeKind.ADD:
            default = change.default if format_version >= _DEFAULTS_SINCE else None
            missing.append(dataclasses.replace(change, default=default))
            continue
        if column is None:
            raise TableUnsuitableError(table, f"has no column {'.'.join(change.path)}")
        is_done = {
            ChangeKind.WIDEN: column["type"] == json.loads(change.type or "null"),
            ChangeKind.OPTIONAL: not column["required"],
            ChangeKind.VERSION: has_new_name,
        }
        if is_done.get(change.kind):
            continue
        missing.append(change)
        identifiers = schema.get("identifier-field-ids") or ()
        if change.kind is ChangeKind.VERSION and column["id"] not in identifiers:
            # each row has a value in only one of the two columns
            missing.append(SchemaChange(ChangeKind.OPTIONAL, change.path))
    return missing


def _history_property(
    properties: Mapping[str, str], before: Field, after: Field, changes: Sequence[SchemaChange]
) -> dict[str, str]:
    """Return the property with former column names and column versions, if it changes."""
    history = ColumnHistory.of(properties)
    names, versions = dict(history.names), dict(history.versions)
    changes = [each for each in changes if each.kind in (ChangeKind.RENAME, ChangeKind.VERSION)]
    for change in changes:
        column = _column_at(before, change.path)
        assert column is not None  # otherwise, the change would have been rejected
        column_id = column["id"]
        if change.kind is ChangeKind.RENAME:
            names[column_id] = (*names.get(column_id, ()), change.path[-1])
        else:  # added next to the column, whose struct may have been renamed
            (path,) = (path for path, field in columns_inside(after) if field["id"] == column_id)
            version = _column_at(after, (*path[:-1], change.name or ""))
            assert version is not None
            versions[column_id] = (*versions.get(column_id, ()), version["id"])
    return {HISTORY: ColumnHistory(names, versions).to_json()} if changes else {}


def _column_at(schema: Field, path: Sequence[str]) -> Field | None:
    """Return the column at a path.

    The path contains names of struct fields, `element` for a list, and `key` or `value` for a map.
    """
    return dict(columns_inside(schema)).get(tuple(path))
