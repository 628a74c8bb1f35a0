"""`Worker`: runs connectors and tasks on this machine, and reports what becomes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeAlias

from connect_py.api.config import ConfigKey, ConfigValue
from connect_py.api.errors import ConnectError
from connect_py.api.plugin import Plugin
from connect_py.clock import Clock, SystemClock
from connect_py.model import ConnectorTaskId, TargetState
from connect_py.plugins.plugin_registry import PluginRegistry
from connect_py.worker.worker_listener import WorkerListener

Props: TypeAlias = Mapping[str, str]
ConfigResolver: TypeAlias = Callable[[Props], Props]
"""Replaces the placeholders of config providers in a configuration. ConfigError when a provider cannot read."""


@dataclass(frozen=True, slots=True)
class ConnectorValidation:
    """What a plugin says about a configuration; plain data (no validators, no recommenders)."""

    definitions: Sequence[ConfigKey]  # in order of definition
    values: Mapping[str, ConfigValue]  # may name keys without definition


class TooManyTasksError(ConnectError):
    """A connector made more task configurations than `tasks.max` allows, and `tasks.max.enforce` is on."""

    java_name = "org.apache.kafka.connect.errors.TooManyTasksException"


class Worker:
    """Connectors in one child process, each task in a process of its own.

    Every method may be called from any thread and returns at once; work happens elsewhere and ends in a future or in a
    call of the listener. Configurations come with their placeholders; the worker resolves them when it uses them.
    """

    def __init__(
        self,
        props: Props,
        *,
        plugins: PluginRegistry,
        listener: WorkerListener,
        resolve: ConfigResolver = dict,
        clock: Clock | None = None,
    ) -> None:
        """Prepare; nothing runs yet.

        Args:
            props: The worker's properties, placeholders resolved.
            plugins: Where classes are found by name.
            listener: Takes the news.
            resolve: Replaces placeholders in connector and task configurations.
        """
        self._props = dict(props)
        self._plugins = plugins
        self._listener = listener
        self._resolve = resolve
        self._clock = clock or SystemClock()

    @property
    def plugins(self) -> PluginRegistry:
        """The plugins that this worker can run."""
        return self._plugins

    def start(self) -> None:
        """Start the connector process and the server that task processes fork from, in the background."""
        raise NotImplementedError

    def stop(self, timeout: float | None = None) -> None:
        """Stop all tasks, then all connectors, then the processes; the one method that waits.

        Args:
            timeout: Seconds for all tasks together; `task.shutdown.graceful.timeout.ms` unless given.
        """
        raise NotImplementedError

    def start_connector(self, name: str, config: Props, target: TargetState) -> Future[None]:
        """Start a connector, or hold it ready when its target is PAUSED or STOPPED.

        A connector of that name that runs here is stopped first. The future fails as the connector's start failed;
        the listener has been told by then.
        """
        raise NotImplementedError

    def stop_connector(self, name: str) -> Future[None]:
        """Stop a connector and forget it; it has 5 s. Done at once when it does not run here."""
        raise NotImplementedError

    def set_target_state(self, name: str, target: TargetState) -> None:
        """Tell the connector and the tasks of that name that run here; the listener hears when they noticed.

        STOPPED means nothing to tasks: whoever wants them stopped calls `stop_tasks`.
        """
        raise NotImplementedError

    def task_configs(self, name: str, config: Props, max_tasks: int) -> Future[list[dict[str, str]]]:
        """Ask the running connector to divide its work, once; retrying is the caller's.

        `config` is the connector's own, unresolved: values that the connector merely copied come back as the
        placeholders they were, and `task.class` is added. Sinks also inherit `topics` and `topics.regex`.

        Errors: NotFoundError (does not run here), TooManyTasksError (see there), what the connector raised.
        """
        raise NotImplementedError

    def start_task(
        self,
        id: ConnectorTaskId,  # noqa: A002 - Connect's word
        connector_config: Props,
        task_config: Props,
        target: TargetState,
        start_number: int,
    ) -> None:
        """Start a task in a process of its own; the listener hears of its start or failure.

        A task of that id that runs here is stopped first. `start_number` is the config topic offset of the record
        that last started or changed the connector.
        """
        raise NotImplementedError

    def stop_tasks(self, ids: Iterable[ConnectorTaskId]) -> Future[None]:
        """Ask all of these to stop at once; cancel what is left after `task.shutdown.graceful.timeout.ms`.

        Done when none of them runs any more, however it ended.
        """
        raise NotImplementedError

    def running_connectors(self) -> frozenset[str]:
        """Names of the connectors that this worker holds, failed, paused and stopped ones included."""
        raise NotImplementedError

    def running_tasks(self) -> frozenset[ConnectorTaskId]:
        """The tasks that this worker holds: started and neither ended as asked nor cancelled; failed ones included."""
        raise NotImplementedError

    def validate_connector(self, class_name: str, props: Mapping[str, str | None]) -> Future[ConnectorValidation]:
        """Have a connector class check a configuration (placeholders resolved by the caller).

        Only the connector's own keys: the framework's, converters' and transformations' are the caller's.

        Errors: UnknownPluginError and AmbiguousPluginError from the look-up, what `validate` raised.
        """
        raise NotImplementedError

    def validate_plugin(self, plugin: Plugin, props: Mapping[str, str | None]) -> Future[ConnectorValidation]:
        """Check properties, prefix cut off, against the definitions of a converter, transformation or predicate."""
        raise NotImplementedError

    def plugin_definitions(self, plugin: Plugin) -> Future[list[ConfigKey]]:
        """The keys that a plugin defines, in order, without validators and recommenders."""
        raise NotImplementedError
