"""What the REST layer may ask of a herder, and the answers' shapes.

Every request returns a `concurrent.futures.Future`, so that no HTTP handler ever blocks; a herder
answers from its own thread. Errors arrive through the future: `NotFoundError`, `AlreadyExistsError`
and `ConnectError` of the API, and the classes below. Snapshots (`connectors`, statuses, topics,
plugins) complete at once; they are true after `state_read`.
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
# as a user sends it: placeholders unresolved, nulls possible
Config: TypeAlias = Mapping[str, str | None]


class BadRequestError(ConnectError):
    """The request makes no sense as it is (HTTP 400); the text goes to the user."""


class RequestConflictError(ConnectError):
    """The worker cannot answer just now because the group is being rebalanced (HTTP 409)."""


class RequestTargetError(RequestConflictError):
    """Another worker must answer: the leader, or the owner of a connector or task.

    `url` is its advertised URL, or None when it is not known (then it is a conflict).
    """

    def __init__(self, message: str, url: str | None) -> None:
        super().__init__(message)
        self.url = url


class UnavailableError(ConnectError):
    """The worker is not ready for this request yet, or not any more (HTTP 503)."""


class InitialState(Enum):
    """The state a connector is created in."""

    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"

    @property
    def target(self) -> TargetState:
        return TargetState.STARTED if self is InitialState.RUNNING else TargetState(self.value)


@dataclass(frozen=True, slots=True)
class Stage:
    """What a thread is doing, or did last; times are ms since the epoch, for the texts of timed out
    requests."""

    description: str
    started_ms: int
    completed_ms: int | None = None


class StagedFuture(Future[T]):
    """An answer that knows what is being done for it, by itself or by the future that it waits for
    in turn."""

    def __init__(self, stage: Callable[[], Stage | None] = lambda: None) -> None:
        super().__init__()
        self._stage = stage
        self.part: Future[Any] | None = None  # what it waits for in turn

    def stage(self) -> Stage | None:
        """None when nothing is known but what the herder does."""
        return self.part.stage() if isinstance(self.part, StagedFuture) else self._stage()


class RunningOperation:
    """An operation of a connector without a deadline. Any thread."""

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
        """Take a step that the connector reports."""
        self._step = step

    def started(self, cancel: Callable[[], None]) -> None:
        """Take the function that cancels the operation, which has reached its connector."""
        with self._lock:
            self._cancel = cancel
            canceled = self._canceled
        if canceled:
            cancel()

    def cancel(self) -> None:
        """Have the connector end the operation early. Its result still arrives, with an error."""
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
    type: str  # sink, source or unknown


@dataclass(frozen=True, slots=True)
class Created:
    """The outcome of writing a configuration."""

    created: bool  # False: an existing connector was changed
    info: ConnectorInfo


@dataclass(frozen=True, slots=True)
class ConnectorStatus:
    name: str
    connector: Status
    tasks: Mapping[int, Status]
    type: str
    stop_reason: str | None = None  # why a task of its own had it stopped


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
    """The definition of a key, as `GET /connector-plugins/{p}/config` shows it."""

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
    """The outcome of validating a configuration."""

    name: str
    error_count: int
    groups: Sequence[str]
    configs: Sequence[ConfigInfo]

    def errors(self) -> list[str]:
        """All messages, in order."""
        return [
            text
            for config in self.configs
            if config.value is not None
            for text in config.value.errors
        ]


@dataclass(frozen=True, slots=True)
class LoggerLevel:
    level: str  # upper case, in Connect's words
    last_modified: int | None  # ms since the epoch, of the last change by request


@dataclass(frozen=True, slots=True)
class ServerInfo:
    version: str
    commit: str
    kafka_cluster_id: str


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A worker of the group."""

    url: str  # that it advertises
    worker_id: str
    leads: bool
    is_self: bool


class Herder(ABC):
    """The owner of cluster state, as seen from outside. Safe to call from any thread."""

    @abstractmethod
    def server_info(self) -> ServerInfo: ...

    def metrics(self) -> Sequence[AnySample]:
        """Measurements of this worker, its connectors and tasks, as far as they are known."""
        return ()

    def workers(self) -> Sequence[WorkerInfo]:
        """The workers of the group as far as they are known, sorted."""
        return ()

    @abstractmethod
    def stage(self) -> Stage | None:
        """What the herder thread is doing or did last; None before it did anything."""

    @abstractmethod
    def started(self) -> bool:
        """Whether start-up is complete."""

    def stopping(self) -> bool:
        """Whether the worker ends: what fails from now on may succeed on another worker, or after a
        restart."""
        return False

    def state_read(self) -> Future[None]:
        """Done once connectors and statuses are known: until then the snapshots are empty.

        Errors: UnavailableError, the worker stops before that.
        """
        return done(None)

    @abstractmethod
    def ping(self) -> Future[None]:
        """Done when the herder thread, started, got round to it: the worker is healthy."""

    @abstractmethod
    def connectors(self) -> list[str]:
        """Names, from a snapshot; empty before `state_read`."""

    @abstractmethod
    def connector_info(self, name: str) -> Future[ConnectorInfo]: ...

    @abstractmethod
    def put_connector(
        self, name: str, config: Config, *, replace: bool, initial_state: InitialState | None = None
    ) -> Future[Created]:
        """Validate, then create or (only if `replace`) change a connector.

        Errors: BadRequestError (invalid, with the multi-line text), AlreadyExistsError,
        RequestTargetError.
        """

    @abstractmethod
    def patch_connector(self, name: str, changes: Config) -> Future[ConnectorInfo]:
        """Change some keys; None removes one."""

    @abstractmethod
    def delete_connector(self, name: str) -> Future[None]: ...

    @abstractmethod
    def connector_status(self, name: str) -> ConnectorStatus:
        """From the status store; NotFoundError when nothing is known."""

    @abstractmethod
    def task_status(self, id: ConnectorTaskId) -> Status:  # noqa: A002 - Connect's word
        """From the status store; NotFoundError when nothing is known."""

    @abstractmethod
    def restart_connector(self, name: str) -> Future[None]:
        """Restart the connector instance only; done when it runs again."""

    @abstractmethod
    def restart_connector_and_tasks(
        self, name: str, *, include_tasks: bool, only_failed: bool
    ) -> Future[ConnectorStatus]:
        """Plan a restart; the answer shows RESTARTING where something will be restarted."""

    @abstractmethod
    def restart_task(self, id: ConnectorTaskId) -> Future[None]: ...  # noqa: A002 - Connect's word

    @abstractmethod
    def pause_connector(self, name: str) -> None:
        """Write the target state; NotFoundError when there is no such connector."""

    @abstractmethod
    def resume_connector(self, name: str) -> None: ...

    @abstractmethod
    def stop_connector(self, name: str) -> Future[None]: ...

    @abstractmethod
    def task_infos(self, name: str) -> Future[list[TaskInfo]]: ...

    @abstractmethod
    def connector_offsets(self, name: str) -> Future[list[ConnectorOffset]]:
        """What a connector has committed, in whatever state it is."""

    @abstractmethod
    def alter_connector_offsets(
        self, name: str, offsets: Sequence[ConnectorOffset] | None
    ) -> Future[str]:
        """Change offsets of a stopped connector, or (None) reset them all; the answer is a message
        for the user.

        Errors: BadRequestError (not stopped, or offsets that cannot be read), RequestConflictError
        (its tasks may still run, or another change is under way).
        """

    @abstractmethod
    def operate_connector(
        self, name: str, operation: str, arguments: Mapping[str, Any]
    ) -> Future[Any]:
        """Have a connector do what only it can; the answer is for JSON. NotFoundError, ConfigError,
        ConnectError."""

    @abstractmethod
    def start_operation(
        self, name: str, operation: str, arguments: Mapping[str, Any]
    ) -> RunningOperation:
        """Start an operation without a deadline. The errors of `operate_connector` are those of its
        result."""

    @abstractmethod
    def active_topics(self, name: str) -> list[str]:
        """Topics the connector has used. Empty when nothing is known. PermissionError: tracking is
        off."""

    @abstractmethod
    def reset_active_topics(self, name: str) -> None:
        """Forget them. PermissionError, with Connect's text: tracking or its reset is off."""

    @abstractmethod
    def plugins(self, *, connectors_only: bool) -> list[PluginInfo]:
        """Installed plugins in the order that the REST API shows."""

    @abstractmethod
    def plugin_config(self, plugin: str, version: str | None) -> Future[list[ConfigKeyInfo]]:
        """The keys of a plugin. NotFoundError, BadRequestError."""

    @abstractmethod
    def validate(self, config: Config) -> Future[ConfigInfos]:
        """Validate a connector configuration: framework, connector, converters, transformations,
        overrides.

        Errors: BadRequestError when there is no class to validate against.
        """

    @abstractmethod
    def logger_levels(self) -> dict[str, LoggerLevel]:
        """Effective levels of the loggers known to this worker, sorted by name; those that are off
        are left out."""

    @abstractmethod
    def logger_level(self, name: str) -> LoggerLevel:
        """Of one logger; NotFoundError."""

    @abstractmethod
    def set_logger_level(self, namespace: str, level: str) -> list[str]:
        """Give a logger and all whose names begin like it this level, on this worker and in its
        child processes.

        `level` is one of Connect's words in upper case. Returns the names of those that really
        changed, sorted.
        """

    @abstractmethod
    def set_cluster_logger_level(self, namespace: str, level: str) -> None:
        """Ask all workers to do the same; `level` may be in any case. Waits for the record to be
        written."""

    @abstractmethod
    def put_task_configs(
        self, name: str, configs: Sequence[Mapping[str, str]], signature: RequestSignature | None
    ) -> Future[None]:
        """Another worker of the group has the leader publish a task set.

        Errors: BadRequestError, PermissionError (signature), UnavailableError, NotFoundError,
        RequestTargetError.
        """

    @abstractmethod
    def put_stop_request(
        self, name: str, start_number: int, reason: str, signature: RequestSignature | None
    ) -> Future[None]:
        """Another worker of the group has the leader stop a connector, as a task of this start
        asked.

        Done also when that does not count any more. Errors: as above.
        """

    @abstractmethod
    def fence_zombies(self, name: str, signature: RequestSignature | None) -> Future[None]:
        """Another worker of the group has the leader fence older producers of a source. Errors: as
        above."""
