"""`connect-py migrate`: replaces a Java Iceberg sink and continues at its position."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from connect_py.api import rest_paths
from connect_py.api.command import CommandContext, command
from connect_py.api.errors import ConnectError
from connect_py.api.rest_paths import path
from connectors.iceberg_tools.commands.connector_json import read_connector, refuse_providers
from connectors.iceberg_tools.commands.kafka_options import KafkaOptions
from connectors.iceberg_tools.migration.config_review import review

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from connect_py.api.record import TopicPartition
    from connectors.iceberg.config.sink_config import IcebergSinkConfig
    from connectors.iceberg_tools.migration.config_review import ConfigReview
    from connectors.iceberg_tools.migration.java_position import JavaPosition, TableTrace

REFUSED, UNDECIDED = 1, 2


@command(json=True, failure_status=UNDECIDED)
def migrate(
    context: CommandContext,
    connector: Annotated[
        Path,
        typer.Argument(help="Connector file of the Java sink, in the format of the REST API."),
    ],
    *,
    kafka: KafkaOptions,
    apply: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Create the connector on this worker in state STOPPED."),
    ] = None,
) -> None:
    """Review a Java sink's configuration and determine its position.

    Nothing is changed without --apply. The position is only determined with --bootstrap-server.
    Stop the Java connector first. Exit status 0: ready; 1: the configuration is invalid; 2: a user
    must check first (Kafka or the catalog does not respond, reported files were never committed, or
    this sink has already started).
    """
    props = read_connector(connector)
    reviewed = review(props)
    position: tuple[list[TableTrace], JavaPosition] | None = None
    if reviewed.parsed is not None and kafka.bootstrap_server is not None:
        refuse_providers(props, "specify its value")
        position = _determine_position(context, reviewed.parsed, kafka.settings())
    context.show(_document(reviewed, position), _lines(reviewed, position))
    status = REFUSED if reviewed.problems else UNDECIDED if position and position[1].problems else 0
    if apply is None or status:
        raise typer.Exit(status)
    if position is None:
        raise ConnectError(
            "--apply needs --bootstrap-server to determine the position of the Java sink"
        )
    _apply(apply.rstrip("/"), reviewed.config, position[1])


def _determine_position(
    context: CommandContext, config: IcebergSinkConfig, kafka: Mapping[str, str]
) -> tuple[list[TableTrace], JavaPosition]:
    """Return the positions of the Java sink in tables and in Kafka.

    Raises:
        ConnectError: The catalog or Kafka does not respond.
    """
    from connectors.iceberg.config.sink_options import ClassFamily
    from connectors.iceberg_tools.migration.java_position import find_position
    from connectors.iceberg_tools.migration.kafka_traces import control_events, group_offsets

    group = config.control_group if config.family is ClassFamily.TABULAR else config.connect_group
    events = control_events(kafka, config.control_topic, group)
    reported = sorted({event.table for event in events if event.table is not None})
    # if rows are routed by topic or field, only the events contain the table names
    tables = list(dict.fromkeys([*config.tables, *reported]))
    key = f"kafka.connect.offsets.{config.control_topic}.{group}"
    traces = _traces(context, config, tables, key)
    connect = group_offsets(kafka, config.connect_group)
    source = connect if group == config.connect_group else group_offsets(kafka, group) or connect
    return traces, find_position(traces, events, source, connect)


def _traces(
    context: CommandContext, config: IcebergSinkConfig, tables: Iterable[str], key: str
) -> list[TableTrace]:
    from connectors.iceberg.config.spark_config import worker_spark_config
    from connectors.iceberg.driver.lake_client import LakeClient
    from connectors.iceberg.errors import TableMissingError
    from connectors.iceberg_tools.migration.java_position import TableTrace

    services = context.services()
    traces = []
    with LakeClient(services, worker_spark_config(config, services.worker_settings)) as lake:
        for name in tables:
            try:
                history = lake.history(name, config.table(name).commit_branch or "main")
            except TableMissingError:
                traces.append(TableTrace(name, exists=False))
            else:
                traces.append(TableTrace.of(history, key, config.connect_group))
    return traces


def _offsets(offsets: Mapping[TopicPartition, int]) -> list[dict[str, Any]]:
    """Return offsets in the format of the REST API."""
    return [
        {
            "partition": {"kafka_topic": tp.topic, "kafka_partition": tp.partition},
            "offset": {"kafka_offset": offset},
        }
        for tp, offset in sorted(offsets.items())
    ]


def _document(
    reviewed: ConfigReview, migration: tuple[list[TableTrace], JavaPosition] | None
) -> dict[str, Any]:
    document: dict[str, Any] = {
        "config": dict(reviewed.config),
        "changes": [{"key": key, "text": text} for key, text in reviewed.changes],
        "dropped": [{"key": key, "text": text} for key, text in reviewed.dropped],
        "problems": list(reviewed.problems),
    }
    if migration is not None:
        traces, position = migration
        document["problems"] += position.problems
        document["tables"] = [
            {
                "table": trace.table,
                "exists": trace.exists,
                "control_offsets": trace.control,
                "snapshot": trace.snapshot,
                "commit": trace.commit,
                "by": trace.by,
                "valid_through": trace.valid_through,
                "has_ledger": trace.has_ledger,
                "uncommitted": position.uncommitted.get(trace.table, 0),
            }
            for trace in traces
        ]
        document["offsets"] = _offsets(position.offsets)
        document["set_offsets"] = not position.in_group
    return document


def _lines(
    reviewed: ConfigReview, migration: tuple[list[TableTrace], JavaPosition] | None
) -> Iterable[str]:
    for problem in reviewed.problems:
        yield f"INVALID {problem}"
    yield "Differences from the Java sink:"
    for key, change in reviewed.changes:
        yield f"  {key + ': ' if key else ''}{change}"
    if reviewed.dropped:
        yield "Removed because they have no effect:"
        yield from (f"  {key}: {reason}" for key, reason in reviewed.dropped)
    name = reviewed.config.get("name", "")
    posted = {
        "name": name,
        "config": {key: value for key, value in reviewed.config.items() if key != "name"},
    }
    if not reviewed.problems:
        yield "To post:"
        yield json.dumps(posted, indent=2)
    if migration is None:
        if not reviewed.problems:
            yield "The position of the Java sink was not determined; specify --bootstrap-server."
        return
    traces, position = migration
    yield "Tables:"
    for trace in traces:
        yield f"  {trace.table}: {_description(trace)}"
    yield from (f"CHECK FIRST {problem}" for problem in position.problems)
    if any(trace.has_ledger for trace in traces):
        yield (
            "No offsets need to be set, because this sink resumes from its ledgers. Later commits "
            "of the Java sink would be duplicated."
        )
    elif position.problems:
        yield "Start the Java connector again, wait for a commit, and stop it right afterward."
    else:
        as_group = "Positions (already set in the consumer group, so no offsets need to be set):"
        to_set = (
            "Positions to set while the connector is STOPPED (PATCH /connectors/<name>/offsets):"
        )
        yield as_group if position.in_group else to_set
        yield from (
            f"  {partition}: {offset}" for partition, offset in sorted(position.offsets.items())
        )


def _description(trace: TableTrace) -> str:
    if not trace.exists:
        return "does not exist"
    before = "; THIS SINK HAS ALREADY WRITTEN TO IT: its ledger is used and nothing is imported"
    ledger = before if trace.has_ledger else ""
    if trace.control is None:
        return f"no commit by the Java sink{ledger}"
    through = f", valid through {trace.valid_through}" if trace.valid_through else ""
    by = f" by {trace.by}" if trace.by else ""
    return f"last commit {trace.commit}{by} in snapshot {trace.snapshot}{through}{ledger}"


def _apply(url: str, config: Mapping[str, str], position: JavaPosition) -> None:
    """Create the connector in state STOPPED, and set its offsets if the group lacks them."""
    import httpx

    name = config["name"]
    body = {"name": name, "config": dict(config), "initial_state": "STOPPED"}
    steps: list[tuple[str, str, object]] = [("POST", rest_paths.CONNECTORS, body)]
    if not position.in_group:
        steps.append(
            (
                "PATCH",
                path(rest_paths.CONNECTOR_OFFSETS, connector=name),
                {"offsets": _offsets(position.offsets)},
            )
        )
    for method, target, content in steps:
        try:
            response = httpx.request(method, url + target, json=content, timeout=120)
        except httpx.HTTPError as error:
            raise ConnectError(f"{method} {target}: {error}") from error
        if response.status_code >= 300:
            raise ConnectError(f"{method} {target}: {response.text}")
    typer.echo(
        f"{name} is STOPPED at these positions; to start it: curl -X PUT "
        f"{url}{path(rest_paths.CONNECTOR_RESUME, connector=name)}"
    )
