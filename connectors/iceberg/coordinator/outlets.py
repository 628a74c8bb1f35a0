"""`Outlets`: lineage and notices of one task 0, as the configuration asks for them."""

from __future__ import annotations

import importlib.metadata
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from connect_py.api.task import SinkTaskContext
from connectors.iceberg.coordinator.control_events import EventWriter
from connectors.iceberg.coordinator.lineage import Lineage, LineageJob, lineage_emitter
from connectors.iceberg.coordinator.noticed_metrics import NoticedMetrics
from connectors.iceberg.coordinator.notices import Notices, to_webhook
from connectors.iceberg.protocol.iceberg_metrics import IcebergMetrics

if TYPE_CHECKING:
    from connectors.iceberg.config.sink_config import IcebergSinkConfig


@dataclass(frozen=True, slots=True)
class Outlets:
    """What the coordinator tells others, and the metrics that some of it follows from."""

    metrics: IcebergMetrics
    notices: Notices | None
    lineage: Lineage | None

    def all(self) -> list[Notices | Lineage]:
        """Those that there are, which end with the coordinator."""
        return [each for each in (self.notices, self.lineage) if each is not None]

    @staticmethod
    def of(config: IcebergSinkConfig, context: SinkTaskContext) -> Outlets:
        """Start the threads that are needed.

        Raises:
            ConfigError: A library is not installed.
        """
        plain = IcebergMetrics(context.metrics)
        emit = lineage_emitter(config)
        lineage = None
        if emit is not None:
            lineage = Lineage(
                _job(config, context), emit, lambda outcome: plain.message_ended("lineage", outcome)
            )
        senders = _senders(config, context)
        if not senders:
            return Outlets(plain, None, lineage)
        notices = Notices(
            config.connector, senders, lambda outcome: plain.message_ended("notices", outcome)
        )
        stale = None if config.stale_after_ms is None else config.stale_after_ms / 1000
        return Outlets(NoticedMetrics(context.metrics, notices, stale), notices, lineage)


def _senders(config: IcebergSinkConfig, context: SinkTaskContext) -> list[Callable[[bytes], None]]:
    senders: list[Callable[[bytes], None]] = []
    if config.notices_topic is not None:
        writer = EventWriter(context.client_config, config.notices_topic, config.kafka)
        senders.append(lambda notice: writer.write(config.connector.encode(), notice))
    if config.notices_webhook is not None:
        senders.append(to_webhook(config.notices_webhook))
    return senders


def _job(config: IcebergSinkConfig, context: SinkTaskContext) -> LineageJob:
    server = (
        str(context.client_config("consumer").get("bootstrap.servers", "")).split(",")[0].strip()
    )
    catalog = config.catalog_properties().get("uri") or config.catalog_name
    return LineageJob(
        config.openlineage_namespace,
        config.connector,
        str(uuid.uuid4()),
        f"kafka://{server}",
        catalog,
        importlib.metadata.version("connect-py"),
    )
