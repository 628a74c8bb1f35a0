"""Messages on the pipe between the worker and its connector process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from connect_py.api.plugin import Plugin
from connect_py.api.service import SharedService
from connect_py.model import State, TargetState
from connect_py.plugins.plugin_table import PluginTable
from connect_py.task.messages import AcquireService, Answer, ReleaseService, RequestService, Waits


@dataclass(frozen=True, slots=True)
class ConnectorProcessSpec:
    """Initial data of the connector process."""

    plugins: Sequence[PluginTable]
    log_levels: Mapping[str, int | None]
    worker_props: Mapping[str, str] = field(default_factory=dict)  # resolved


# Requests. Each is answered by one Reply with the same number.


@dataclass(frozen=True, slots=True)
class StartConnector:
    """Start an instance, or prepare it if paused. `generation` distinguishes instances with the
    same name.
    """

    number: int
    name: str
    generation: int
    config: Mapping[str, str]
    target: TargetState


@dataclass(frozen=True, slots=True)
class StopConnector:
    """Stop and remove an instance."""

    number: int
    name: str


@dataclass(frozen=True, slots=True)
class ChangeTarget:
    """Pause, stop, or start an instance."""

    number: int
    name: str
    target: TargetState


@dataclass(frozen=True, slots=True)
class MakeTaskConfigs:
    """Request the task configurations of a running instance; the reply is a list of
    configurations.
    """

    number: int
    name: str
    max_tasks: int


@dataclass(frozen=True, slots=True)
class Validate:
    """Validate a configuration; the reply is (definitions, values)."""

    number: int
    plugin: Plugin
    props: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class Define:
    """Return a plugin's definitions."""

    number: int
    plugin: Plugin


@dataclass(frozen=True, slots=True)
class ListServices:
    """List the services that tasks of these connectors will request; the reply is a list of
    `ConnectorService`.

    `connectors`: name, plugin, and configuration. A connector whose class raises an error is logged
    and skipped.
    """

    number: int
    connectors: Sequence[tuple[str, Plugin, Mapping[str, str]]]


@dataclass(frozen=True, slots=True)
class ConnectorService:
    """A service that tasks of a connector will request."""

    connector: str
    service: SharedService


@dataclass(frozen=True, slots=True)
class CallConnector:
    """Call a method of a new instance of a connector class with plain arguments; the reply is its
    result.
    """

    number: int
    plugin: Plugin
    method: str
    arguments: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Operate:
    """Call `operate` of a new instance of a connector class; the reply is its result."""

    number: int
    plugin: Plugin
    name: str
    props: Mapping[str, str]
    operation: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CancelOperation:
    """Cancel the `Operate` request with this number because its client has disconnected. It is
    still answered, with an error.
    """

    number: int


@dataclass(frozen=True, slots=True)
class AlterOffsets:
    """Call `alter_offsets` of a new instance of a connector class; the reply is its result.

    `offsets` is a mapping for a sink, a list of pairs for a source. The connector's `ConnectError`
    and `NotImplementedError` are returned as they are; other errors become a `RuntimeError`.
    """

    number: int
    plugin: Plugin
    name: str
    props: Mapping[str, str]
    offsets: Any
    worker_props: Mapping[str, str]
    start_number: int


RequestType: TypeAlias = (
    type[Validate]
    | type[Define]
    | type[ListServices]
    | type[CallConnector]
    | type[Operate]
    | type[AlterOffsets]
)
"""Requests about a plugin that is not running."""
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
    """Current step of the `Operate` request with this number, for its client."""

    number: int
    step: str


@dataclass(frozen=True, slots=True)
class Reply:
    """Result of a request: a value or an error."""

    number: int
    value: Any = None
    error: Exception | None = None


# Events of instances


@dataclass(frozen=True, slots=True)
class Reconfigure:
    """The connector requests to be asked for its task configurations again."""


@dataclass(frozen=True, slots=True)
class ConnectorEvent:
    """An instance has reached a state (FAILED with a stack trace), requests reconfiguration, or is
    waiting.
    """

    name: str
    generation: int
    event: State | Reconfigure | Waits
    trace: str | None = None


# Messages about shared services. `user` is the number of the request that created the user:
# `StartConnector`, `Operate`, or `AlterOffsets`.


@dataclass(frozen=True, slots=True)
class ServiceRequest:
    """Request of a user. A question is answered by `ServiceAnswered`."""

    user: int
    name: str  # of the connector
    message: AcquireService | RequestService | ReleaseService


@dataclass(frozen=True, slots=True)
class ServiceAnswered:
    """Response of the worker to a user."""

    user: int
    answer: Answer


@dataclass(frozen=True, slots=True)
class ServiceUserEnded:
    """A user no longer uses any service."""

    user: int
