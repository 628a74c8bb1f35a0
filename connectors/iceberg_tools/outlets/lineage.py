"""`Lineage`: sends an OpenLineage event for each commit, with its source topics and its table.

Names follow OpenLineage's naming conventions for datasets; facets follow its standard client.
"""

from __future__ import annotations

import functools
import importlib.metadata
import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import urlsplit

from connect_py.api.errors import ConfigError
from connect_py.api.task import SinkTaskContext
from connectors.iceberg.config import keys
from connectors.iceberg.coordinator.outlet import Outlet
from connectors.iceberg.protocol.actions import CommitTable
from connectors.iceberg.protocol.commit_request import CommitOutcome
from connectors.iceberg.protocol.iceberg_metrics import IcebergMetrics
from connectors.iceberg.table.table import TableDescription
from connectors.iceberg_tools.outlets.background_sender import BackgroundSender

if TYPE_CHECKING:
    from openlineage.client.event_v2 import InputDataset, OutputDataset, RunEvent

    from connectors.iceberg.config.sink_config import IcebergSinkConfig

PRODUCER: Final = "https://connect-py.dev/iceberg-sink"
_TIMEOUT_SECONDS = 10.0
_Commit: TypeAlias = tuple[CommitTable, CommitOutcome, TableDescription]


@dataclass(frozen=True, slots=True)
class LineageJob:
    """Values shared by all events of a connector."""

    namespace: str
    name: str  # name of the connector
    run: str  # UUID of this run of task 0
    kafka: str  # dataset namespace of the topics
    catalog: str  # namespace of the table names
    version: str


class Lineage(Outlet):
    """Sends lineage events on its own thread. An event never delays or fails a commit."""

    def __init__(
        self, job: LineageJob, emit: Callable[[RunEvent], None], outcome: Callable[[str], None]
    ) -> None:
        self._job = job
        self._sender: BackgroundSender[Callable[[], RunEvent]] = BackgroundSender(
            "OpenLineage", lambda create_event: emit(create_event()), outcome
        )
        self._put("START")

    def committed(
        self, request: CommitTable, outcome: CommitOutcome, table: TableDescription
    ) -> None:
        """Send an event for a new snapshot of a table."""
        self._put("RUNNING", (request, outcome, table))

    def close(self, seconds: float) -> None:
        """Send the last event of the run and stop the thread. Wait at most `seconds`."""
        self._put("COMPLETE")
        self._sender.close(seconds)

    def _put(self, state: str, commit: _Commit | None = None) -> None:
        """Queue an event. The sender's thread creates it, so errors do not fail a commit."""
        self._sender.put(functools.partial(self._event, state, datetime.now(UTC), commit))

    def _event(self, state: str, time: datetime, commit: _Commit | None) -> RunEvent:
        from openlineage.client.event_v2 import Job, Run, RunEvent, RunState
        from openlineage.client.generated.job_type_job import JobTypeJobFacet
        from openlineage.client.generated.processing_engine_run import ProcessingEngineRunFacet

        job = self._job
        kind = JobTypeJobFacet(
            processingType="STREAMING", integration="KAFKA_CONNECT", jobType="SINK"
        )
        engine = ProcessingEngineRunFacet(version=job.version, name="connect-py")
        inputs: list[InputDataset] = []
        outputs: list[OutputDataset] = []
        if commit is not None:
            request, outcome, table = commit
            inputs = [
                self._topic(name, request)
                for name in sorted({partition.topic for partition in request.files})
            ]
            outputs = [self._table(outcome, table)]
        return RunEvent(
            eventType=RunState[state],
            eventTime=time.isoformat(timespec="milliseconds"),
            run=Run(job.run, {"processing_engine": engine}),
            job=Job(job.namespace, job.name, {"jobType": kind}),
            inputs=inputs,
            outputs=outputs,
            producer=PRODUCER,
        )

    def _topic(self, name: str, request: CommitTable) -> InputDataset:
        from openlineage.client.event_v2 import InputDataset

        topic = request.ledger.topics.get(name)
        ranges = {
            str(number): [entry.base, entry.next]
            for number, entry in (topic.partitions.items() if topic is not None else ())
            if entry.next > entry.base
        }
        return InputDataset(
            self._job.kafka, name, {"kafkaConnectOffsets": _offsets_facet()(ranges)}
        )

    def _table(self, outcome: CommitOutcome, table: TableDescription) -> OutputDataset:
        from openlineage.client.event_v2 import OutputDataset
        from openlineage.client.generated.dataset_version_dataset import DatasetVersionDatasetFacet
        from openlineage.client.generated.output_statistics_output_dataset import (
            OutputStatisticsOutputDatasetFacet,
        )
        from openlineage.client.generated.schema_dataset import (
            SchemaDatasetFacet,
            SchemaDatasetFacetFields,
        )
        from openlineage.client.generated.symlinks_dataset import Identifier, SymlinksDatasetFacet

        namespace, path = dataset_of(table.location)
        columns = [
            SchemaDatasetFacetFields(c["name"], _type(c["type"]))
            for c in json.loads(table.schema)["fields"]
        ]
        counts = outcome.counts
        return OutputDataset(
            namespace,
            path,
            {
                "outputStatistics": OutputStatisticsOutputDatasetFacet(
                    counts.added_rows, fileCount=counts.added_files
                )
            },
            facets={
                "schema": SchemaDatasetFacet(columns),
                "version": DatasetVersionDatasetFacet(str(outcome.snapshot_id)),
                "symlinks": SymlinksDatasetFacet(
                    [Identifier(self._job.catalog, table.name, "TABLE")]
                ),
            },
        )


def dataset_of(location: str) -> tuple[str, str]:
    """Return the OpenLineage namespace and name of the table at a location.

    Examples are `s3://bucket` with the path in the bucket, and `file` with the path.
    """
    parts = urlsplit(location)
    if parts.scheme in ("", "file"):
        return "file", parts.path
    scheme = "s3" if parts.scheme in ("s3a", "s3n") else parts.scheme
    return f"{scheme}://{parts.netloc}", parts.path.strip("/")


def _type(type_: Any) -> str:
    return type_ if isinstance(type_, str) else str(type_["type"])


@functools.cache
def _offsets_facet() -> Any:
    """Return the class of the custom facet `{"partitions": {"0": [first, next]}}`."""
    import attr
    from openlineage.client.facet_v2 import InputDatasetFacet

    class KafkaConnectOffsetsInputDatasetFacet(InputDatasetFacet):
        partitions: Mapping[str, Sequence[int]] = attr.field()

        @staticmethod
        def _get_schema() -> str:
            return f"{PRODUCER}#kafkaConnectOffsets"

    return attr.define(KafkaConnectOffsetsInputDatasetFacet)


def open_lineage(
    config: IcebergSinkConfig, context: SinkTaskContext, metrics: IcebergMetrics
) -> Lineage:
    """Return an outlet that sends lineage events to the configured server or file.

    Raises:
        ConfigError: The library is not installed.
    """
    servers = str(context.client_config("consumer").get("bootstrap.servers", ""))
    job = LineageJob(
        namespace=config.openlineage_namespace,
        name=config.connector,
        run=str(uuid.uuid4()),
        kafka=f"kafka://{servers.split(',')[0].strip()}",
        catalog=config.catalog_properties().get("uri") or config.catalog_name,
        version=importlib.metadata.version("connect-py"),
    )
    return Lineage(
        job, lineage_emitter(config), lambda outcome: metrics.message_ended("lineage", outcome)
    )


def lineage_emitter(config: IcebergSinkConfig) -> Callable[[RunEvent], None]:
    """Return the function that sends an event to the configured server or file.

    Raises:
        ConfigError: The library is not installed.
    """
    try:
        from openlineage.client import OpenLineageClient
        from openlineage.client.transport.file import FileConfig, FileTransport
        from openlineage.client.transport.http import ApiKeyTokenProvider, HttpConfig, HttpTransport
    except ImportError as error:
        key = keys.OPENLINEAGE_URL if config.openlineage_url else keys.OPENLINEAGE_FILE
        raise ConfigError(
            key, "requires the library openlineage-python: pip install 'connect-py[lineage]'"
        ) from error
    transport: Any
    if config.openlineage_url:
        http = HttpConfig(config.openlineage_url, config.openlineage_endpoint, _TIMEOUT_SECONDS)
        if config.openlineage_api_key is not None:
            http.auth = ApiKeyTokenProvider({"apiKey": config.openlineage_api_key.value})
        transport = HttpTransport(http)
    else:
        transport = FileTransport(FileConfig(str(config.openlineage_file), append=True))
    client = OpenLineageClient(transport=transport)
    return client.emit
