"""Connectors: they check a configuration and divide the work into tasks; they move no records."""

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
    from connect_py.api.pipeline import PipelineFactory  # it imports pyarrow


class ConnectorContext(WaitReporter, Protocol):
    """What a running connector may ask of the worker. Safe to call from any thread."""

    @property
    def connector(self) -> str:
        """The connector's name."""

    def request_task_reconfiguration(self) -> None:
        """Have `task_configs` called again, soon; the tasks restart when its answer changed."""

    def raise_error(self, error: Exception) -> None:
        """Report that the connector cannot go on: its status becomes FAILED, its tasks go on."""


class Connector(ABC):
    """One instance per connector, in the worker's connector process. Calls come one at a time."""

    config_def: ClassVar[ConfigDef]
    task_class: ClassVar[type[Task]]
    version: ClassVar[str | None] = None  # None: the distribution's version

    context: ConnectorContext
    services: SharedServices  # set before any method is called; any thread
    # shows a step of `operate` to its client; set before it, and only then
    report_progress: Callable[[str], None]

    @classmethod
    def shared_services(
        cls, props: Mapping[str, str], worker_settings: Callable[[str], Mapping[str, str]]
    ) -> Sequence[SharedService]:
        """Return the services that tasks of this configuration will request; none unless
        overridden.

        Called when any worker of the group starts, and just before `start`; placeholders are
        resolved. The worker starts these services early. A service that no task has requested ten
        minutes after the start of the worker, or a minute after the start of the connector, stops.
        Return soon; an error is logged and has no other effect. `worker_settings` is the one of
        `SharedServices`.
        """
        return ()

    def initialize(self, context: ConnectorContext) -> None:
        """Take the context; called once, before `start`."""
        self.context = context

    @abstractmethod
    def start(self, props: Mapping[str, str]) -> None:
        """Begin with this configuration, placeholders resolved.

        Raises: ConnectError: The connector is FAILED until it is restarted or its configuration
            changes.
        """

    @abstractmethod
    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        """Divide the work: one configuration per task, at most `max_tasks`, not empty for a sink.

        May be called again at any time after `start`; errors are retried with back-off for ever.
        """

    def stop(self) -> None:
        """End; called once for each `start`, given 5 s."""
        return

    def validate(self, props: Mapping[str, str | None]) -> dict[str, ConfigValue]:
        """Check a configuration without starting anything: by `config_def`, and rules over several
        keys.

        Runs in the connector process, may take long and may talk to servers. Report problems in the
        values' `errors`; an exception is an internal error (HTTP 500).
        """
        return self.config_def.validate(props)

    def operate(
        self, props: Mapping[str, str], operation: str, arguments: Mapping[str, Any]
    ) -> Any:
        """Answer `POST /connectors/{connector}/operations/{operation}`: something that only this
        connector can do.

        Called on an instance that was not started, in whatever state the connector is, by any
        worker of the cluster. It may take as long as the client waits: 90 seconds for a plain
        request, and any time if the client asked for progress, which `report_progress` shows to it.

        Args:
            props: The connector's configuration, placeholders resolved.
            operation: Its name in the path.
            arguments: The JSON object of the request; numbers are texts, as they stood there.

        Returns what JSON can say.

        Raises:
            NotFoundError: There is no such operation (HTTP 404).
            ConfigError: The arguments make no sense (HTTP 400).
            ConnectError: It did not work (HTTP 500).
        """
        raise NotFoundError(f"This connector has no operation {operation}")

    def cancel_operation(self) -> None:
        """End the call of `operate` early: its client is gone. Called on another thread; does
        nothing by default."""


class SinkConnector(Connector):
    """A connector whose tasks read topics and write elsewhere."""

    task_class: ClassVar[type[SinkTask]]

    def transactional_id(self, props: Mapping[str, str]) -> str | None:
        """The transactional id that tasks of this configuration cannot do without; None: they write
        none.

        Asked, of an instance that was not started, when a configuration is validated: one whose id
        the cluster does not grant is refused.
        """
        return None

    # set before `alter_offsets` and `operate`, and only then; for `operate` its start number is 0
    cluster: SinkCluster
    pipelines: PipelineFactory  # of the connector's records; set before `operate`, and only then

    def alter_offsets(
        self, props: Mapping[str, str], offsets: Mapping[TopicPartition, int | None]
    ) -> bool | Mapping[TopicPartition, OffsetAndMetadata | None]:
        """Check, or follow, a change of the consumer group's offsets: the next ones to read, None
        to reset a partition.

        Called while the connector is stopped, on an instance that was not started, before the group
        is changed. A reset of the whole connector names all partitions that the group has offsets
        of, each with None; the group is deleted afterwards. Returns whether the connector has seen
        to everything: False says that offsets it may keep elsewhere are its user's business. A
        mapping means True, and says what to commit to the group instead of what was asked for:
        offset and metadata of each partition, all in one request, also for a reset; offsets of
        partitions with None are deleted afterwards.

        Raises:
            ConnectError: These offsets are not acceptable; nothing is changed.
            NotImplementedError: Offsets cannot be changed from outside at all.
        """
        return False


class SourceConnector(Connector):
    """A connector whose tasks read elsewhere and write topics."""

    task_class: ClassVar[type[SourceTask]]

    def exactly_once_support(self, props: Mapping[str, str]) -> ExactlyOnceSupport | None:
        """Whether each record gets into its topic exactly once with this configuration, given
        transactions.

        Asked, of an instance that was not started, when a user demands it
        (`exactly.once.support=required`). None: the connector does not say.
        """
        return None

    def can_define_transaction_boundaries(
        self, props: Mapping[str, str]
    ) -> TransactionBoundarySupport:
        """Whether tasks end transactions themselves with this configuration; asked as
        `exactly_once_support` is."""
        return TransactionBoundarySupport.UNSUPPORTED

    def alter_offsets(
        self,
        props: Mapping[str, str],
        offsets: Sequence[tuple[Mapping[str, Value] | None, Mapping[str, Value] | None]],
    ) -> bool:
        """Check, or follow, a change of stored offsets: pairs of source partition and new offset,
        None to reset it.

        Called while the connector is stopped, on an instance that was not started. Returns whether
        the connector has seen to everything; False says that offsets it may keep elsewhere are its
        user's business.

        Raises:
            ConnectError: These offsets are not acceptable; nothing is changed.
            NotImplementedError: Offsets cannot be changed from outside at all.
        """
        return False
