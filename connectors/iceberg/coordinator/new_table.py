"""`NewTable`: a table as the sink creates it, from what its first rows ask for and from the
configuration."""

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
    """What the catalog is asked for."""

    schema: Mapping[str, Any]  # Iceberg's JSON, as the next two
    spec: Mapping[str, Any]
    properties: Mapping[str, str]
    keys: tuple[str, ...]  # MERGE only


def new_table(
    config: IcebergSinkConfig, name: str, request: TableRequest, record_keys: Sequence[str] = ()
) -> NewTable:
    """The table for rows that made this request. `record_keys`: the key that records had before.

    Raises:
        TableMissingError: The configuration creates no tables.
        TableNotCreatedError: These rows do not tell its columns.
        TableUnsuitableError: It could not be written as configured.
    """
    if not config.may_create(name):
        raise TableMissingError(
            name, "does not exist, and iceberg.tables.auto-create-enabled is false"
        )
    if request.schema is None:
        raise TableNotCreatedError(name, f"does not exist, and cannot be created: {request.reason}")
    merges = config.mode_of(name) is WriteMode.MERGE
    keys: tuple[str, ...] = ()
    if merges:  # before it is there, and refused for good
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
    if merges and version >= 2:  # rewriting whole files costs several times more
        properties |= dict.fromkeys(WRITE_MODES, "merge-on-read")
        if version == 2:  # by file, each cycle writes all deletes of each file again
            properties["write.delete.granularity"] = "partition"
    return NewTable(request.schema, spec, {**properties, **config.auto_create_props}, keys)


def check_merged(name: str, keys: Sequence[str], schema: Mapping[str, Any]) -> None:
    """Whether rows of such a schema can be merged by these columns.

    Raises:
        TableUnsuitableError: They cannot.
    """
    if not keys:
        raise TableUnsuitableError(
            name,
            f"MERGE needs to know the key: set iceberg.table.{name}.id-columns or "
            "iceberg.tables.default-id-columns, identifier fields on the table, or "
            "iceberg.ext.key-source=record",
        )
    names = {column["name"] for column in schema["fields"]}
    if lacking := [key for key in keys if key not in names]:
        raise TableUnsuitableError(name, f"has no key column {lacking[0]}")
    for column in schema["fields"]:
        if column["name"] in keys and (why := why_no_key(column["type"])):
            raise TableUnsuitableError(
                name, f"key column {column['name']} {why}: choose other id-columns"
            )
    if times := time_columns(schema):
        raise TableUnsuitableError(
            name,
            f"column {times[0]} is of type time, which Spark cannot read, so rows cannot be merged",
        )
