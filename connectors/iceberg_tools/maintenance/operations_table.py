"""The operations table: one row per maintenance action, with the state before and after it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from connectors.iceberg.catalog.sql_names import literal, quoted, relation
from connectors.iceberg_tools.maintenance.maintenance_result import COUNTED, MaintenanceResult

if TYPE_CHECKING:
    from connectors.iceberg.driver.lake_session import LakeSession


def record_operation(
    session: LakeSession,
    operations_table: str,
    table: str,
    started_at: float,
    by: str,
    result: MaintenanceResult,
) -> None:
    """Append one row. The operations table is created if it is missing.

    Args:
        session: The Spark driver's session.
        operations_table: The name of the operations table.
        table: The name of the maintained table.
        started_at: The Unix time in seconds at which the action started.
        by: The connector or command that requested the action.
        result: The result of the action.
    """
    started = datetime.fromtimestamp(started_at, UTC).strftime("%Y-%m-%d %H:%M:%S.%fZ")
    counts = ", ".join(f"{literal(key)}, {value}L" for key, value in result.counts.items())
    columns = {
        "started": ("timestamp", f"TIMESTAMP {literal(started)}"),
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
    target = relation(session.catalog_name, operations_table)
    definitions = ", ".join(f"{quoted(name)} {kind}" for name, (kind, _) in columns.items())
    session.spark.sql(f"CREATE TABLE IF NOT EXISTS {target} ({definitions}) USING iceberg")
    names = ", ".join(map(quoted, columns))
    values = ", ".join(value for _, value in columns.values())
    session.spark.sql(f"INSERT INTO {target} ({names}) SELECT {values}")


def operations_of(
    session: LakeSession, operations_table: str, table: str, limit: int
) -> list[dict[str, Any]]:
    """Return the last actions on a table, newest first.

    Raises:
        TableMissingError: The operations table does not exist.
    """
    session.table(operations_table)  # raises TableMissingError, unlike the query
    source = relation(session.catalog_name, operations_table)
    rows = session.spark.sql(
        f"SELECT * FROM {source} WHERE table_name = {literal(table)} ORDER BY started DESC LIMIT "
        f"{limit}"
    ).collect()
    return [{name: _plain(value) for name, value in row.asDict().items()} for row in rows]


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):  # PySpark returns local times
        return value.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"
    return value
