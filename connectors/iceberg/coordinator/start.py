"""The coordinator with all that it talks to, started."""

from __future__ import annotations

from connect_py.api.task import SinkTaskContext
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.coordinator.control_events import EventPublisher, EventWriter
from connectors.iceberg.coordinator.coordinator import Coordinator
from connectors.iceberg.coordinator.outlets import Outlets
from connectors.iceberg.coordinator.table_manager import TableManager


def started_coordinator(
    config: IcebergSinkConfig,
    context: SinkTaskContext,
    *,
    begins_anew: bool = True,
    maintains: bool = True,
) -> Coordinator:
    """Start a coordinator.

    Args:
        begins_anew: Take the lead back after a newer coordinator took it.
        maintains: Maintain tables between cycles, as configured.

    Raises:
        ConnectError: The configuration is not acceptable here.
    """
    outlets = Outlets.of(config, context)
    writer = EventWriter(context.client_config, config.control_topic, config.kafka)
    events = EventPublisher(config.connect_group, config.catalog_name, writer)
    tables = TableManager(config, events, outlets.metrics, context, outlets.lineage, context.warns)
    tables.request()
    coordinator = Coordinator(
        config,
        context,
        tables,
        events,
        outlets.metrics,
        outlets.all(),
        begins_anew=begins_anew,
        maintains=maintains,
    )
    coordinator.start()
    return coordinator
