"""`connect-py try`: what a connector would do with the records of its topics."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from connect_py.api.command import pipeline_factory, sink_host, uses_java
from connectors.iceberg_tools.commands.exit_status import errors_exit
from connectors.iceberg_tools.commands.kafka_options import (
    BootstrapServer,
    ClientConfig,
    Properties,
    client_settings,
)
from connectors.iceberg_tools.commands.table_options import AsJson, TablePlace, Worker

if TYPE_CHECKING:
    from connectors.iceberg.config.sink_config import IcebergSinkConfig
    from connectors.iceberg.table.table import TableDescription

FOUND_FAULTS, UNDECIDED = 1, 2


@uses_java
def try_records(
    connector: Annotated[
        Path, typer.Argument(help="The connector as it is posted.", exists=True, dir_okay=False)
    ],
    records: Annotated[int, typer.Option(help="So many, of all partitions alike.", min=1)] = 1000,
    newest: Annotated[
        bool, typer.Option("--newest", help="The last ones of each partition, not the first.")
    ] = False,
    bootstrap_server: BootstrapServer = None,
    worker: Worker = None,
    samples: Annotated[int, typer.Option(help="Rows to show of each table.", min=0)] = 3,
    kafka_property: Properties = None,
    client_config: ClientConfig = None,
    as_json: AsJson = False,
) -> None:
    """Read records, convert, transform and route them, and show what would come to which table.
    Nothing is committed.

    Tables that would be created are shown as a statement; of others the changes that the records
    ask for. Exit status 0: all records have their place; 1: some have none, or a table could not be
    written; 2: not known.
    """
    with errors_exit(UNDECIDED):
        from rich.console import Console

        from connectors.iceberg.config.sink_config import IcebergSinkConfig
        from connectors.iceberg_tools.commands.connector_json import resolve_connector
        from connectors.iceberg_tools.commands.trial_view import trial_lines
        from connectors.iceberg_tools.trial.topic_sample import SampleRequest, TopicSample
        from connectors.iceberg_tools.trial.trial import Trial
        from connectors.iceberg_tools.trial.trial_document import trial_document

        props = resolve_connector(connector, worker)
        config = IcebergSinkConfig.parse(props)
        host = None if worker is None else sink_host(props, worker, {})
        kafka = client_settings(bootstrap_server, kafka_property, client_config, host)
        sample = TopicSample(kafka, props, SampleRequest(records, newest))
        pipeline = pipeline_factory(props, worker).open()
        try:
            with (
                _tables(config) as look_up,
                Console(stderr=True).status("reading records") as status,
            ):
                trial = Trial(config, look_up, samples)
                for run in sample.read(lambda count: status.update(f"{count} records")):
                    trial.take(pipeline.process([run]))
        finally:
            pipeline.close()
    faults = bool(trial.bad) or any(each.refused for each in trial.tables.values())
    if as_json:
        typer.echo(json.dumps(trial_document(config, sample, trial), indent=2))
    else:
        typer.echo(f"{config.connector}: {sample.records} records of {', '.join(sample.topics)}")
        for line in trial_lines(config, trial):
            typer.echo(line)
        typer.echo("\nnothing was committed")
    raise typer.Exit(FOUND_FAULTS if faults else 0)


@contextmanager
def _tables(config: IcebergSinkConfig) -> Iterator[Callable[[str], TableDescription | None]]:
    """What the catalog says of tables, in a Spark driver that ends with the block."""
    from connectors.iceberg.config.spark_config import SparkConfig
    from connectors.iceberg_tools.trial.trial_document import table_look_up

    settings = SparkConfig(
        config.catalog_name, config.catalog, config.hadoop_settings(), config.spark
    )
    with TablePlace("", settings, config).open() as lake:
        yield table_look_up(config, lake)
