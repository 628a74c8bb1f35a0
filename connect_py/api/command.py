"""Subcommands of the `connect-py` command.

A plugin package adds commands with an entry point in the group `connect_py.commands`. The entry
point refers to a command table (a sequence of `CommandEntry` objects) in a module that is cheap to
import. Every invocation of `connect-py` reads the tables of all plugins, but imports only the
command that it runs. A command is a function that is decorated with `command`:

    @command(worker=True, failure_status=2)
    def audit(context: CommandContext, table: Annotated[str, typer.Argument()]) -> None:
        \"\"\"Check the ledger of a table.\"\"\"

Its first parameter is the context. The other parameters become arguments and options, as in Typer.
A parameter whose type is a dataclass is expanded into the fields of the dataclass. This allows
commands to share options.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from connect_py.api.errors import ConnectError

if TYPE_CHECKING:
    from pathlib import Path

    from connect_py.api.pipeline import PipelineFactory
    from connect_py.api.service import SharedServices
    from connect_py.api.sink_host import SinkHost

F = TypeVar("F", bound=Callable[..., None])

COMMANDS: Final = "connect_py.commands"  # entry point group
_TRAITS: Final = "__connect_py_command__"


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """Declaration of a command or of a group of commands."""

    name: str  # as users type it; "dlq list" is the command "list" of the group "dlq"
    summary: str  # displayed in the parent's help; equal to the first paragraph of the docstring
    target: str = ""  # `module:function`, imported when the command runs; empty for a group


@dataclass(frozen=True, slots=True)
class CommandTraits:
    """Arguments of the `command` decorator."""

    worker: bool
    json: bool
    jars: tuple[str, ...]
    failure_status: int


def command(
    *,
    worker: bool = False,
    json: bool = False,
    jars: Iterable[str] = (),
    failure_status: int = 1,
) -> Callable[[F], F]:
    """Declare a function as a `connect-py` command. The function itself is returned unchanged.

    Args:
        worker: Add the options that select a running worker. See `CommandContext.worker`.
        json: Add `--json`. See `CommandContext.show`.
        jars: Names of the jar sets that the command's Spark drivers need in addition to Spark's
            own jars.
        failure_status: Exit status if the command raises an error. For a usage error, an
            unreachable worker, or a missing prerequisite, the exit status is always 2.
    """

    def declare(function: F) -> F:
        setattr(function, _TRAITS, CommandTraits(worker, json, tuple(jars), failure_status))
        return function

    return declare


def command_traits(function: Callable[..., None]) -> CommandTraits:
    """Return the arguments that a function's `command` decorator received.

    Raises:
        TypeError: The function is not decorated with `command`.
    """
    traits = getattr(function, _TRAITS, None)
    if not isinstance(traits, CommandTraits):
        raise TypeError(f"{function.__module__}:{function.__name__} is not decorated with @command")
    return traits


class PrerequisiteError(ConnectError):
    """A program or library that the command requires is missing. Nothing was changed."""


class WorkerClient(Protocol):
    """Client for the REST API of the worker that is selected on the command line."""

    @property
    def url(self) -> str:
        """Return the URL of the worker."""

    def connectors(self) -> Mapping[str, Any]:
        """Return `info` and `status` of all connectors in the worker's group, keyed by name.

        Raises:
            ConnectError: No worker responds, or the worker rejects the request.
        """

    def operate(
        self,
        name: str,
        operation: str,
        arguments: Mapping[str, Any],
        progress: Callable[[str], None],
        worker_id: str | None = None,
    ) -> Any:
        """Run a connector operation and wait for its result, which may take hours.

        Args:
            name: Name of the connector.
            operation: Name of the operation.
            arguments: JSON object to send in the request.
            progress: Called on the calling thread with a description of the current step.
            worker_id: Group member (`host:port`) that receives the request if it is reachable from
                this machine.

        Raises:
            NotFoundError: The connector or the operation does not exist. Nothing was changed.
            ConnectError: The operation failed, or the connection to the worker was lost. The
                operation may have taken effect.
        """


class CommandContext(Protocol):
    """Services for one run of a command.

    Everything that a method starts is stopped when the command returns.

    The first call to `services` or `sink_host` locates Java and Spark's jars, which are downloaded
    if necessary, and exports their locations to the environment. Both raise a `PrerequisiteError`
    if Java or a jar is missing.
    """

    @property
    def as_json(self) -> bool:
        """Return True if the user requested JSON output (`--json`)."""

    def show(self, document: Any, lines: Iterable[str]) -> None:
        """Print the result to standard output: the document with `--json`, otherwise the lines.

        Args:
            document: The result as a value that `json.dumps` accepts.
            lines: The result as human-readable lines. With `--json`, it is not iterated over.
        """

    def warn(self, message: str) -> None:
        """Print a message to standard error, prefixed with the program name.

        Secrets are masked.
        """

    def confirm(self, question: str) -> bool:
        """Ask a yes-or-no question on the terminal.

        Raises:
            ConfigError: Standard input is closed.
        """

    def mask(self, message: str) -> str:
        """Return the message with all values from config providers masked."""

    def worker(self) -> WorkerClient | None:
        """Return a client for the worker that is selected on the command line.

        Return None if the command was not declared with `worker=True`.

        Raises:
            ConfigError: The options that select the worker are not valid.
        """

    def services(self) -> SharedServices:
        """Return shared services that have no worker settings."""

    def resolve(self, connector: Mapping[str, str], worker: Path) -> dict[str, str]:
        """Replace config provider placeholders, as a worker does for its tasks.

        Args:
            connector: A configuration with placeholders such as `${env:TOKEN}`. Placeholders for
                unknown providers remain unchanged.
            worker: The worker's properties file, which configures the providers.

        Raises:
            ConfigError: A provider is unavailable, or has no value for a placeholder.
        """

    def pipelines(
        self, connector: Mapping[str, str], worker: Path | None = None
    ) -> PipelineFactory:
        """Return a factory for a connector's record pipelines.

        Args:
            connector: The resolved configuration.
            worker: The worker's properties file, which specifies the default converters and
                `plugin.path`.
        """

    def sink_host(
        self, connector: Mapping[str, str], worker: Path | None, settings: Mapping[str, str]
    ) -> SinkHost:
        """Return the environment for a command that does the work of sink tasks.

        Args:
            connector: The resolved configuration, including the connector name.
            worker: The worker's properties file.
            settings: Worker properties that override the file.

        Raises:
            ConfigError: The configuration is not valid.
        """
