"""Names, keys, and settings of commands about tables."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fixtures.command_line import command_app, command_context
from typer.testing import CliRunner

from connect_py import cli
from connect_py.api.command import CommandTraits
from connect_py.api.errors import ConfigError
from connect_py.terminal.command_context import LocalContext
from connectors.iceberg.catalog.sql_names import shown
from connectors.iceberg.protocol.table_metadata import TableMetadata
from connectors.iceberg_tools.commands.rewind import rewind
from connectors.iceberg_tools.commands.rollback import rollback
from connectors.iceberg_tools.commands.table_options import TableOptions
from connectors.iceberg_tools.operations.diff import key_columns
from connectors.iceberg_tools.operations.kafka_group import member_count, remove_group, remove_topic

CONFIG = {
    "name": "sink",
    "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
    "topics": "orders",
    "iceberg.tables": "db.orders",
    "iceberg.catalog.type": "rest",
    "iceberg.catalog.uri": "http://localhost",
    "iceberg.tables.upsert-mode-enabled": "true",
    "iceberg.tables.default-id-columns": "id",
    "errors.tolerance": "all",
    "errors.deadletterqueue.iceberg.table": "db.dead",
    "iceberg.ext.changelog-suffix": "_log",
    "iceberg.ext.envelope": "debezium",
}
METADATA = TableMetadata(
    {
        "table-uuid": "u",
        "format-version": 2,
        "location": "file:///t",
        "current-snapshot-id": 1,
        "refs": {},
        "snapshots": [{"snapshot-id": 1, "schema-id": 0}],
        "schemas": [{"schema-id": 0, "fields": []}],
        "current-schema-id": 0,
        "default-spec-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": []}],
    }
)


@pytest.mark.parametrize("ask", [member_count, remove_group, remove_topic])
@pytest.mark.parametrize("setting", [{"security.protocl": "SSL"}, {"security.protocol": "SLS"}])
def test_client_settings_that_are_none_are_configuration_errors(
    ask: Any, setting: dict[str, str]
) -> None:
    with pytest.raises(ConfigError, match=r"invalid Kafka client settings: .*security.protoco?l"):
        ask(setting, "connect-sink")


@pytest.mark.parametrize(
    ("table", "keys"), [("db.orders", ("id",)), ("db.dead", ()), ("db.orders_log", ())]
)
def test_rows_are_compared_by_the_key_of_their_table(
    tmp_path: Path, table: str, keys: tuple[str, ...]
) -> None:
    file = tmp_path / "sink.json"
    file.write_text(json.dumps({"name": "sink", "config": CONFIG}))
    assert (
        key_columns(TableOptions(table, file).local_table(command_context()), METADATA, (1, 1))
        == keys
    )


@pytest.fixture
def worker(tmp_path: Path) -> Path:
    """Return the properties of a worker with a catalog and a config provider."""
    file = tmp_path / "worker.properties"
    file.write_text(
        "bootstrap.servers=localhost:1\nconfig.providers=env\n"
        "config.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider\n"
        "connect_py.defaults.iceberg.catalog.type=rest\nconnect_py.defaults.iceberg.catalog.uri=http://of-worker\n"
        "connect_py.spark.driver.memory=3g\n"
    )
    return file


@pytest.fixture
def context() -> Iterator[LocalContext]:
    """Yield a context with the parts of a worker that `connect-py` uses, without Java."""
    parts = replace(cli.worker_parts(), export_java=lambda _: None)
    traits = CommandTraits(worker=False, json=False, jars=(), failure_status=2)
    with ExitStack() as closing:
        yield LocalContext(traits, parts, closing)


@pytest.mark.parametrize(
    ("catalog", "uri"),
    [({"type": "rest", "uri": "${env:LAKE_URI}"}, "http://of-provider"), ({}, "http://of-worker")],
    ids=["values of a provider", "the worker's catalog"],
)
def test_connector_has_what_its_worker_gives_it(
    tmp_path: Path,
    worker: Path,
    context: LocalContext,
    monkeypatch: pytest.MonkeyPatch,
    catalog: dict[str, str],
    uri: str,
) -> None:
    monkeypatch.setenv("LAKE_URI", "http://of-provider")
    base = {key: value for key, value in CONFIG.items() if not key.startswith("iceberg.catalog.")}
    file = tmp_path / "sink.json"
    file.write_text(
        json.dumps({**base, **{f"iceberg.catalog.{key}": value for key, value in catalog.items()}})
    )
    spark = TableOptions("db.orders", file, worker, ["warehouse=w"]).local_table(context).spark
    assert spark.catalog_properties == {"type": "rest", "uri": uri, "warehouse": "w"}
    assert spark.spark_properties["spark.driver.memory"] == "3g"


def test_properties_of_a_worker_need_a_connector(worker: Path, context: LocalContext) -> None:
    with pytest.raises(ConfigError, match="--worker: requires --config"):
        TableOptions("db.orders", None, worker).local_table(context)


def test_placeholder_of_a_catalog_is_refused_with_the_cure(
    tmp_path: Path, worker: Path, context: LocalContext
) -> None:
    file = tmp_path / "sink.json"
    file.write_text(json.dumps({**CONFIG, "iceberg.catalog.uri": "${vault:lake:uri}"}))
    with pytest.raises(
        ConfigError, match=r"iceberg\.catalog\.uri: uses a config provider: .*with --worker"
    ):
        TableOptions("db.orders", file).local_table(context)
    with pytest.raises(
        ConfigError, match=r"catalog\.uri: .*: it cannot be resolved without a worker's properties"
    ):
        TableOptions("db.orders", file, worker).local_table(context)


def test_names_for_people_are_quoted_where_sql_asks() -> None:
    assert [shown(name) for name in ("orders", "orders-v2", "größe", "2025", "a`b")] == [
        "orders",
        "`orders-v2`",
        "`größe`",
        "`2025`",
        "`a``b`",
    ]


@pytest.mark.parametrize("command", [rewind, rollback])
def test_json_for_machines_is_never_mixed_with_a_question(tmp_path: Path, command: Any) -> None:
    file = tmp_path / "sink.json"
    file.write_text(json.dumps({"name": "sink", "config": CONFIG}))
    app = command_app(command)
    more = ["--skip", "--bootstrap-server", "localhost:1"] if command is rewind else []
    result = CliRunner().invoke(
        app, ["db.orders", "--to", "first", "--config", str(file), "--json", *more]
    )
    assert (result.exit_code, "--json: needs --yes" in result.stderr) == (2, True), result.output
