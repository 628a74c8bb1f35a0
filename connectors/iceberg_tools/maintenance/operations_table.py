"""The operations table: a row for each thing that maintenance did, before and after, and what it
cost."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from connectors.iceberg.catalog.sql_names import literal, quoted, relation
from connectors.iceberg_tools.maintenance.maintenance_result import COUNTED, MaintenanceResult

if TYPE_CHECKING:
    from connectors.iceberg.driver.lake_session import LakeSession


def record_operation(
    session: LakeSession, place: str, table: str, begun: float, by: str, result: MaintenanceResult
) -> None:
    """Append one row; the table is made if it is missing.

    Args:
        begun: seconds since 1970.
        by: the connector, or the command.
    """
    at = datetime.fromtimestamp(begun, UTC).strftime("%Y-%m-%d %H:%M:%S.%fZ")
    counts = ", ".join(f"{literal(key)}, {value}L" for key, value in result.counts.items())
    columns = {
        "started": ("timestamp", f"TIMESTAMP {literal(at)}"),
        "seconds": ("double", f"{result.seconds:.3f}D"),
        "table_name": ("string", literal(table)),
        "action": ("string", literal(result.action.kind.value)),
        "reason": ("string", literal(result.action.reason)),
        "made_by": ("string", literal(by)),
        "skipped": (
            "string",
            literal(result.skipped) if result.skipped else "CAST(NULL AS string)",
        ),
        "counts": ("map<string, bigint>", f"CAST(map({counts}) AS map<string, bigint>)"),
    }
    before, after = result.before.to_json(), result.after.to_json()
    for name in COUNTED:
        columns[f"{name}_before"] = ("bigint", f"{before[name]}L")
        columns[f"{name}_after"] = ("bigint", f"{after[name]}L")
    target = relation(session.catalog_name, place)
    defined = ", ".join(f"{quoted(name)} {kind}" for name, (kind, _) in columns.items())
    session.spark.sql(f"CREATE TABLE IF NOT EXISTS {target} ({defined}) USING iceberg")
    names, values = ", ".join(map(quoted, columns)), ", ".join(text for _, text in columns.values())
    session.spark.sql(f"INSERT INTO {target} ({names}) SELECT {values}")


def operations_of(session: LakeSession, place: str, table: str, limit: int) -> list[dict[str, Any]]:
    """What was done to a table last, newest first, from its operations table.

    Raises:
        TableMissingError: There is no such table yet.
    """
    session.table(place)  # SQL has other words for a table that is missing
    source = relation(session.catalog_name, place)
    rows = session.spark.sql(
        f"SELECT * FROM {source} WHERE table_name = {literal(table)} ORDER BY started DESC LIMIT "
        f"{limit}"
    ).collect()
    return [{name: _plain(value) for name, value in row.asDict().items()} for row in rows]


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):  # PySpark gives local times
        return value.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"
    return value
