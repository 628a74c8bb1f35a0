"""Checks that `connect-py doctor` runs for Iceberg sinks: access to the catalog and storage."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from connect_py.api.check import Check, Finding, Verdict
from connect_py.api.errors import ConfigError
from connect_py.api.service import SharedServices

if TYPE_CHECKING:
    from connectors.iceberg.config.sink_config import IcebergSinkConfig

# a reachable catalog reports that this table is missing
NO_TABLE: Final = "connect_py_doctor.no_such_table"
CATALOG_SECONDS: Final = 150.0  # includes the startup of Spark
CATALOG_ANSWER_SECONDS: Final = 60.0


def checks(props: Mapping[str, str], services: SharedServices) -> list[Check]:
    """Return the checks for an Iceberg sink, or an empty list for any other connector."""
    from connectors.iceberg.config.sink_config import IcebergSinkConfig
    from connectors.iceberg.config.worker_defaults import with_worker_catalog
    from connectors.iceberg_tools.commands.connector_json import (
        NO_PROVIDER,
        is_sink,
        refuse_providers,
    )

    if not is_sink(props):
        return []
    try:
        complete = with_worker_catalog(props, services.worker_settings)
        refuse_providers(complete, NO_PROVIDER)
        config = IcebergSinkConfig.parse(complete)
    except ConfigError as error:
        reason = str(error)
        return [
            Check(
                "catalog",
                lambda: [Finding("catalog", Verdict.WARN, f"not checked: {reason}")],
                needs_java=True,
            )
        ]
    return [
        Check(
            "catalog",
            lambda: _catalog_and_storage(config, services),
            CATALOG_SECONDS,
            needs_java=True,
        )
    ]


def _catalog_and_storage(config: IcebergSinkConfig, services: SharedServices) -> Sequence[Finding]:
    from connectors.iceberg.config.spark_config import worker_spark_config
    from connectors.iceberg.config.storage_settings import file_io_properties
    from connectors.iceberg.driver.lake_client import LakeClient
    from connectors.iceberg.errors import TableMissingError

    table = next(iter(config.tables), NO_TABLE)
    spark = worker_spark_config(config, services.worker_settings)
    with LakeClient(services, spark, deadline_seconds=CATALOG_ANSWER_SECONDS) as lake:
        try:
            metadata, settings = lake.metadata(table)
        except TableMissingError:
            location = config.catalog.get("warehouse", "")
            settings = file_io_properties(config.catalog_properties())
            result = (
                "is available"
                if table == NO_TABLE
                else f"is available; table {table} does not exist yet"
            )
        else:
            location, result = (
                metadata.rpartition("/metadata/")[0],
                f"is available; table {table} exists",
            )
    return [
        Finding("catalog", Verdict.OK, f"{spark.catalog} {result}"),
        _storage(location, settings),
    ]


def _storage(location: str, settings: Mapping[str, str]) -> Finding:
    """Write a small file next to the table files, and remove it."""
    from pyiceberg.io import load_file_io

    if "://" not in location and not location.startswith(("/", "file:")):
        reason = "not checked: no table exists, and the catalog has no `warehouse` folder"
        return Finding("storage", Verdict.WARN, reason)
    probe = f"{location.rstrip('/')}/connect-py-doctor-{uuid.uuid4().hex}"
    try:
        storage = load_file_io(dict(settings), location)
        with storage.new_output(probe).create() as stream:
            stream.write(b"connect-py doctor")
        storage.delete(probe)
    except Exception as error:  # noqa: BLE001 - each storage system raises different errors
        remedy = "Grant write access or correct the storage settings; see docs/how-to/storage.md"
        return Finding(
            "storage", Verdict.FAIL, f"{location}: {type(error).__name__}: {error}", remedy
        )
    return Finding("storage", Verdict.OK, f"{location}: a file was written and removed")
