"""Interface between the REST layer and a herder.

Requests return a `concurrent.futures.Future`, so HTTP handlers never block. The herder completes
the future on its own thread. A request that fails sets one of these errors on its future:
`NotFoundError`, `AlreadyExistsError`, or `ConnectError` from `connect_py.api.errors`, or one of the
classes below. Methods that read a snapshot (connectors, statuses, topics, plugins) return
immediately. The snapshots are valid after `state_read` has completed.
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
# as submitted by the user: placeholders are unresolved, and values may be null
Config: TypeAlias = Mapping[str, str | None]


class BadRequestError(ConnectError):
    """The request is invalid (HTTP 400). The message is shown to the user."""


class RequestConflictError(ConnectError):
    """The worker cannot respond because the group is rebalancing (HTTP 409)."""


class RequestTargetError(RequestConflictError):
    """The request must be handled by the leader, or by the worker that runs a connector or task.

    `url` is the advertised URL of that worker. It is None if the worker is unknown, in which case
    the REST API reports a conflict.
    """

    def __init__(self, message: str, url: str | None) -> None:
        super().__init__(message)
        self.url = url


class UnavailableError(ConnectError):
    """The worker is not ready for this request, or is shutting down (HTTP 503)."""


class InitialState(Enum):
    """Initial state of a new connector."""

    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"

    @property
    def target(self) -> TargetState:
        return TargetState.STARTED if self is InitialState.RUNNING else TargetState(self.value)


@dataclass(frozen=True, slots=True)
class Stage:
    """Current or last activity of a thread, reported when a request times out.

    Times are in milliseconds since the epoch.
    """

    description: str
    started_ms: int
    completed_ms: int | None = None


class StagedFuture(Future[T]):
    """A future that reports the stage of its request, or of another future that it depends on."""

    def __init__(self, stage: Callable[[], Stage | None] = lambda: None) -> None:
        super().__init__()
        self._stage = stage
        self._awaited: Future[Any] | None = None

    def wait_for(self, future: Future[Any]) -> None:
        """Report the stage of `future`, on which this future depends."""
        self._awaited = future

    def stage(self) -> Stage | None:
        """Return the current stage of the request, or None to report the herder's stage."""
        return self._awaited.stage() if isinstance(self._awaited, StagedFuture) else self._stage()


class RunningOperation:
    """A connector operation that has no deadline. Thread-safe."""

    def __init__(self) -> None:
        """Create an operation that has not been sent to its connector yet."""
        self.result: Future[Any] = Future()
        self._lock = threading.Lock()
        self._step = ""
        self._cancel: Callable[[], None] | None = None
        self._canceled = False

    @property
    def step(self) -> str:
        """Last step that the connector reported, or an empty string."""
        return self._step

    def show(self, step: str) -> None:
        """Record a step that the connector has reported."""
        self._step = step

    def started(self, cancel: Callable[[], None]) -> None:
        """Record that the operation was sent to its connector. `cancel` cancels it there."""
        with self._lock:
            self._cancel = cancel
            canceled = self._canceled
        if canceled:
            cancel()

    def cancel(self) -> None:
        """Cancel the operation. Its result future then fails."""
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

    created: bool  # False if an existing connector was changed
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
    """Definition of a config key, as returned by `GET /connector-plugins/{p}/config`."""

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
            message
            for config in self.configs
            if config.value is not None
            for message in config.value.errors
        ]


@dataclass(frozen=True, slots=True)
class LoggerLevel:
    level: str  # one of Kafka Connect's level names, in upper case
    last_modified: int | None  # time of the last change by a request, in ms since the epoch


@dataclass(frozen=True, slots=True)
class ServerInfo:
    version: str
    commit: str
    kafka_cluster_id: str


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A worker in the group."""

    url: str  # advertised URL
    worker_id: str
    leads: bool
    is_self: bool


class Herder(ABC):
    """Manages the connectors and tasks of one worker or of its whole group. Thread-safe."""

    @abstractmethod
    def server_info(self) -> ServerInfo: ...

    def metrics(self) -> Sequence[AnySample]:
        """Return the current metrics of this worker, its connectors, and its tasks."""
        return ()

    def workers(self) -> Sequence[WorkerInfo]:
        """Return the workers in the group, sorted by URL."""
        return ()

    @abstractmethod
    def stage(self) -> Stage | None:
        """Return the current or last stage of the herder's thread, or None if there was none."""

    @abstractmethod
    def started(self) -> bool:
        """Return True if startup is complete."""

    def stopping(self) -> bool:
        """Return True if the worker is shutting down.

        A request that failed for this reason may succeed on another worker or after a restart.
        """
        return False

    def state_read(self) -> Future[None]:
        """Return a future that completes when the connectors and statuses have been read.

        The snapshots are empty until then.

        Errors: UnavailableError if the worker stops first.
        """
        return done(None)

    @abstractmethod
    def ping(self) -> Future[None]:
        """Return a future that completes when the worker is healthy.

        The worker is healthy if it has started and its herder thread processes this request.
        """

    @abstractmethod
    def connectors(self) -> list[str]:
        """Return the connector names. The list is empty until `state_read` completes."""

    @abstractmethod
    def connector_info(self, name: str) -> Future[ConnectorInfo]: ...

    @abstractmethod
    def put_connector(
        self, name: str, config: Config, *, replace: bool, initial_state: InitialState | None = None
    ) -> Future[Created]:
        """Validate the configuration and create the connector.

        If `replace` is true, the configuration of an existing connector is replaced.

        Errors: BadRequestError (invalid configuration, with a multi-line message),
        AlreadyExistsError, RequestTargetError.
        """

    @abstractmethod
    def patch_connector(self, name: str, changes: Config) -> Future[ConnectorInfo]:
        """Change some keys in a configuration. A value of None removes the key."""

    @abstractmethod
    def delete_connector(self, name: str) -> Future[None]: ...

    @abstractmethod
    def connector_status(self, name: str) -> ConnectorStatus:
        """Return the status from the status store. Raise NotFoundError if there is none."""

    @abstractmethod
    def task_status(self, id: ConnectorTaskId) -> Status:  # noqa: A002 - named as in Kafka Connect
        """Return the status from the status store. Raise NotFoundError if there is none."""

    @abstractmethod
    def restart_connector(self, name: str) -> Future[None]:
        """Restart the connector but not its tasks.

        The future completes when the connector is running again.
        """

    @abstractmethod
    def restart_connector_and_tasks(
        self, name: str, *, include_tasks: bool, only_failed: bool
    ) -> Future[ConnectorStatus]:
        """Schedule a restart.

        The returned status shows RESTARTING for each connector and task that will be restarted.
        """

    @abstractmethod
    def restart_task(self, id: ConnectorTaskId) -> Future[None]: ...  # noqa: A002 - named as in Kafka Connect

    @abstractmethod
    def pause_connector(self, name: str) -> None:
        """Write the target state PAUSED. Raise NotFoundError if the connector does not exist."""

    @abstractmethod
    def resume_connector(self, name: str) -> None: ...

    @abstractmethod
    def stop_connector(self, name: str) -> Future[None]: ...

    @abstractmethod
    def task_infos(self, name: str) -> Future[list[TaskInfo]]: ...

    @abstractmethod
    def connector_offsets(self, name: str) -> Future[list[ConnectorOffset]]:
        """Return the committed offsets of a connector. The connector may be in any state."""

    @abstractmethod
    def alter_connector_offsets(
        self, name: str, offsets: Sequence[ConnectorOffset] | None
    ) -> Future[str]:
        """Change a stopped connector's offsets, or reset all of them if `offsets` is None.

        The result is a message for the user.

        Errors: BadRequestError (the connector is not stopped, or an offset is invalid),
        RequestConflictError (tasks may still be running, or another change is in progress).
        """

    @abstractmethod
    def operate_connector(
        self, name: str, operation: str, arguments: Mapping[str, Any]
    ) -> Future[Any]:
        """Run a connector operation. The result can be encoded as JSON.

        Errors: NotFoundError, ConfigError, ConnectError.
        """

    @abstractmethod
    def start_operation(
        self, name: str, operation: str, arguments: Mapping[str, Any]
    ) -> RunningOperation:
        """Start a connector operation that has no deadline.

        Its result fails with the same errors as `operate_connector`.
        """

    @abstractmethod
    def active_topics(self, name: str) -> list[str]:
        """Return the topics that the connector has used.

        Raises:
            PermissionError: Topic tracking is disabled.
        """

    @abstractmethod
    def reset_active_topics(self, name: str) -> None:
        """Reset the active topics of a connector.

        Raises:
            PermissionError: Tracking or resetting active topics is disabled. The message is Kafka
                Connect's.
        """

    @abstractmethod
    def plugins(self, *, connectors_only: bool) -> list[PluginInfo]:
        """Return the installed plugins in the order in which the REST API lists them."""

    @abstractmethod
    def plugin_config(self, plugin: str, version: str | None) -> Future[list[ConfigKeyInfo]]:
        """Return the config keys of a plugin. Errors: NotFoundError, BadRequestError."""

    @abstractmethod
    def validate(self, config: Config) -> Future[ConfigInfos]:
        """Validate a connector configuration.

        The converters, transformations, and client overrides are also validated.

        Errors: BadRequestError if the connector class is missing or unknown.
        """

    @abstractmethod
    def logger_levels(self) -> dict[str, LoggerLevel]:
        """Return the effective levels of this worker's loggers, sorted by name.

        Loggers that are off are omitted.
        """

    @abstractmethod
    def logger_level(self, name: str) -> LoggerLevel:
        """Return the effective level of a logger. Raise NotFoundError if it is unknown."""

    @abstractmethod
    def set_logger_level(self, namespace: str, level: str) -> list[str]:
        """Set the level of a logger and of all loggers whose names start with its name.

        `level` is one of Kafka Connect's level names in upper case. It applies to this worker and
        its child processes. Returns the sorted names of the loggers whose level has changed.
        """

    @abstractmethod
    def set_cluster_logger_level(self, namespace: str, level: str) -> None:
        """Set the level of a logger on all workers, as `set_logger_level` does on this worker.

        `level` is case-insensitive. Blocks until the request has been written to the config topic.
        """

    @abstractmethod
    def put_task_configs(
        self, name: str, configs: Sequence[Mapping[str, str]], signature: RequestSignature | None
    ) -> Future[None]:
        """Publish task configurations at the request of another worker. Called on the leader.

        Errors: BadRequestError, PermissionError (invalid signature), UnavailableError,
        NotFoundError, RequestTargetError.
        """

    @abstractmethod
    def put_stop_request(
        self, name: str, start_number: int, reason: str, signature: RequestSignature | None
    ) -> Future[None]:
        """Stop a connector at the request of one of its tasks on another worker.

        The future also completes if the request is outdated. It fails with the same errors as
        `put_task_configs`.
        """

    @abstractmethod
    def fence_zombies(self, name: str, signature: RequestSignature | None) -> Future[None]:
        """Fence the older producers of a source connector at the request of another worker.

        The future fails with the same errors as `put_task_configs`.
        """
