"""What a query with a condition need not read: files by partitions and bounds, row groups by theirs
and bloom filters.

Asked of Iceberg's own evaluators, in the Spark driver: what they keep is what a scan reads.
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

FILES_OPENED = 200  # whose footers are read: each costs a request to the storage


@dataclass(slots=True)
class ScanLevel:
    """What is left once something has been looked at."""

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
    """Levels in the order in which a scan looks."""

    snapshot: int | None
    condition: str  # as Iceberg has it
    levels: list[ScanLevel] = field(default_factory=list)
    # all of the files opened, and what is left
    row_groups: dict[str, int] = field(default_factory=dict)
    files_opened: int = 0
    bloom_columns: list[str] = field(default_factory=list)  # for which new files get a bloom filter

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class ScanRequest:
    """A condition in SQL, and where it is asked."""

    where: str
    snapshot: int | None  # None: the table has none


def scan_levels(session: LakeSession, name: str, request: ScanRequest) -> ScanReport:
    """Look at every data file of a snapshot.

    A client of a worker chooses the condition: it must not contain a query, which could read other
    tables or files, or call Java.

    Raises:
        TableUnsuitableError: The condition is not SQL about the columns of the table alone.
    """
    table = session.table(name)
    java = table.java
    if (function := JAVA_FUNCTIONS.search(request.where)) is not None:
        raise TableUnsuitableError(name, f"the condition calls Java: {function[0]}")
    if java.has_subquery(request.where):
        raise TableUnsuitableError(
            name, "the condition contains a query: use columns of the table only"
        )
    condition = java.condition(relation(session.catalog_name, name), request.where)
    report = ScanReport(request.snapshot, str(condition))
    report.bloom_columns = [*WriteSettings.of(table.metadata().properties).bloom_filters]
    if request.snapshot is not None:
        files = table.data_files(request.snapshot)
        _look(java, table, condition, files, report)
    return report


def _look(
    java: JavaClasses, table: Any, condition: Any, files: Iterator[Any], report: ScanReport
) -> None:
    everything, partitions, bounds = (
        ScanLevel(each) for each in ("all", "after partitions", "after bounds")
    )
    report.levels = [everything, partitions, bounds]
    schema = table.java_table.schema()
    metrics = java.iceberg("expressions.InclusiveMetricsEvaluator")(schema, condition)
    projected: dict[int, Any] = {}
    left = []
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
        left.append(str(file.location()))
    groups = _RowGroups(java, schema, condition)
    for path in left[:FILES_OPENED]:
        groups.look(table.java_table.io().newInputFile(path))
    report.files_opened = min(len(left), FILES_OPENED)
    report.row_groups = groups.left
    if report.files_opened == len(left):
        report.levels.append(groups.level)


def _by_partition(java: JavaClasses, spec: Any, condition: Any) -> Any:
    projection = java.iceberg("expressions.Projections").inclusive(spec).project(condition)
    return java.iceberg("expressions.Evaluator")(spec.partitionType(), projection)


class _RowGroups:
    """Row groups of files that partitions and bounds leave."""

    def __init__(self, java: JavaClasses, schema: Any, condition: Any) -> None:
        self._java = java
        made = (
            java.iceberg(f"parquet.Parquet{kind}RowGroupFilter")
            for kind in ("Metrics", "Dictionary", "Bloom")
        )
        self._metrics, self._dictionary, self._bloom = (each(schema, condition) for each in made)
        self.left = dict.fromkeys(
            ("all", "after bounds", "after dictionaries", "after bloom filters"), 0
        )
        self.level = ScanLevel("after row groups")

    def look(self, file: Any) -> None:
        """Read a file's footer, and the dictionaries and bloom filters that count."""
        java, found = self._java, False
        reader = java.iceberg("shaded.org.apache.parquet.hadoop.ParquetFileReader").open(
            java.parquet_file(file)
        )
        try:
            schema = reader.getFileMetaData().getSchema()
            for group in reader.getRowGroups():
                self.left["all"] += 1
                if not self._metrics.shouldRead(schema, group):
                    continue
                self.left["after bounds"] += 1
                if not self._dictionary.shouldRead(
                    schema, group, reader.getDictionaryReader(group)
                ):
                    continue
                self.left["after dictionaries"] += 1
                if not self._bloom.shouldRead(
                    schema, group, reader.getBloomFilterDataReader(group)
                ):
                    continue
                self.left["after bloom filters"] += 1
                self.level.add(
                    int(group.getRowCount()), int(group.getCompressedSize()), file=not found
                )
                found = True
        finally:
            reader.close()
