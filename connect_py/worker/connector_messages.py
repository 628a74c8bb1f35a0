"""Messages on the pipe between the worker and its connector process."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from connect_py.api.plugin import Plugin
from connect_py.api.service import SharedService
from connect_py.model import State, TargetState
from connect_py.plugins.plugin_table import PluginTable
from connect_py.task.messages import AcquireService, ReleaseService, RequestService, Waits


@dataclass(frozen=True, slots=True)
class ConnectorProcessSpec:
    """Data with which the connector process is started."""

    plugins: Sequence[PluginTable]
    log_levels: Mapping[str, int | None]
    worker_props: Mapping[str, str] = field(default_factory=dict)  # resolved


# Calls


_users = itertools.count(1)


@dataclass(frozen=True, slots=True)
class ServiceUserRequest:
    """Request whose processing may use shared services.

    `user` is the unique number of the service user, which acquires the services for this request.
    """

    user: int = field(default_factory=lambda: next(_users), kw_only=True)


@dataclass(frozen=True, slots=True)
class StartConnector(ServiceUserRequest):
    """Starts an instance, or only initializes it if the target state is not STARTED.

    `user` distinguishes instances with the same name.
    """

    name: str
    config: Mapping[str, str]
    target: TargetState


@dataclass(frozen=True, slots=True)
class StopConnector:
    """Stops and removes an instance."""

    name: str


@dataclass(frozen=True, slots=True)
class ChangeTarget:
    """Pauses, stops, or starts an instance."""

    name: str
    target: TargetState


@dataclass(frozen=True, slots=True)
class MakeTaskConfigs:
    """Requests the task configurations of a running instance. The reply is a list."""

    name: str
    max_tasks: int


@dataclass(frozen=True, slots=True)
class Validate(ServiceUserRequest):
    """Validates a configuration. The reply is a tuple of definitions and values."""

    plugin: Plugin
    props: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class Define:
    """Requests a plugin's config key definitions."""

    plugin: Plugin


@dataclass(frozen=True, slots=True)
class ListServices:
    """Lists the services that the tasks of these connectors will need.

    The reply is a list of `ConnectorService`. `connectors` contains the name, plugin, and
    configuration of each connector. A connector whose class raises an error is logged and skipped.
    """

    connectors: Sequence[tuple[str, Plugin, Mapping[str, str]]]


@dataclass(frozen=True, slots=True)
class ConnectorService:
    """A service that a connector's tasks will need."""

    connector: str
    service: SharedService


@dataclass(frozen=True, slots=True)
class CallConnector(ServiceUserRequest):
    """Calls a method on a new instance of a connector class. The reply is its return value.

    The arguments are plain data.
    """

    plugin: Plugin
    method: str
    arguments: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Operate(ServiceUserRequest):
    """Calls `operate` on a new instance of a connector class. The reply is its return value."""

    plugin: Plugin
    name: str
    props: Mapping[str, str]
    operation: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CancelOperation:
    """Cancels the `Operate` request with the same `user` after its client has disconnected.

    This is a notification. The reply to the `Operate` request is then an error.
    """

    user: int


@dataclass(frozen=True, slots=True)
class AlterOffsets(ServiceUserRequest):
    """Calls `alter_offsets` on a new instance of a connector class.

    The reply is its return value.

    `offsets` is a mapping for a sink and a list of (partition, offset) pairs for a source. If
    the connector raises a `ConnectError` or `NotImplementedError`, the call fails with an error of
    that class. Any other error becomes a `RuntimeError`.
    """

    plugin: Plugin
    name: str
    props: Mapping[str, str]
    offsets: Any
    worker_props: Mapping[str, str]
    start_number: int


Request: TypeAlias = (
    StartConnector
    | StopConnector
    | ChangeTarget
    | MakeTaskConfigs
    | Validate
    | Define
    | ListServices
    | CallConnector
    | Operate
    | AlterOffsets
)


@dataclass(frozen=True, slots=True)
class OperationProgress:
    """Reports the current step of the `Operate` request with the same `user` to its client."""

    user: int
    step: str


# Events from instances


@dataclass(frozen=True, slots=True)
class Reconfigure:
    """Requests a reconfiguration of the connector's tasks."""


@dataclass(frozen=True, slots=True)
class ConnectorEvent:
    """New state, waiting reason, or reconfiguration request of an instance.

    `trace` is the stack trace if the state is FAILED.
    """

    name: str
    user: int
    event: State | Reconfigure | Waits
    trace: str | None = None


# Shared services


@dataclass(frozen=True, slots=True)
class ServiceRequest:
    """Request from a service user. Only an `AcquireService` request is a call and has a reply."""

    user: int
    name: str  # connector name
    message: AcquireService | RequestService | ReleaseService


@dataclass(frozen=True, slots=True)
class ServiceUserEnded:
    """Reports that a service user no longer uses any service."""

    user: int
