"""Counts of the files and row groups that a filtered scan reads.

Iceberg skips files based on their partition and their column bounds, and row groups based on
bounds, dictionaries, and Bloom filters. The counts come from Iceberg's own evaluators in the Spark
driver, so they match the files that a scan reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from connectors.iceberg.catalog.sql_names import relation
from connectors.iceberg.config.expectations import JAVA_FUNCTIONS
from connectors.iceberg.errors import TableUnsuitableError
from connectors.iceberg.staging.write_settings import WriteSettings

if TYPE_CHECKING:
    from connectors.iceberg.catalog.java_classes import JavaClasses
    from connectors.iceberg.driver.lake_session import LakeSession

# maximum number of files whose footers are read, because each footer requires a storage request
FILES_OPENED = 200


@dataclass(slots=True)
class ScanLevel:
    """Files, rows, and bytes that remain after a step of the scan."""

    name: str
    files: int = 0
    rows: int = 0
    bytes: int = 0

    def add(self, rows: int, size: int, *, file: bool = True) -> None:
        self.files += file
        self.rows += rows
        self.bytes += size


@dataclass(slots=True)
class ScanReport:
    """Results of a scan's steps, in order."""

    snapshot: int | None
    condition: str  # in Iceberg's notation
    levels: list[ScanLevel] = field(default_factory=list)
    # number of row groups in the opened files, and number that remain after each step
    row_groups: dict[str, int] = field(default_factory=dict)
    files_opened: int = 0
    # columns for which new files get a Bloom filter
    bloom_columns: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class ScanRequest:
    """A SQL condition and the snapshot to scan."""

    where: str
    snapshot: int | None  # None if the table has no snapshot


def scan_levels(session: LakeSession, name: str, request: ScanRequest) -> ScanReport:
    """Apply the condition to every data file in a snapshot.

    The condition may come from a REST client. Therefore, it must not call Java methods or
    contain a subquery, because these could read other tables or files.

    Raises:
        TableUnsuitableError: The condition is not valid SQL or refers to anything other than
            columns of the table.
    """
    table = session.table(name)
    java = table.java
    if (function := JAVA_FUNCTIONS.search(request.where)) is not None:
        raise TableUnsuitableError(name, f"the condition calls a Java method: {function[0]}")
    if java.has_subquery(request.where):
        raise TableUnsuitableError(
            name, "the condition contains a subquery; it may refer only to columns of the table"
        )
    condition = java.condition(relation(session.catalog_name, name), request.where)
    report = ScanReport(request.snapshot, str(condition))
    report.bloom_columns = [*WriteSettings.of(table.metadata().properties).bloom_filters]
    if request.snapshot is not None:
        files = table.data_files(request.snapshot)
        _scan(java, table, condition, files, report)
    return report


def _scan(
    java: JavaClasses, table: Any, condition: Any, files: Iterator[Any], report: ScanReport
) -> None:
    everything, partitions, bounds = (
        ScanLevel(each) for each in ("all", "after partitions", "after bounds")
    )
    report.levels = [everything, partitions, bounds]
    schema = table.java_table.schema()
    metrics = java.iceberg("expressions.InclusiveMetricsEvaluator")(schema, condition)
    projected: dict[int, Any] = {}
    paths = []
    for file in files:
        size = int(file.recordCount()), int(file.fileSizeInBytes())
        everything.add(*size)
        number = int(file.specId())
        if number not in projected:
            projected[number] = _by_partition(java, table.java_table.specs()[number], condition)
        if not projected[number].eval(file.partition()):
            continue
        partitions.add(*size)
        if not metrics.eval(file):
            continue
        bounds.add(*size)
        paths.append(str(file.location()))
    groups = _RowGroups(java, schema, condition)
    for path in paths[:FILES_OPENED]:
        groups.look(table.java_table.io().newInputFile(path))
    report.files_opened = min(len(paths), FILES_OPENED)
    report.row_groups = groups.remaining
    if report.files_opened == len(paths):
        report.levels.append(groups.level)


def _by_partition(java: JavaClasses, spec: Any, condition: Any) -> Any:
    projection = java.iceberg("expressions.Projections").inclusive(spec).project(condition)
    return java.iceberg("expressions.Evaluator")(spec.partitionType(), projection)


class _RowGroups:
    """Counts row groups in the files that remain after pruning by partitions and bounds."""

    def __init__(self, java: JavaClasses, schema: Any, condition: Any) -> None:
        self._java = java
        filters = (
            java.iceberg(f"parquet.Parquet{kind}RowGroupFilter")
            for kind in ("Metrics", "Dictionary", "Bloom")
        )
        self._metrics, self._dictionary, self._bloom = (each(schema, condition) for each in filters)
        self.remaining = dict.fromkeys(
            ("all", "after bounds", "after dictionaries", "after bloom filters"), 0
        )
        self.level = ScanLevel("after row groups")

    def look(self, file: Any) -> None:
        """Read a file's footer and the dictionaries and Bloom filters that the condition needs."""
        java, counted = self._java, False
        reader = java.iceberg("shaded.org.apache.parquet.hadoop.ParquetFileReader").open(
            java.parquet_file(file)
        )
        try:
            schema = reader.getFileMetaData().getSchema()
            for group in reader.getRowGroups():
                self.remaining["all"] += 1
                if not self._metrics.shouldRead(schema, group):
                    continue
                self.remaining["after bounds"] += 1
                if not self._dictionary.shouldRead(
                    schema, group, reader.getDictionaryReader(group)
                ):
                    continue
                self.remaining["after dictionaries"] += 1
                if not self._bloom.shouldRead(
                    schema, group, reader.getBloomFilterDataReader(group)
                ):
                    continue
                self.remaining["after bloom filters"] += 1
                self.level.add(
                    int(group.getRowCount()), int(group.getCompressedSize()), file=not counted
                )
                counted = True
        finally:
            reader.close()
