"""Creates and starts the coordinator with its connections, metrics, and outlets."""

from __future__ import annotations

from connect_py.api.task import SinkTaskContext
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.config.spark_config import SparkConfig, worker_spark_config
from connectors.iceberg.coordinator.control_events import EventPublisher, EventWriter
from connectors.iceberg.coordinator.coordinator import Coordinator
from connectors.iceberg.coordinator.outlet import open_outlets
from connectors.iceberg.coordinator.table_manager import TableManager
from connectors.iceberg.driver.lake_client import LakeClient, LakeSessions
from connectors.iceberg.maintenance.full_maintenance import full_maintenance
from connectors.iceberg.protocol.commit_request import EngineSettings
from connectors.iceberg.protocol.iceberg_metrics import IcebergMetrics

SPARK = "Spark"  # value of `for` in the task status while the driver starts


def start_coordinator(
    config: IcebergSinkConfig,
    context: SinkTaskContext,
    *,
    restarts: bool = True,
    maintains: bool = True,
) -> Coordinator:
    """Start a coordinator.

    Args:
        config: The connector's configuration.
        context: The context of task 0.
        restarts: True to take over again after a newer coordinator has taken over.
        maintains: True to maintain tables between cycles, as configured.

    Raises:
        ConfigError: A library or package that the configuration requires is not installed.
        ConnectError: The worker does not allow the configuration.
    """
    metrics = IcebergMetrics(context.metrics)
    outlets = open_outlets(config, context, metrics)
    for outlet in outlets:
        metrics = outlet.observe(metrics)
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
        outlets=outlets,
        maintenance=maintenance,
        warns=context.warns,
    )
    sessions.request()  # the driver starts now, not on the first commit
    coordinator = Coordinator(
        config,
        context,
        tables,
        events,
        metrics,
        outlets,
        restarts=restarts,
        maintains=maintains,
    )
    coordinator.start()
    return coordinator


def lake_sessions(
    config: IcebergSinkConfig, spark: SparkConfig, context: SinkTaskContext, metrics: IcebergMetrics
) -> LakeSessions:
    """Return a coordinator's sessions in the Spark driver. No session is open yet."""
    settings = EngineSettings(config.full_merge, config.refuse_foreign_rows)
    seconds = config.commit_attempt_timeout_ms / 1000
    return LakeSessions(
        lambda: LakeClient(
            context, spark, settings, config.connector, commit_deadline_seconds=seconds
        ),
        lambda reason: context.waits(SPARK, reason),
        metrics.driver_replaced,
    )
