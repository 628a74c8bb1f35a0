"""Connectors, which validate configurations and divide the work into tasks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from connect_py.api.cluster import SinkCluster
from connect_py.api.config import ConfigDef, ConfigValue
from connect_py.api.errors import NotFoundError
from connect_py.api.record import OffsetAndMetadata, TopicPartition
from connect_py.api.schema import Value
from connect_py.api.service import SharedService, SharedServices
from connect_py.api.task import (
    ExactlyOnceSupport,
    SinkTask,
    SourceTask,
    Task,
    TransactionBoundarySupport,
)
from connect_py.api.waiting import WaitReporter

if TYPE_CHECKING:
    from connect_py.api.pipeline import PipelineFactory  # imports pyarrow


class ConnectorContext(WaitReporter, Protocol):
    """Worker services for a running connector. Thread-safe."""

    @property
    def connector(self) -> str:
        """Name of the connector."""

    def request_task_reconfiguration(self) -> None:
        """Request a call to `task_configs`.

        The tasks are restarted if their configurations have changed.
        """

    def raise_error(self, error: Exception) -> None:
        """Report an error from which the connector cannot recover.

        The connector's status becomes FAILED, but its tasks keep running.
        """


class Connector(ABC):
    """Base class for sink and source connectors.

    Each connector has one instance, which runs in the worker's connector process. Methods other
    than `cancel_operation` are never called concurrently.
    """

    config_def: ClassVar[ConfigDef]
    task_class: ClassVar[type[Task]]
    version: ClassVar[str | None] = None  # None for the distribution's version

    context: ConnectorContext
    services: SharedServices  # set before any method is called; thread-safe
    # reports the current step of `operate` to the client; set only on instances that run `operate`
    report_progress: Callable[[str], None]

    @classmethod
    def shared_services(
        cls, props: Mapping[str, str], worker_settings: Callable[[str], Mapping[str, str]]
    ) -> Sequence[SharedService]:
        """Return the services that tasks with this configuration request and that can start early.

        Called when any worker of the group starts, and immediately before `start`. Placeholders in
        `props` are resolved. A service is stopped if no task requests it within ten minutes after
        the worker starts, or within one minute after the connector starts. Must return quickly.
        Errors are logged and have no other effect. For `worker_settings`, see `SharedServices`.
        """
        return ()

    def initialize(self, context: ConnectorContext) -> None:
        """Set the context. Called once, before `start`."""
        self.context = context

    @abstractmethod
    def start(self, props: Mapping[str, str]) -> None:
        """Start with this configuration, in which placeholders are resolved.

        Raises:
            ConnectError: The connector fails and must be restarted or reconfigured.
        """

    @abstractmethod
    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        """Return one configuration per task, at most `max_tasks`, and at least one for a sink.

        May be called at any time after `start`. Errors are retried indefinitely, with increasing
        delays.
        """

    def stop(self) -> None:
        """Stop within 5 s. Called once for each call to `start`."""
        return

    def validate(self, props: Mapping[str, str | None]) -> dict[str, ConfigValue]:
        """Validate a configuration without starting the connector.

        By default, only `config_def` is checked. Override this method to check combinations of
        keys. Runs in the connector process, may be slow, and may connect to servers. Problems are
        reported in the `errors` of the values. A raised exception is an internal error (HTTP 500).
        """
        return self.config_def.validate(props)

    def operate(
        self, props: Mapping[str, str], operation: str, arguments: Mapping[str, Any]
    ) -> Any:
        """Process `POST /connectors/{connector}/operations/{operation}`.

        Called on an instance that has not been started, regardless of the connector's state, on any
        worker of the group. A request without progress reports (see `report_progress`) has a
        deadline of 90 seconds. A request with progress reports has no deadline.

        Args:
            props: Configuration of the connector, in which placeholders are resolved.
            operation: Name of the operation, from the path.
            arguments: JSON object from the request. Numbers are represented as strings, exactly as
                in the request.

        Returns:
            A JSON-serializable value.

        Raises:
            NotFoundError: The operation does not exist (HTTP 404).
            ConfigError: The arguments are invalid (HTTP 400).
            ConnectError: The operation failed (HTTP 500).
        """
        raise NotFoundError(f"This connector has no operation {operation}")

    def cancel_operation(self) -> None:
        """Cancel a running `operate` call because its client has disconnected.

        Called on a different thread from the one that runs `operate`.
        """


class SinkConnector(Connector):
    """A connector whose tasks read topics and write to another system."""

    task_class: ClassVar[type[SinkTask]]

    def transactional_id(self, props: Mapping[str, str]) -> str | None:
        """Return the transactional ID that tasks with this configuration use, or None.

        Called during validation, on an instance that has not been started. The configuration is
        rejected if the cluster does not authorize the ID.
        """
        return None

    # set only on instances that run `alter_offsets` or `operate`; `start_number` is 0 for `operate`
    cluster: SinkCluster
    # creates pipelines for the connector's records; set only on instances that run `operate`
    pipelines: PipelineFactory

    def alter_offsets(
        self, props: Mapping[str, str], offsets: Mapping[TopicPartition, int | None]
    ) -> bool | Mapping[TopicPartition, OffsetAndMetadata | None]:
        """Validate or apply a change to the consumer offsets. None resets a partition.

        Called while the connector is stopped, on an instance that has not been started, before the
        consumer group is changed. For a reset of the connector, `offsets` maps every partition that
        has a committed offset to None. The group is deleted afterward.

        Returns:
            True if the connector has handled the change completely. False if the connector may also
            store offsets in another system, where users must change them. A mapping implies True.
            It contains the offsets and metadata to commit to the group in one request instead of
            the requested offsets, even for a reset. The offsets of partitions that are mapped to
            None are deleted afterward.

        Raises:
            ConnectError: The offsets are rejected. Nothing is changed.
            NotImplementedError: The connector does not support changes to its offsets.
        """
        return False


class SourceConnector(Connector):
    """A connector whose tasks read from another system and write to topics."""

    task_class: ClassVar[type[SourceTask]]

    def exactly_once_support(self, props: Mapping[str, str]) -> ExactlyOnceSupport | None:
        """Return whether this configuration supports exactly-once delivery through transactions.

        Return None if this is unknown. Called on an instance that has not been started, if the user
        requires exactly-once delivery (`exactly.once.support=required`).
        """
        return None

    def can_define_transaction_boundaries(
        self, props: Mapping[str, str]
    ) -> TransactionBoundarySupport:
        """Return whether tasks with this configuration can define transaction boundaries.

        Called under the same conditions as `exactly_once_support`.
        """
        return TransactionBoundarySupport.UNSUPPORTED

    def alter_offsets(
        self,
        props: Mapping[str, str],
        offsets: Sequence[tuple[Mapping[str, Value] | None, Mapping[str, Value] | None]],
    ) -> bool:
        """Validate or apply a change to the stored offsets.

        Each pair contains a source partition and its new offset. None resets the partition.
        Called while the connector is stopped, on an instance that has not been started. Return True
        if the connector has handled the change completely, or False if it may also store offsets in
        another system, where users must change them.

        Raises:
            ConnectError: The offsets are rejected. Nothing is changed.
            NotImplementedError: The connector does not support changes to its offsets.
        """
        return False
