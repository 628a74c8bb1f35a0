"""For subcommands of `connect-py` that plugins bring (entry points of the group
`connect_py.commands`)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from connect_py.api.errors import ConfigError, ConnectError
from connect_py.api.service import SharedServices

if TYPE_CHECKING:
    from pathlib import Path

    from connect_py.api.pipeline import PipelineFactory
    from connect_py.api.sink_host import SinkHost

F = TypeVar("F", bound=Callable[..., object])

JAVA = "__connect_py_uses_java__"
WORKER = "__connect_py_asks_worker__"


class WorkerClient(Protocol):
    """REST API of the worker that the command line names."""

    @property
    def url(self) -> str:
        """Return the address of the worker."""

    def connectors(self) -> Mapping[str, Any]:
        """Return `info` and `status` of all connectors of the worker's group, by name.

        Raises:
            ConnectError: No worker answers, or it refuses the request.
        """

    def operate(
        self,
        name: str,
        operation: str,
        arguments: Mapping[str, Any],
        progress: Callable[[str], None],
        worker_id: str | None = None,
    ) -> Any:
        """Call an operation of a connector, and wait for its result, which may take hours.

        Args: name: The connector. operation: The name of the operation. arguments: The JSON object
            of the request. progress: Called with a description of the current step, on the calling
            thread. worker_id: The member of the group that gets the request (`host:port`) if it can
            be reached from here.

        Raises: NotFoundError: The connector, or the operation, does not exist. Nothing was changed.
            ConnectError: The operation failed, or the worker was lost. The operation may have taken
            effect.
        """


def uses_java(command: F) -> F:
    """Mark a command, or a function that returns checks, which starts a JVM.

    Before it runs, the environment says where Java and Spark's jars are. For a command, the jars
    are fetched if they are not there yet, as by `connect-py jars spark`. Without them the command
    ends with exit status 2.
    """
    setattr(command, JAVA, ())
    return command


def reads_kafka_in_spark(command: F) -> F:
    """Mark a command as `uses_java` does; Spark's jars are followed by those of its Kafka
    source."""
    setattr(command, JAVA, ("spark-kafka",))
    return command


def asks_worker(command: F) -> F:
    """Mark a command that calls operations of a running worker if there is one.

    `connect-py` adds the options that name the worker. If the command is also marked by `uses_java`
    or `reads_kafka_in_spark`, the environment is prepared by the first call of `command_services`
    or `sink_host`: a command that needs the worker only runs without Java.
    """
    setattr(command, WORKER, True)
    return command


def confirmed(question: str) -> bool:
    """Ask on the terminal.

    Raises:
        ConfigError: No user can answer.
    """
    import typer

    if sys.stdin is None or sys.stdin.closed:
        raise ConfigError(
            "", "the question has no answer, since standard input is closed: say --yes"
        )
    return typer.confirm(question, err=True)


class _Provided:
    """What `connect-py` has for its commands."""

    resolve: Callable[[Mapping[str, str], Path], dict[str, str]] | None = None
    mask: Callable[[str], str] = str
    make: Callable[[], SharedServices] | None = None
    made: SharedServices | None = None
    pipelines: Callable[[Mapping[str, str], Path | None], PipelineFactory] | None = None
    hosts: Callable[[Mapping[str, str], Path | None, Mapping[str, str]], SinkHost] | None = None
    worker: Callable[[], WorkerClient] | None = None
    java: Callable[[], None] | None = None

    @classmethod
    def prepare_java(cls) -> None:
        """Prepare the environment for a JVM, once."""
        prepare, cls.java = cls.java, None
        if prepare is not None:
            prepare()


def provide_worker(make: Callable[[], WorkerClient] | None) -> None:
    """Set the source of `worker_client`: for `connect-py`, and for tests of commands."""
    _Provided.worker = make


def worker_client() -> WorkerClient | None:
    """Return a client of the worker that the command line names; None if the command was not marked
    by `asks_worker`.

    The client closes its connections when the process exits.

    Raises:
        ConfigError: The options are not valid.
    """
    return None if _Provided.worker is None else _Provided.worker()


def provide_java(prepare: Callable[[], None] | None) -> None:
    """Set the function that prepares the environment for a JVM before the first driver of the
    command starts.

    It raises a `ConnectError` if Java or Spark's jars are missing.
    """
    _Provided.java = prepare


def provide_services(make: Callable[[], SharedServices] | None) -> None:
    """Say where `command_services` comes from: for `connect-py`, and for tests of commands."""
    _Provided.make, _Provided.made = make, None


def command_services() -> SharedServices:
    """Return shared services for the command that runs: their programs end with it. They have no
    worker's settings.

    Raises:
        ConnectError: The function was not called by `connect-py`.
    """
    if _Provided.made is None:
        if _Provided.make is None:
            raise ConnectError("shared services are there for commands of connect-py only")
        _Provided.prepare_java()
        _Provided.made = _Provided.make()
    return _Provided.made


def provide_configs(
    resolve: Callable[[Mapping[str, str], Path], dict[str, str]] | None,
    mask: Callable[[str], str] = str,
) -> None:
    """Say what `resolved_connector` and `without_secrets` do: for `connect-py`, and for tests of
    commands."""
    _Provided.resolve, _Provided.mask = resolve, mask


def resolved_connector(connector: Mapping[str, str], worker: Path) -> dict[str, str]:
    """The configuration with the values of config providers, as a worker hands it to tasks.

    Args: connector: With placeholders such as `${env:TOKEN}`. Those of unknown providers stay, as
        in the worker. worker: The worker's properties file, which configures the providers.

    Raises:
        ConfigError: A provider cannot be asked, or does not have a value.
        ConnectError: The function was not called by a command of `connect-py`.
    """
    if _Provided.resolve is None:
        raise ConnectError("config providers are there for commands of connect-py only")
    return _Provided.resolve(connector, worker)


def without_secrets(text: str) -> str:
    """The text as a command may print it: values of config providers are masked."""
    return _Provided.mask(text)


def provide_pipelines(
    make: Callable[[Mapping[str, str], Path | None], PipelineFactory] | None,
) -> None:
    """Say where `pipeline_factory` has pipelines from: for `connect-py`, and for tests of
    commands."""
    _Provided.pipelines = make


def pipeline_factory(connector: Mapping[str, str], worker: Path | None = None) -> PipelineFactory:
    """The record pipelines of a connector.

    Args: connector: Its configuration, resolved. worker: The worker's properties file: converters
        that the connector does not name, and `plugin.path`.

    Raises:
        ConnectError: The function was not called by a command of `connect-py`.
    """
    if _Provided.pipelines is None:
        raise ConnectError("pipelines are there for commands of connect-py only")
    return _Provided.pipelines(connector, worker)


def provide_sink_hosts(
    make: Callable[[Mapping[str, str], Path | None, Mapping[str, str]], SinkHost] | None,
) -> None:
    """Say where `sink_host` comes from: for `connect-py`, and for tests of commands."""
    _Provided.hosts = make


def sink_host(
    connector: Mapping[str, str], worker: Path | None, settings: Mapping[str, str]
) -> SinkHost:
    """What a command needs to do the work of a sink's tasks. Its programs end with the command.

    Args:
        connector: Its configuration, resolved, with its name.
        worker: The worker's properties file.
        settings: Properties of a worker that count before those of the file.

    Raises:
        ConfigError: The configuration is not acceptable.
        ConnectError: The function was not called by a command of `connect-py`.
    """
    if _Provided.hosts is None:
        raise ConnectError("hosts of sinks are there for commands of connect-py only")
    _Provided.prepare_java()
    return _Provided.hosts(connector, worker, settings)
