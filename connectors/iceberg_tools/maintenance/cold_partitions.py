"""Tiering: moves the files of cold partitions to another location.

The files of a partition are moved in one commit, with their deletes applied. Readers see the same
rows. A crash before the commit leaves orphan files, which a later action removes. A crash after the
commit leaves nothing to repair.
"""

from __future__ import annotations

import calendar
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from connect_py.plurals import pluralize
from connectors.iceberg.catalog.sql_names import literal, quoted, relation
from connectors.iceberg_tools.maintenance.moved_files import FileMove, move_files

if TYPE_CHECKING:
    from connectors.iceberg.config.maintenance_policy import MaintenancePolicy
    from connectors.iceberg.driver.lake_session import LakeSession
    from connectors.iceberg.protocol.table_metadata import TableMetadata

log = logging.getLogger(__name__)
_NO_HOST: Final = ":///"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
Span = tuple[datetime, datetime]  # start (inclusive) and end (exclusive)


@dataclass(frozen=True, slots=True)
class ColdPartition:
    """Partition for a past time span, with files that have not been moved."""

    column: str  # quoted name of the time column
    kind: str  # Iceberg type of the time column
    span: Span
    files: int

    def condition(self) -> str:
        """Return the SQL condition that selects the partition's rows."""
        low, high = (_time(self.kind, each) for each in self.span)
        return f"{self.column} >= {low} AND {self.column} < {high}"


def cold_location(metadata: TableMetadata, policy: MaintenancePolicy, name: str) -> str:
    """Return the folder for a table's cold partitions. No other table uses it."""
    if not policy.tiering_location:
        return f"{metadata.location}/cold"
    return f"{policy.tiering_location.rstrip('/')}/{name.replace('.', '/')}-{metadata.uuid[:8]}"


def has_time(metadata: TableMetadata) -> bool:
    """Return True if the table has a time partition field."""
    return _time_field(metadata) is not None


def cold_partitions(
    session: LakeSession,
    name: str,
    metadata: TableMetadata,
    snapshot: int,
    policy: MaintenancePolicy,
    now_ms: int,
) -> tuple[list[ColdPartition], int]:
    """Return the partitions to move, oldest first, and the number of files in the cold location.

    If late rows were added to a partition after it was moved, it is moved again when at least
    `small_files` of its files are not in the cold location.
    """
    time_field = _time_field(metadata)
    if policy.tiering_age_ms is None or time_field is None:
        return [], 0
    field, column, spans = time_field
    # Hadoop omits the slashes of an empty host from paths
    folder = cold_location(metadata, policy, name).replace(_NO_HOST, ":/")
    cold = f"startswith(replace(file_path, '{_NO_HOST}', ':/'), {literal(f'{folder}/')})"
    rows = session.spark.sql(
        f"SELECT partition.{quoted(field)} AS value, count(*) AS files, count_if({cold}) AS cold "
        f"FROM {relation(session.catalog_name, name)}.{quoted('data_files')} VERSION AS OF "
        f"{snapshot} WHERE spec_id = {metadata.spec['spec-id']} GROUP BY 1"
    ).collect()
    until = datetime.fromtimestamp((now_ms - policy.tiering_age_ms) / 1000, UTC)
    due = []
    for row in rows:
        span = None if row.value is None else spans(row.value)
        hot = row.files - row.cold
        if (
            span is not None
            and span[1] <= until
            and hot
            and (not row.cold or hot >= max(policy.small_files, 1))
        ):
            due.append(ColdPartition(quoted(column["name"]), column["type"], span, row.files))
    return sorted(due, key=lambda each: each.span), sum(row.cold for row in rows)


def move_partitions(
    session: LakeSession,
    name: str,
    ref: str,
    policy: MaintenancePolicy,
    partitions: Sequence[ColdPartition],
) -> dict[str, int]:
    """Move partitions one at a time, and return the counts of partitions and files.

    After an interruption, partitions that were already moved are not moved again.

    Raises:
        CatalogUnavailableError: A commit by another writer conflicted.
    """
    counts = {"moved_partitions": 0, "moved_files": 0, "written_files": 0}
    for each in partitions:
        table = session.table(name)
        location = cold_location(table.metadata(), policy, name)
        move = FileMove(ref, each.condition(), location, policy.tiering_storage_class or None)
        moved_files, written_files = move_files(session.spark, session.catalog_name, table, move)
        for key, count in zip(counts, (1, moved_files, written_files), strict=True):
            counts[key] += count
        log.info(
            "table %s: moved %s of %s to %s",
            name,
            pluralize(moved_files, "file"),
            f"{each.span[0]:%Y-%m-%d %H:%M}",
            location,
        )
    return counts


def _time_field(
    metadata: TableMetadata,
) -> tuple[str, Mapping[str, Any], Callable[[Any], Span]] | None:
    """Return the name of the time partition field, its column, and a function for time spans.

    The function returns the time span of a partition value.
    """
    columns = {each["id"]: each for each in metadata.schema["fields"]}
    for field in metadata.spec["fields"]:
        column = columns.get(field["source-id"])
        spans = _SPANS.get(field["transform"])
        if column is None or not isinstance(column["type"], str):
            continue
        if spans is not None or (field["transform"] == "identity" and column["type"] == "date"):
            return field["name"], column, spans or _day
    return None


def _day(value: date) -> Span:
    start = datetime(value.year, value.month, value.day, tzinfo=UTC)
    return start, start + timedelta(days=1)


def _hour(value: int) -> Span:
    start = _EPOCH + timedelta(hours=value)
    return start, start + timedelta(hours=1)


def _month(value: int) -> Span:
    year, month = 1970 + value // 12, value % 12 + 1
    start = datetime(year, month, 1, tzinfo=UTC)
    return start, start + timedelta(days=calendar.monthrange(year, month)[1])


def _year(value: int) -> Span:
    return datetime(1970 + value, 1, 1, tzinfo=UTC), datetime(1971 + value, 1, 1, tzinfo=UTC)


_SPANS: Final[Mapping[str, Callable[[Any], Span]]] = {
    "day": _day,
    "hour": _hour,
    "month": _month,
    "year": _year,
}


def _time(kind: str, moment: datetime) -> str:
    if kind == "date":
        return f"DATE '{moment:%Y-%m-%d}'"
    text = f"{moment:%Y-%m-%d %H:%M:%S}"
    return f"TIMESTAMP '{text}Z'" if kind.endswith("tz") else f"TIMESTAMP_NTZ '{text}'"
