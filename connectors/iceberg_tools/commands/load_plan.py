"""`connect-py load --plan`: shows the offsets and size of a load, and a trial of some records."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Final

from rich.filesize import decimal

from connect_py.api.command import CommandContext
from connect_py.api.record import TopicPartition
from connect_py.api.sink_host import SinkHost
from connect_py.plurals import pluralize
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.config.spark_config import worker_spark_config
from connectors.iceberg.config.worker_defaults import with_worker_catalog
from connectors.iceberg.driver.lake_client import LakeClient
from connectors.iceberg_tools.commands.trial_view import trial_lines
from connectors.iceberg_tools.trial.topic_sample import SampleRequest, TopicSample
from connectors.iceberg_tools.trial.trial import Trial
from connectors.iceberg_tools.trial.trial_document import table_look_up, trial_document

RECORDS: Final = 1000  # number of records in the sample
_DRIVER_SECONDS: Final = 120.0


def show_plan(
    context: CommandContext,
    props: Mapping[str, str],
    host: SinkHost,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> None:
    """Print the plan for a load. Nothing is committed.

    Raises:
        ConnectError: The topics or the catalog cannot be read.
    """
    config = IcebergSinkConfig.parse(with_worker_catalog(props, host.worker_settings))
    sample = TopicSample(host.client_config("consumer"), props, SampleRequest(RECORDS))
    trial = _trial(config, host, sample)
    counts = {tp: max(0, ends[tp] - starts[tp]) for tp in sorted(ends)}
    size = sum(count * sample.message_bytes.get(tp.topic, 0.0) for tp, count in counts.items())
    document = {
        "connector": host.connector,
        "records": sum(counts.values()),
        "bytes": round(size),
        "ranges": [
            {"topic": tp.topic, "partition": tp.partition, "from": starts[tp], "to": ends[tp]}
            for tp in counts
        ],
        "sample": trial_document(config, sample, trial),
    }
    lines = [
        *(
            f"{tp}: offsets {starts[tp]} to {ends[tp]}, at most "
            f"{pluralize(count, 'record', grouped=True)}"
            for tp, count in counts.items()
        ),
        f"{host.connector}: at most {pluralize(sum(counts.values()), 'record', grouped=True)}, "
        f"about {decimal(round(size))} of messages",
        f"\nThe first {pluralize(sample.records, 'record', grouped=True)}:",
    ]
    context.show(document, chain(lines, trial_lines(config, trial)))


def _trial(config: IcebergSinkConfig, host: SinkHost, sample: TopicSample) -> Trial:
    """Return a trial of the sample's records. It uses the Spark driver of the load."""
    spark = worker_spark_config(config, host.worker_settings)
    pipeline = host.pipelines.open()
    try:
        with LakeClient(
            host, spark, user=f"{config.connector} (plan)", deadline_seconds=_DRIVER_SECONDS
        ) as lake:
            trial = Trial(config, table_look_up(config, lake), samples=0)
            for run in sample.read():
                trial.take(pipeline.process([run]))
    finally:
        pipeline.close()
    return trial
