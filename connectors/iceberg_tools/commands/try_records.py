"""`connect-py try`: tries out a connector with records from its topics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from connect_py.api.command import CommandContext, command
from connect_py.plurals import pluralize
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.config.spark_config import SparkConfig
from connectors.iceberg_tools.commands.connector_json import resolve_connector
from connectors.iceberg_tools.commands.kafka_options import KafkaOptions
from connectors.iceberg_tools.commands.table_options import ConnectorFile, LocalTable, Worker
from connectors.iceberg_tools.commands.trial_view import trial_lines
from connectors.iceberg_tools.trial.topic_sample import SampleRequest, TopicSample
from connectors.iceberg_tools.trial.trial import Trial
from connectors.iceberg_tools.trial.trial_document import table_look_up, trial_document

if TYPE_CHECKING:
    from connectors.iceberg.table.table import TableDescription

REJECTED, UNDECIDED = 1, 2


@command(json=True, failure_status=UNDECIDED)
def try_records(
    context: CommandContext,
    connector: ConnectorFile,
    *,
    records: Annotated[
        int, typer.Option(help="Number of records, spread over all partitions.", min=1)
    ] = 1000,
    newest: Annotated[
        bool,
        typer.Option("--newest", help="Read the last records of each partition, not the first."),
    ] = False,
    worker: Worker = None,
    samples: Annotated[
        int, typer.Option(help="Maximum number of rows to show per table.", min=0)
    ] = 3,
    kafka: KafkaOptions,
) -> None:
    """Read, convert, transform, and route records, and show the resulting rows of each table.

    Nothing is committed. For a new table, the command shows its CREATE statement. For an existing
    table, it shows the schema changes that the records require. Exit status 0: all records are
    accepted; 1: a record is rejected, or a table could not be written; 2: unknown.
    """
    props = resolve_connector(context, connector, worker)
    config = IcebergSinkConfig.parse(props)
    host = None if worker is None else context.sink_host(props, worker, {})
    sample = TopicSample(kafka.settings(host), props, SampleRequest(records, newest))
    pipeline = context.pipelines(props, worker).open()
    try:
        with (
            _tables(context, config) as look_up,
            Console(stderr=True).status("reading records") as status,
        ):
            trial = Trial(config, look_up, samples)
            for run in sample.read(lambda count: status.update(pluralize(count, "record"))):
                trial.take(pipeline.process([run]))
    finally:
        pipeline.close()
    rejected = bool(trial.bad) or any(each.refused for each in trial.tables.values())
    context.show(trial_document(config, sample, trial), _lines(config, sample, trial))
    raise typer.Exit(REJECTED if rejected else 0)


def _lines(config: IcebergSinkConfig, sample: TopicSample, trial: Trial) -> Iterator[str]:
    yield (
        f"{config.connector}: {pluralize(sample.records, 'record')} from {', '.join(sample.topics)}"
    )
    yield from trial_lines(config, trial)
    yield "\nnothing was committed"


@contextmanager
def _tables(
    context: CommandContext, config: IcebergSinkConfig
) -> Iterator[Callable[[str], TableDescription | None]]:
    """Yield a function that looks up tables in a Spark driver, which ends with the `with` block."""
    settings = SparkConfig(
        config.catalog_name, config.catalog, config.hadoop_settings(), config.spark
    )
    with LocalTable("", settings, config, context).open() as lake:
        yield table_look_up(config, lake)
