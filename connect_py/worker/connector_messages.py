"""What travels on the pipe between the worker and its connector process."""

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
    """All that the connector process needs to begin."""

    plugins: Sequence[PluginTable]
    log_levels: Mapping[str, int | None]
    worker_props: Mapping[str, str] = field(default_factory=dict)  # placeholders resolved


# Requests. Each is answered by one Reply of the same number.


@dataclass(frozen=True, slots=True)
class StartConnector:
    """Start an instance, or hold it ready; `generation` tells apart instances of one name."""

    number: int
    name: str
    generation: int
    config: Mapping[str, str]
    target: TargetState


@dataclass(frozen=True, slots=True)
class StopConnector:
    """Stop an instance and forget it."""

    number: int
    name: str


@dataclass(frozen=True, slots=True)
class ChangeTarget:
    """Pause, stop or start an instance."""

    number: int
    name: str
    target: TargetState


@dataclass(frozen=True, slots=True)
class MakeTaskConfigs:
    """Ask a running instance to divide its work; the reply is a list of configurations."""

    number: int
    name: str
    max_tasks: int


@dataclass(frozen=True, slots=True)
class Validate:
    """Check a configuration; the reply is (definitions, values)."""

    number: int
    plugin: Plugin
    props: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class Define:
    """List a plugin's definitions."""

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
    """Call a method of a connector class's fresh instance with plain arguments; the reply is what
    it returned."""

    number: int
    plugin: Plugin
    method: str
    arguments: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Operate:
    """Call `operate` of a connector class's fresh instance; the reply is what it returned."""

    number: int
    plugin: Plugin
    name: str
    props: Mapping[str, str]
    operation: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CancelOperation:
    """End the `Operate` request of this number early: its client is gone. Its reply still comes,
    with an error."""

    number: int


@dataclass(frozen=True, slots=True)
class AlterOffsets:
    """Call `alter_offsets` of a connector class's fresh instance; the reply is what it returned.

    `offsets` is a mapping for a sink, pairs for a source. Only errors that are a `ConnectError` or
    a `NotImplementedError` of the connector's come back as what they are; others as `RuntimeError`.
    """

    number: int
    plugin: Plugin
    name: str
    props: Mapping[str, str]
    offsets: Any
    worker_props: Mapping[str, str]
    start_number: int


Question: TypeAlias = (
    type[Validate]
    | type[Define]
    | type[ListServices]
    | type[CallConnector]
    | type[Operate]
    | type[AlterOffsets]
)
"""What may be asked of a plugin that does not run."""
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
    """The current step of the `Operate` request of this number, for its client."""

    number: int
    step: str


@dataclass(frozen=True, slots=True)
class Reply:
    """The outcome of a request: a value, or an error that was raised."""

    number: int
    value: Any = None
    error: Exception | None = None


# News of instances.


@dataclass(frozen=True, slots=True)
class Reconfigure:
    """The connector wants to be asked for its task configurations again."""


@dataclass(frozen=True, slots=True)
class ConnectorNews:
    """An instance reached a state, FAILED with its trace; or it wants to be reconfigured, or
    `waits` for something."""

    name: str
    generation: int
    news: State | Reconfigure | Waits
    trace: str | None = None


# About shared services. `user` is the number of the request that made the user: `StartConnector`,
# `Operate` or `AlterOffsets`.


@dataclass(frozen=True, slots=True)
class ServiceWanted:
    """What a user wants; a question is answered by `ServiceAnswered`."""

    user: int
    name: str  # of the connector
    message: AcquireService | RequestService | ReleaseService


@dataclass(frozen=True, slots=True)
class ServiceAnswered:
    """The worker's answer to a user."""

    user: int
    answer: Answer


@dataclass(frozen=True, slots=True)
class ServiceUserEnded:
    """A user uses no service any more."""

    user: int
