"""`IcebergSinkConnector`: validates the configuration and configures the tasks."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from connect_py.api.config import ConfigValue
from connect_py.api.connector import SinkConnector
from connect_py.api.errors import ConfigError
from connect_py.api.record import OffsetAndMetadata, TopicPartition
from connect_py.api.service import SharedService
from connectors.iceberg.config.allowed_settings import refused_code, refused_settings
from connectors.iceberg.config.keys import CATALOG_NAME
from connectors.iceberg.config.rest_catalog_refs import unsupported_ref_settings
from connectors.iceberg.config.sink_config import IcebergSinkConfig, validate
from connectors.iceberg.config.sink_options import CONFIG_DEF
from connectors.iceberg.config.spark_config import unsupported_worker_settings, worker_spark_config
from connectors.iceberg.config.worker_defaults import with_worker_catalog
from connectors.iceberg.coordinator.offset_alteration import alter
from connectors.iceberg.driver.gateway import why_absent
from connectors.iceberg.driver.lake_client import driver_service
from connectors.iceberg.maintenance.full_maintenance import full_maintenance
from connectors.iceberg.operation_request import Cancellation, OperationRequest, operate
from connectors.iceberg.task.sink_task import IcebergSinkTask

log = logging.getLogger(__name__)


class IcebergSinkConnector(SinkConnector):
    """Writes topics to Iceberg tables.

    The consumer group assigns partitions to tasks, so all tasks have the same configuration.
    """

    config_def = CONFIG_DEF
    task_class = IcebergSinkTask

    def __init__(self) -> None:
        """Create a connector without starting it."""
        self._cancellation = Cancellation()

    def start(self, props: Mapping[str, str]) -> None:
        for warning in self._parsed(props).warnings:  # logged here once instead of in every task
            log.warning("%s", warning)
        self._props = dict(props)

    @classmethod
    def shared_services(
        cls, props: Mapping[str, str], worker_settings: Callable[[str], Mapping[str, str]]
    ) -> Sequence[SharedService]:
        """Return the Spark driver. It starts concurrently with the tasks."""
        config = IcebergSinkConfig.parse(with_worker_catalog(props, worker_settings))
        return (driver_service(worker_spark_config(config, worker_settings)),)

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        return [self._props] * max_tasks

    def validate(self, props: Mapping[str, str | None]) -> dict[str, ConfigValue]:
        settings = self._worker_settings()
        complete = with_worker_catalog(props, settings)
        values = validate(complete)
        configured = {key: value for key, value in complete.items() if value is not None}
        in_worker = hasattr(self, "services")
        if in_worker and (absent := why_absent(os.environ)) is not None:
            values[CATALOG_NAME].errors.append(absent)
        refused = [*refused_settings(configured, settings), *refused_code(configured, settings)]
        for key, why in [*refused, *unsupported_worker_settings(settings)]:
            values.setdefault(key, ConfigValue(key)).errors.append(why)
        if in_worker and not any(value.errors for value in values.values()):
            config = IcebergSinkConfig.parse(configured)
            for key, why in unsupported_ref_settings(config):
                values.setdefault(key, ConfigValue(key)).errors.append(why)
            if config.has_full_maintenance:
                try:
                    full_maintenance()
                except ConfigError as error:
                    values.setdefault(error.key, ConfigValue(error.key)).errors.append(error.why)
        return values

    def operate(
        self, props: Mapping[str, str], operation: str, arguments: Mapping[str, Any]
    ) -> Any:
        cluster, pipelines = getattr(self, "cluster", None), getattr(self, "pipelines", None)
        progress: Callable[[str], None] = getattr(self, "report_progress", lambda _: None)
        request = OperationRequest(
            self._parsed(props),
            props,
            self.services,
            arguments,
            cluster,
            pipelines,
            progress,
            self._cancellation,
        )
        return operate(request, operation)

    def cancel_operation(self) -> None:
        self._cancellation.cancel()

    def transactional_id(self, props: Mapping[str, str]) -> str | None:
        """Return the transactional ID of the coordinator."""
        return self._parsed(props).coordinator_transactional_id

    def alter_offsets(
        self, props: Mapping[str, str], offsets: Mapping[TopicPartition, int | None]
    ) -> Mapping[TopicPartition, OffsetAndMetadata | None]:
        """Mark the new offsets as a deliberate rewind or skip that overrides the table ledgers."""
        return alter(self._parsed(props), self.cluster, self.services, offsets)

    def _parsed(self, props: Mapping[str, str]) -> IcebergSinkConfig:
        return IcebergSinkConfig.parse(with_worker_catalog(props, self._worker_settings()))

    def _worker_settings(self) -> Callable[[str], Mapping[str, str]]:
        """Return a function that looks up worker settings. Outside a worker, it returns none."""
        services = getattr(self, "services", None)
        return services.worker_settings if services is not None else lambda _prefix: {}
