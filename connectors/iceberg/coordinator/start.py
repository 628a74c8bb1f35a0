"""Start of the coordinator: creates it with its connections, metrics, and outlets."""

from __future__ import annotations

import importlib.metadata
import uuid
from collections.abc import Callable

from connect_py.api.task import SinkTaskContext
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.config.spark_config import SparkConfig, worker_spark_config
from connectors.iceberg.coordinator.control_events import EventPublisher, EventWriter
from connectors.iceberg.coordinator.coordinator import Coordinator
from connectors.iceberg.coordinator.lineage import Lineage, LineageJob, lineage_emitter
from connectors.iceberg.coordinator.noticed_metrics import NoticedMetrics
from connectors.iceberg.coordinator.notices import Notices, to_webhook
from connectors.iceberg.coordinator.table_manager import TableManager
from connectors.iceberg.driver.lake_client import LakeClient, LakeSessions
from connectors.iceberg.maintenance.full_maintenance import full_maintenance
from connectors.iceberg.protocol.commit_request import EngineSettings
from connectors.iceberg.protocol.iceberg_metrics import IcebergMetrics

SPARK = "Spark"  # `for` in the status while the driver starts


def start_coordinator(
    config: IcebergSinkConfig,
    context: SinkTaskContext,
    *,
    restarts: bool = True,
    maintains: bool = True,
) -> Coordinator:
    """Start a coordinator.

    Args:
        config: The configuration of the connector.
        context: The context of task 0.
        restarts: Take over again after a newer coordinator has taken over.
        maintains: Maintain tables between cycles, as configured.

    Raises:
        ConfigError: A library or package that the configuration requires is not installed.
        ConnectError: The configuration is not allowed here.
    """
    metrics = IcebergMetrics(context.metrics)
    lineage = _lineage(config, context, metrics)
    notices = _notices(config, context, metrics)
    if notices is not None:
        stale_seconds = None if config.stale_after_ms is None else config.stale_after_ms / 1000
        metrics = NoticedMetrics(context.metrics, notices, stale_seconds)
    events = EventPublisher(
        config.connect_group,
        config.catalog_name,
        EventWriter(context.client_config, config.control_topic, config.kafka),
    )
    spark = worker_spark_config(config, context.worker_settings)
    sessions = lake_sessions(config, spark, context, metrics)
    maintenance = None
    if config.has_full_maintenance:
        maintenance = full_maintenance()(config, spark, context, metrics)
    tables = TableManager(
        config,
        sessions,
        metrics,
        events,
        lineage=lineage,
        maintenance=maintenance,
        warns=context.warns,
    )
    sessions.request()  # the driver starts now, not with the first commit
    coordinator = Coordinator(
        config,
        context,
        tables,
        events,
        metrics,
        [outlet for outlet in (notices, lineage) if outlet is not None],
        restarts=restarts,
        maintains=maintains,
    )
    coordinator.start()
    return coordinator


def lake_sessions(
    config: IcebergSinkConfig, spark: SparkConfig, context: SinkTaskContext, metrics: IcebergMetrics
) -> LakeSessions:
    """Return the sessions of a coordinator in the Spark driver. None is open yet."""
    settings = EngineSettings(config.full_merge, config.refuse_foreign_rows)
    seconds = config.commit_attempt_timeout_ms / 1000
    return LakeSessions(
        lambda: LakeClient(
            context, spark, settings, config.connector, commit_deadline_seconds=seconds
        ),
        lambda reason: context.waits(SPARK, reason),
        metrics.driver_replaced,
    )


def _lineage(
    config: IcebergSinkConfig, context: SinkTaskContext, metrics: IcebergMetrics
) -> Lineage | None:
    emit = lineage_emitter(config)
    if emit is None:
        return None
    servers = str(context.client_config("consumer").get("bootstrap.servers", ""))
    job = LineageJob(
        namespace=config.openlineage_namespace,
        name=config.connector,
        run=str(uuid.uuid4()),
        kafka=f"kafka://{servers.split(',')[0].strip()}",
        catalog=config.catalog_properties().get("uri") or config.catalog_name,
        version=importlib.metadata.version("connect-py"),
    )
    return Lineage(job, emit, lambda outcome: metrics.message_ended("lineage", outcome))


def _notices(
    config: IcebergSinkConfig, context: SinkTaskContext, metrics: IcebergMetrics
) -> Notices | None:
    senders: list[Callable[[bytes], None]] = []
    if config.notices_topic is not None:
        writer = EventWriter(context.client_config, config.notices_topic, config.kafka)
        senders.append(lambda notice: writer.write(config.connector.encode(), notice))
    if config.notices_webhook is not None:
        senders.append(to_webhook(config.notices_webhook))
    if not senders:
        return None
    return Notices(
        config.connector, senders, lambda outcome: metrics.message_ended("notices", outcome)
    )
