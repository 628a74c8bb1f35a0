"""`NewTable`: definition of a new table, derived from its first rows and the configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from connect_py.api.errors import DataError
from connectors.iceberg.config.maintenance_policy import created_properties
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.conversion.types import partition_spec, time_columns, why_no_key
from connectors.iceberg.errors import TableMissingError, TableNotCreatedError, TableUnsuitableError
from connectors.iceberg.protocol.table_metadata import WRITE_MODES
from connectors.iceberg.table.table import TableRequest, WriteMode


@dataclass(frozen=True, slots=True)
class NewTable:
    """Definition of a table to create."""

    schema: Mapping[str, Any]  # Iceberg schema JSON
    spec: Mapping[str, Any]  # Iceberg partition spec JSON
    properties: Mapping[str, str]
    keys: tuple[str, ...]  # key columns in MERGE mode


def new_table(
    config: IcebergSinkConfig, name: str, request: TableRequest, record_keys: Sequence[str] = ()
) -> NewTable:
    """Return the definition of a table for the rows of a request.

    Args:
        config: The connector's configuration.
        name: The name of the table.
        request: The task's request for the table.
        record_keys: The key columns of earlier records.

    Raises:
        TableMissingError: The configuration does not allow the sink to create tables.
        TableNotCreatedError: The columns cannot be determined from these rows.
        TableUnsuitableError: The table could not be written as configured.
    """
    if not config.may_create(name):
        raise TableMissingError(
            name, "does not exist, and iceberg.tables.auto-create-enabled is false"
        )
    if request.schema is None:
        raise TableNotCreatedError(name, f"does not exist and cannot be created: {request.reason}")
    merges = config.mode_of(name) is WriteMode.MERGE
    keys: tuple[str, ...] = ()
    if merges:  # checked first, because an unsuitable table would be rejected permanently
        keys = tuple(config.table(name).id_columns or request.keys or record_keys)
        check_merged(name, keys, request.schema)
    try:
        spec = partition_spec(request.schema, config.table(name).partition_by)
    except DataError as error:
        raise TableUnsuitableError(name, str(error)) from error
    version = config.format_version(name)
    properties = {
        **created_properties(config.table(name).maintenance.mode),
        "format-version": str(version),
    }
    if merges and version >= 2:  # copy-on-write costs several times as much
        properties |= dict.fromkeys(WRITE_MODES, "merge-on-read")
        if version == 2:  # with `file`, each cycle would rewrite all deletes for a data file
            properties["write.delete.granularity"] = "partition"
    return NewTable(request.schema, spec, {**properties, **config.auto_create_props}, keys)


def check_merged(name: str, keys: Sequence[str], schema: Mapping[str, Any]) -> None:
    """Check that rows with this schema can be merged by these key columns.

    Raises:
        TableUnsuitableError: The rows cannot be merged. The message contains the reason.
    """
    if not keys:
        raise TableUnsuitableError(
            name,
            f"MERGE requires key columns: set iceberg.table.{name}.id-columns or "
            "iceberg.tables.default-id-columns, identifier fields of the table, or "
            "iceberg.ext.key-source=record",
        )
    names = {column["name"] for column in schema["fields"]}
    if missing_keys := [key for key in keys if key not in names]:
        raise TableUnsuitableError(name, f"has no key column {missing_keys[0]}")
    for column in schema["fields"]:
        if column["name"] in keys and (why := why_no_key(column["type"])):
            raise TableUnsuitableError(
                name, f"key column {column['name']} {why}: set other id-columns"
            )
    if times := time_columns(schema):
        raise TableUnsuitableError(
            name,
            f"column {times[0]} has type time, which Spark cannot read, so rows cannot be merged",
        )
