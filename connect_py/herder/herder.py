"""Interface between the REST layer and a herder.

Every request returns a `concurrent.futures.Future`, and no HTTP handler blocks. The herder
completes the future on its own thread. Errors are raised by the future: `NotFoundError`,
`AlreadyExistsError`, and `ConnectError` of the API, and the classes below. Snapshots (`connectors`,
statuses, topics, plugins) are returned immediately; they are valid after `state_read`.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias, TypeVar

from connect_py.api.errors import ConnectError
from connect_py.api.plugin import PluginKind
from connect_py.futures import done
from connect_py.herder.request_signature import RequestSignature
from connect_py.metrics.samples import AnySample
from connect_py.model import ConnectorOffset, ConnectorTaskId, Status, TargetState

T = TypeVar("T")
# as sent by a user: with unresolved placeholders and possibly null values
Config: TypeAlias = Mapping[str, str | None]


class BadRequestError(ConnectError):
    """The request is invalid (HTTP 400). The message is shown to the user."""


class RequestConflictError(ConnectError):
    """The worker cannot respond because the group is rebalancing (HTTP 409)."""


class RequestTargetError(RequestConflictError):
    """Another worker must respond: the leader, or the owner of a connector or task.

    `url` is its advertised URL. None if it is unknown, which is reported as a conflict.
    """

    def __init__(self, message: str, url: str | None) -> None:
        super().__init__(message)
        self.url = url


class UnavailableError(ConnectError):
    """The worker is not ready for this request, or is shutting down (HTTP 503)."""


class InitialState(Enum):
    """State in which a connector is created."""

    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"

    @property
    def target(self) -> TargetState:
        return TargetState.STARTED if self is InitialState.RUNNING else TargetState(self.value)


@dataclass(frozen=True, slots=True)
class Stage:
    """Current or last activity of a thread, for the error messages of requests that time out.

    Times are milliseconds since the epoch.
    """

    description: str
    started_ms: int
    completed_ms: int | None = None


class StagedFuture(Future[T]):
    """A future with the current stage of its request, or of the awaited future."""

    def __init__(self, stage: Callable[[], Stage | None] = lambda: None) -> None:
        super().__init__()
        self._stage = stage
        self._awaited: Future[Any] | None = None

    def wait_for(self, future: Future[Any]) -> None:
        """Show the stage of another future, on which this one depends."""
        self._awaited = future

    def stage(self) -> Stage | None:
        """Return the current stage of the request, or None if only the herder has one."""
        return self._awaited.stage() if isinstance(self._awaited, StagedFuture) else self._stage()


class RunningOperation:
    """An operation of a connector without a deadline. Thread-safe."""

    def __init__(self) -> None:
        """Create an operation that has not reached its connector yet."""
        self.result: Future[Any] = Future()
        self._lock = threading.Lock()
        self._step = ""
        self._cancel: Callable[[], None] | None = None
        self._canceled = False

    @property
    def step(self) -> str:
        """Return the step that the connector reported last; empty if it has reported none."""
        return self._step

    def show(self, step: str) -> None:
        """Store the step that the connector reports."""
        self._step = step

    def started(self, cancel: Callable[[], None]) -> None:
        """Set the function that cancels the operation after it has reached its connector."""
        with self._lock:
            self._cancel = cancel
            canceled = self._canceled
        if canceled:
            cancel()

    def cancel(self) -> None:
        """Cancel the operation. Its result still arrives, with an error."""
        with self._lock:
            self._canceled = True
            cancel = self._cancel
        if cancel is not None:
            cancel()


@dataclass(frozen=True, slots=True)
class ConnectorInfo:
    name: str
    config: Mapping[str, str]
    tasks: Sequence[ConnectorTaskId]
    type: str  # sink, source, or unknown


@dataclass(frozen=True, slots=True)
class Created:
    """Result of writing a configuration."""

    created: bool  # False: an existing connector was changed
    info: ConnectorInfo


@dataclass(frozen=True, slots=True)
class ConnectorStatus:
    name: str
    connector: Status
    tasks: Mapping[int, Status]
    type: str
    stop_reason: str | None = None  # reason given by the task that requested the stop


@dataclass(frozen=True, slots=True)
class TaskInfo:
    id: ConnectorTaskId
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PluginInfo:
    name: str  # full class name
    kind: PluginKind
    version: str | None


@dataclass(frozen=True, slots=True)
class ConfigKeyInfo:
    """Definition of a key, as shown by `GET /connector-plugins/{p}/config`."""

    name: str
    type: str
    required: bool
    default_value: str | None
    importance: str
    documentation: str
    group: str | None
    order_in_group: int
    width: str
    display_name: str
    dependents: Sequence[str]


@dataclass(frozen=True, slots=True)
class ConfigValueInfo:
    name: str
    value: str | None
    recommended_values: Sequence[str]
    errors: Sequence[str]
    visible: bool


@dataclass(frozen=True, slots=True)
class ConfigInfo:
    definition: ConfigKeyInfo | None
    value: ConfigValueInfo | None


@dataclass(frozen=True, slots=True)
class ConfigInfos:
    """Result of validating a configuration."""

    name: str
    error_count: int
    groups: Sequence[str]
    configs: Sequence[ConfigInfo]

    def errors(self) -> list[str]:
        """Return all error messages in order."""
        return [
            text
            for config in self.configs
            if config.value is not None
            for text in config.value.errors
        ]


@dataclass(frozen=True, slots=True)
class LoggerLevel:
    level: str  # upper case; one of Connect's level names
    last_modified: int | None  # ms since the epoch of the last change by a request


@dataclass(frozen=True, slots=True)
class ServerInfo:
    version: str
    commit: str
    kafka_cluster_id: str


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A worker of the group."""

    url: str  # its advertised URL
    worker_id: str
    leads: bool
    is_self: bool


class Herder(ABC):
    """The owner of cluster state. Thread-safe."""

    @abstractmethod
    def server_info(self) -> ServerInfo: ...

    def metrics(self) -> Sequence[AnySample]:
        """Return the current metrics of this worker, its connectors, and its tasks."""
        return ()

    def workers(self) -> Sequence[WorkerInfo]:
        """Return the known workers of the group, sorted."""
        return ()

    @abstractmethod
    def stage(self) -> Stage | None:
        """Return the current or last stage of the herder's thread. None before the first one."""

    @abstractmethod
    def started(self) -> bool:
        """Return True if startup is complete."""

    def stopping(self) -> bool:
        """Return True if the worker is shutting down.

        A failed request may succeed on another worker or after a restart.
        """
        return False

    def state_read(self) -> Future[None]:
        """Complete when connectors and statuses have been read.

        Until then, the snapshots are empty.

        Errors: UnavailableError if the worker stops before that.
        """
        return done(None)

    @abstractmethod
    def ping(self) -> Future[None]:
        """Complete when the started herder thread has processed this request.

        The worker is healthy then.
        """

    @abstractmethod
    def connectors(self) -> list[str]:
        """Return the names of the connectors from a snapshot. Empty before `state_read`."""

    @abstractmethod
    def connector_info(self, name: str) -> Future[ConnectorInfo]: ...

    @abstractmethod
    def put_connector(
        self, name: str, config: Config, *, replace: bool, initial_state: InitialState | None = None
    ) -> Future[Created]:
        """Validate the configuration, then create a connector or, only if `replace`, change it.

        Errors: BadRequestError (invalid, with a multi-line message), AlreadyExistsError,
        RequestTargetError.
        """

    @abstractmethod
    def patch_connector(self, name: str, changes: Config) -> Future[ConnectorInfo]:
        """Change some keys. The value None removes a key."""

    @abstractmethod
    def delete_connector(self, name: str) -> Future[None]: ...

    @abstractmethod
    def connector_status(self, name: str) -> ConnectorStatus:
        """Return the status from the status store. NotFoundError if there is none."""

    @abstractmethod
    def task_status(self, id: ConnectorTaskId) -> Status:  # noqa: A002 - Connect's word
        """Return the status from the status store. NotFoundError if there is none."""

    @abstractmethod
    def restart_connector(self, name: str) -> Future[None]:
        """Restart only the connector instance. Completes when it is running again."""

    @abstractmethod
    def restart_connector_and_tasks(
        self, name: str, *, include_tasks: bool, only_failed: bool
    ) -> Future[ConnectorStatus]:
        """Plan a restart. The response shows RESTARTING for the items to restart."""

    @abstractmethod
    def restart_task(self, id: ConnectorTaskId) -> Future[None]: ...  # noqa: A002 - Connect's word

    @abstractmethod
    def pause_connector(self, name: str) -> None:
        """Write the target state. NotFoundError if the connector does not exist."""

    @abstractmethod
    def resume_connector(self, name: str) -> None: ...

    @abstractmethod
    def stop_connector(self, name: str) -> Future[None]: ...

    @abstractmethod
    def task_infos(self, name: str) -> Future[list[TaskInfo]]: ...

    @abstractmethod
    def connector_offsets(self, name: str) -> Future[list[ConnectorOffset]]:
        """Return the committed offsets of a connector in any state."""

    @abstractmethod
    def alter_connector_offsets(
        self, name: str, offsets: Sequence[ConnectorOffset] | None
    ) -> Future[str]:
        """Change the offsets of a stopped connector, or reset all of them (None).

        Returns a message for the user.

        Errors: BadRequestError (not stopped, or invalid offsets), RequestConflictError (its tasks
        may still be running, or another change is in progress).
        """

    @abstractmethod
    def operate_connector(
        self, name: str, operation: str, arguments: Mapping[str, Any]
    ) -> Future[Any]:
        """Run an operation of a connector. The result is JSON-compatible.

        Errors: NotFoundError, ConfigError, ConnectError.
        """

    @abstractmethod
    def start_operation(
        self, name: str, operation: str, arguments: Mapping[str, Any]
    ) -> RunningOperation:
        """Start an operation without a deadline.

        Its result has the same errors as `operate_connector`.
        """

    @abstractmethod
    def active_topics(self, name: str) -> list[str]:
        """Return the topics that the connector has used; possibly empty.

        Raises:
            PermissionError: Topic tracking is disabled.
        """

    @abstractmethod
    def reset_active_topics(self, name: str) -> None:
        """Reset the active topics.

        Raises:
            PermissionError: With Connect's message: topic tracking or its reset is disabled.
        """

    @abstractmethod
    def plugins(self, *, connectors_only: bool) -> list[PluginInfo]:
        """Return the installed plugins in the order of the REST API."""

    @abstractmethod
    def plugin_config(self, plugin: str, version: str | None) -> Future[list[ConfigKeyInfo]]:
        """Return the keys of a plugin. Errors: NotFoundError, BadRequestError."""

    @abstractmethod
    def validate(self, config: Config) -> Future[ConfigInfos]:
        """Validate a connector configuration.

        This includes converters, transformations, and client overrides.

        Errors: BadRequestError if the connector class is missing or unknown.
        """

    @abstractmethod
    def logger_levels(self) -> dict[str, LoggerLevel]:
        """Return the effective levels of the loggers of this worker, sorted by name.

        Loggers that are off are omitted.
        """

    @abstractmethod
    def logger_level(self, name: str) -> LoggerLevel:
        """Return the effective level of one logger. NotFoundError if it is unknown."""

    @abstractmethod
    def set_logger_level(self, namespace: str, level: str) -> list[str]:
        """Set the level of a logger and of all loggers whose names start with its name.

        Applies to this worker and its child processes.

        `level` is one of Connect's level names in upper case. Returns the sorted names of the
        loggers that have changed.
        """

    @abstractmethod
    def set_cluster_logger_level(self, namespace: str, level: str) -> None:
        """Request the same of all workers.

        `level` is case-insensitive. Waits until the record has been written.
        """

    @abstractmethod
    def put_task_configs(
        self, name: str, configs: Sequence[Mapping[str, str]], signature: RequestSignature | None
    ) -> Future[None]:
        """Publish a task set as the leader, as requested by another worker of the group.

        Errors: BadRequestError, PermissionError (signature), UnavailableError, NotFoundError,
        RequestTargetError.
        """

    @abstractmethod
    def put_stop_request(
        self, name: str, start_number: int, reason: str, signature: RequestSignature | None
    ) -> Future[None]:
        """Stop a connector as the leader, as requested by its task on another worker.

        Also completes if the request is outdated. Errors: see `put_task_configs`.
        """

    @abstractmethod
    def fence_zombies(self, name: str, signature: RequestSignature | None) -> Future[None]:
        """Fence older producers of a source as the leader, as requested by another worker.

        Errors: see `put_task_configs`.
        """
