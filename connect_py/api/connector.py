"""Connectors: they check a configuration and divide the work into tasks; they move no records."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, Protocol

from connect_py.api.config import ConfigDef, ConfigValue
from connect_py.api.task import SinkTask, SourceTask, Task


class ConnectorContext(Protocol):
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

    def initialize(self, context: ConnectorContext) -> None:
        """Take the context; called once, before `start`."""
        self.context = context

    @abstractmethod
    def start(self, props: Mapping[str, str]) -> None:
        """Begin with this configuration, placeholders resolved.

        Raises:
            ConnectError: The connector is FAILED until it is restarted or its configuration changes.
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
        """Check a configuration without starting anything: by `config_def`, and rules over several keys.

        Runs in the connector process, may take long and may talk to servers. Report problems in the values' `errors`;
        an exception is an internal error (HTTP 500).
        """
        return self.config_def.validate(props)


class SinkConnector(Connector):
    """A connector whose tasks read topics and write elsewhere."""

    task_class: ClassVar[type[SinkTask]]


class SourceConnector(Connector):
    """A connector whose tasks read elsewhere and write topics."""

    task_class: ClassVar[type[SourceTask]]
