"""`connect-py load`: loads the topics of a connector on Spark's executors."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from connect_py.api.command import CommandContext, command
from connect_py.api.errors import ConfigError, ConnectError
from connect_py.plurals import pluralize
from connectors.iceberg.config.keys import STOP_AT
from connectors.iceberg.config.worker_defaults import with_worker_catalog
from connectors.iceberg_tools.commands.connector_json import resolve_connector
from connectors.iceberg_tools.commands.load_options import LoadOptions
from connectors.iceberg_tools.commands.load_view import LoadView
from connectors.iceberg_tools.commands.table_options import ConnectorFile, Worker
from connectors.iceberg_tools.load.load import Load

if TYPE_CHECKING:
    from connect_py.api.record import TopicPartition
    from connect_py.api.sink_host import SinkHost
    from connectors.iceberg_tools.load.load import LoadProgress


@command(json=True, jars=["spark-kafka"])
def load(
    context: CommandContext,
    connector: ConnectorFile,
    *,
    worker: Worker = None,
    begin: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="Start of a new connector: earliest, a time, or topic:partition:offset,...",
            show_default="the connector's committed offsets",
        ),
    ] = None,
    end: Annotated[
        str, typer.Option("--to", help="End: latest, a time, or topic:partition:offset,...")
    ] = "latest",
    options: LoadOptions,
    plan: Annotated[
        bool,
        typer.Option("--plan", help="Only show which records would be read and written."),
    ] = False,
) -> None:
    """Load a connector's topics with Spark, exactly once. The connector resumes after the load.

    Stop the connector first (PUT /connectors/NAME/stop), and start it afterward. The load creates
    and changes tables and handles failed records like the connector's tasks. After an interruption,
    run the command again. Exit status 0: the tables contain all records up to --to; 1: the load
    ended early; 2: it did not start, because Java or a jar is missing.
    """
    props = resolve_connector(context, connector, worker)
    host = context.sink_host(props, worker, options.settings())
    starts, ends = _bounds(host, begin, end, props.get(STOP_AT))
    if plan:
        # imported here to reduce the startup time
        from connectors.iceberg_tools.commands.load_plan import show_plan

        show_plan(context, props, host, starts, ends)
        return
    props = with_worker_catalog(props, host.worker_settings)
    first = starts if begin is not None else None
    task = Load(props, host, ends, options.step_rows, first, options.split)
    if begin is not None:
        _begin_at(host, starts)
    started = time.monotonic()
    with LoadView(ends, mask=context.mask, quiet=context.as_json) as view:
        progress = task.run(view.show)
    seconds = time.monotonic() - started
    context.show(_document(host, progress, seconds), _lines(host, progress, seconds))


def _bounds(
    host: SinkHost, begin: str | None, end: str, stop_at: str | None
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Return the start offset and the end offset of each partition.

    Args:
        host: Access to the connector's cluster.
        begin: The value of `--from`.
        end: The value of `--to`.
        stop_at: The end in the connector's configuration. The lower of the two ends applies.

    Raises:
        ConfigError: A bound is invalid.
        ConnectError: The connector is running, no topic exists, or Kafka does not respond.
    """
    from connectors.iceberg.config.stop_at import LATEST
    from connectors.iceberg.coordinator.kafka_metadata import describe_topics, partitions_of
    from connectors.iceberg_tools.load.bounds import EARLIEST, offsets_at
    from connectors.iceberg_tools.operations.kafka_group import member_count

    if members := member_count(host.client_config("admin"), host.group_id):
        raise ConnectError(
            f"the connector is running: group {host.group_id} has {pluralize(members, 'member')}; "
            "stop it first"
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
    # looked up after the starts, because a log may grow
    ends = offsets_at(host, end, partitions, "--to")
    if stop_at is not None:
        stops = offsets_at(host, stop_at, partitions, STOP_AT)
        ends = {tp: min(offset, stops.get(tp, offset)) for tp, offset in ends.items()}
    for tp in sorted(ends if begin is not None else ()):
        if starts[tp] > ends[tp]:
            raise ConfigError(
                "--from", f"{tp} would begin at offset {starts[tp]}, after its end at {ends[tp]}"
            )
    # a topic that was deleted and created again may end below its previous offset
    tails = offsets_at(host, LATEST, partitions, "")
    empty_ranges = {tp: min(start, tails[tp]) for tp, start in starts.items()}
    return starts, {**empty_ranges, **ends}


def _begin_at(host: SinkHost, starts: Mapping[TopicPartition, int]) -> None:
    """Set the first offsets of a connector that has never run.

    Raises:
        ConfigError: The connector already has offsets.
    """
    from connect_py.api.record import OffsetAndMetadata

    if host.committed(starts):
        raise ConfigError(
            "--from",
            "is for a connector that has never run, but this connector has offsets; omit it, or "
            "alter the offsets over REST (PATCH /connectors/NAME/offsets)",
        )
    host.commit({tp: OffsetAndMetadata(offset) for tp, offset in starts.items()})


def _document(host: SinkHost, progress: LoadProgress, seconds: float) -> dict[str, object]:
    from connectors.iceberg.protocol.positions import nest

    return {
        "connector": host.connector,
        "records": progress.records,
        "steps": progress.steps,
        "seconds": round(seconds, 3),
        "rows": {table: int(count) for table, count in progress.rows.items()},
        "unrouted": _unrouted(progress),
        "offsets": nest(progress.committed, int),
    }


def _lines(host: SinkHost, progress: LoadProgress, seconds: float) -> Iterator[str]:
    for table, rows in progress.rows.items():
        yield f"{table}: {pluralize(int(rows), 'row', grouped=True)}"
    for topic, count in _unrouted(progress).items():
        records = pluralize(count, "record has", "records have", grouped=True)
        yield f"{topic}: {records} no table"
    rate = progress.records / seconds if seconds else 0
    yield (
        f"{host.connector}: {pluralize(progress.records, 'record', grouped=True)} in "
        f"{pluralize(progress.steps, 'step')} and {seconds:.0f} s ({rate:,.0f} per second); "
        "start the connector to continue from here"
    )


def _unrouted(progress: LoadProgress) -> dict[str, int]:
    return {topic: int(count) for topic, count in progress.unrouted.items() if count}
