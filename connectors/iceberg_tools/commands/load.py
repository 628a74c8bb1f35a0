"""`connect-py load`: what a connector's tasks would do with its topics, done by Spark's
executors."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from connect_py.api.command import reads_kafka_in_spark, sink_host
from connect_py.api.errors import ConfigError, ConnectError
from connectors.iceberg_tools.commands.exit_status import errors_exit
from connectors.iceberg_tools.commands.kafka_options import BootstrapServer
from connectors.iceberg_tools.commands.load_options import (
    STEP_ROWS,
    Archive,
    Conf,
    KafkaProperty,
    Master,
    Split,
    StepRows,
    kafka_settings,
    spark_settings,
)
from connectors.iceberg_tools.commands.table_options import AsJson, Worker

if TYPE_CHECKING:
    from connect_py.api.record import TopicPartition
    from connect_py.api.sink_host import SinkHost
    from connectors.iceberg_tools.load.load import Load, LoadProgress

REFUSED = 1


@reads_kafka_in_spark
def load(
    connector: Annotated[
        Path, typer.Argument(help="The connector as it is posted.", exists=True, dir_okay=False)
    ],
    bootstrap_server: BootstrapServer = None,
    worker: Worker = None,
    master: Master = None,
    begin: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="Of a connector that never ran: earliest, a time or topic:partition:offset,...",
            show_default="where the connector stands",
        ),
    ] = None,
    end: Annotated[
        str, typer.Option("--to", help="latest, a time, or topic:partition:offset,...")
    ] = "latest",
    step_rows: StepRows = STEP_ROWS,
    split: Split = 1,
    conf: Conf = None,
    kafka_property: KafkaProperty = None,
    archive: Archive = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Show what would be read and made, and end.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Load a connector's topics on Spark, exactly once; the connector goes on behind it.

    Stop the connector before (PUT /connectors/NAME/stop), and start it after. Everything is as its
    tasks do it: tables are created and changed, records that fail go where the connector says.
    After an interruption run it again. Exit status 0: the tables have everything up to --to; 1: it
    ended before; 2: it did not begin, for want of Java or jars.
    """
    with errors_exit(REFUSED):
        from connectors.iceberg.config.keys import STOP_AT
        from connectors.iceberg.config.worker_defaults import with_worker_catalog
        from connectors.iceberg_tools.commands.connector_json import resolve_connector
        from connectors.iceberg_tools.load.load import Load

        props = resolve_connector(connector, worker)
        settings = kafka_settings(bootstrap_server, kafka_property) | spark_settings(
            master, conf, archive
        )
        host = sink_host(props, worker, settings)
        starts, ends = _bounds(host, begin, end, props.get(STOP_AT))
        if plan:
            from connectors.iceberg_tools.commands.load_plan import show_plan

            show_plan(props, host, starts, ends, as_json=as_json)
            return
        props = with_worker_catalog(props, host.worker_settings)
        running = Load(props, host, ends, step_rows, starts if begin is not None else None, split)
        if begin is not None:
            _begin_at(host, starts)
        _run(running, host, ends, as_json=as_json)


def _run(
    running: Load, host: SinkHost, ends: Mapping[TopicPartition, int], *, as_json: bool
) -> None:
    """Load, and say what came of it.

    Raises:
        ConnectError: It ended before.
    """
    from connectors.iceberg_tools.commands.load_view import LoadView

    started = time.monotonic()
    with LoadView(ends, quiet=as_json) as view:
        progress = running.run(view.show)
    _report(host, progress, time.monotonic() - started, as_json=as_json)


def _bounds(
    host: SinkHost, begin: str | None, end: str, stop_at: str | None
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """By partition, where the load begins as far as the group says, and where it ends.

    Args:
        host: Is asked.
        begin: `--from`.
        end: `--to`.
        stop_at: Where the connector stops by itself; the lower end of the two counts.

    Raises:
        ConfigError: A bound makes no sense.
        ConnectError: The connector runs, there is nothing to read, or Kafka does not answer.
    """
    from connectors.iceberg.config.keys import STOP_AT
    from connectors.iceberg.config.stop_at import LATEST
    from connectors.iceberg.coordinator.kafka_metadata import describe_topics, partitions_of
    from connectors.iceberg_tools.load.bounds import EARLIEST, offsets_at
    from connectors.iceberg_tools.operations.kafka_group import member_count

    if members := member_count(host.client_config("admin"), host.group_id):
        raise ConnectError(
            f"the connector runs: group {host.group_id} has {members} members; stop it first"
        )
    partitions = partitions_of(describe_topics(host))
    if not partitions:
        raise ConnectError("none of the connector's topics exists")
    first = offsets_at(host, EARLIEST, partitions, "")
    if begin is None:
        committed = host.committed(partitions)
        starts = {tp: committed[tp].offset if tp in committed else first[tp] for tp in partitions}
    else:
        starts = {**first, **offsets_at(host, begin, partitions, "--from")}
    ends = offsets_at(host, end, partitions, "--to")  # asked after the starts: a log may grow
    if stop_at is not None:
        stops = offsets_at(host, stop_at, partitions, STOP_AT)
        ends = {tp: min(offset, stops.get(tp, offset)) for tp, offset in ends.items()}
    for tp in sorted(ends if begin is not None else ()):
        if starts[tp] > ends[tp]:
            raise ConfigError(
                "--from", f"{tp} would begin at offset {starts[tp]}, and end before at {ends[tp]}"
            )
    # a topic that was created again ends below its old offset
    tails = offsets_at(host, LATEST, partitions, "")
    nothing = {tp: min(start, tails[tp]) for tp, start in starts.items()}
    return starts, {**nothing, **ends}


def _begin_at(host: SinkHost, starts: Mapping[TopicPartition, int]) -> None:
    """Have a connector that never ran begin at these offsets.

    Raises:
        ConfigError: It has offsets already.
    """
    from connect_py.api.record import OffsetAndMetadata

    if host.committed(starts):
        raise ConfigError(
            "--from",
            "is for a connector that never ran, and this one has offsets: leave it out, or "
            "alter them over REST (PATCH /connectors/NAME/offsets)",
        )
    host.commit({tp: OffsetAndMetadata(offset) for tp, offset in starts.items()})


def _report(host: SinkHost, progress: LoadProgress, seconds: float, *, as_json: bool) -> None:
    """What came of it."""
    from connectors.iceberg.protocol.positions import nest

    rows = {table: int(count) for table, count in progress.rows.items()}
    unrouted = {topic: int(count) for topic, count in progress.unrouted.items() if count}
    if as_json:
        typer.echo(
            json.dumps(
                {
                    "connector": host.connector,
                    "records": progress.records,
                    "steps": progress.steps,
                    "seconds": round(seconds, 3),
                    "rows": rows,
                    "unrouted": unrouted,
                    "offsets": nest(progress.committed, int),
                },
                indent=2,
            )
        )
        return
    for table, count in rows.items():
        typer.echo(f"{table}: {count:,} rows")
    for topic, count in unrouted.items():
        typer.echo(f"{topic}: {count:,} records went to no table")
    rate = progress.records / seconds if seconds else 0
    typer.echo(
        f"{host.connector}: {progress.records:,} records in {progress.steps} steps and "
        f"{seconds:.0f} s ({rate:,.0f} a second); start the connector to go on from here"
    )
