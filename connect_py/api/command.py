"""Subcommands of `connect-py`.

A plugin package adds commands with an entry point of the group `connect_py.commands`. The entry
point refers to a table, a sequence of `CommandEntry`, in a module that is cheap to import: every
call of `connect-py` reads the tables of all plugins, but imports only the command that it runs. A
command is a function with the decorator `command`:

    @command(worker=True, failure_status=2)
    def audit(context: CommandContext, table: Annotated[str, typer.Argument()]) -> None:
        \"\"\"Check the ledger of a table.\"\"\"

Its first parameter is the context. The other parameters become arguments and options, as in typer.
A parameter whose type is a dataclass is replaced by the fields of the dataclass; commands share
options this way.
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

COMMANDS: Final = "connect_py.commands"  # the group of entry points
_TRAITS: Final = "__connect_py_command__"


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """Declaration of a command or of a group of commands."""

    name: str  # as users type it; "dlq list" is the command "list" of the group "dlq"
    summary: str  # for the help of the parent; equal to the first paragraph of the docstring
    target: str = ""  # `module:function`, imported when the command runs; empty for a group


@dataclass(frozen=True, slots=True)
class CommandTraits:
    """Arguments of the decorator `command`."""

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
    """Declare a function as a command of `connect-py`. The function itself is unchanged.

    Args:
        worker: Add the options that name a running worker. See `CommandContext.worker`.
        json: Add `--json`. See `CommandContext.show`.
        jars: Names of jar sets, in addition to Spark's, for the drivers of the command.
        failure_status: Exit status if the command raises an error. Wrong usage, an unreachable
            worker, and missing prerequisites always end with 2.
    """

    def declare(function: F) -> F:
        setattr(function, _TRAITS, CommandTraits(worker, json, tuple(jars), failure_status))
        return function

    return declare


def command_traits(function: Callable[..., None]) -> CommandTraits:
    """Return the arguments of the decorator of a command.

    Raises:
        TypeError: The function has no decorator.
    """
    traits = getattr(function, _TRAITS, None)
    if not isinstance(traits, CommandTraits):
        raise TypeError(f"{function.__module__}:{function.__name__} lacks the decorator @command")
    return traits


class PrerequisiteError(ConnectError):
    """A program or library that the command needs is missing. Nothing was changed."""


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

        Args:
            name: The connector.
            operation: The name of the operation.
            arguments: The JSON object of the request.
            progress: Called with a description of the current step, on the calling thread.
            worker_id: The member of the group that gets the request (`host:port`) if it can be
                reached from here.

        Raises:
            NotFoundError: The connector, or the operation, does not exist. Nothing was changed.
            ConnectError: The operation failed, or the worker was lost. The operation may have taken
                effect.
        """


class CommandContext(Protocol):
    """Services of `connect-py` for one run of a command.

    Everything that a method starts is stopped when the command returns.

    The first call of `services` or `sink_host` locates Java and Spark's jars, which are downloaded
    if necessary, and exports them to the environment. Both raise a `PrerequisiteError` if Java or
    a jar is missing.
    """

    @property
    def as_json(self) -> bool:
        """Return True if the user asked for JSON output (`--json`)."""

    def show(self, document: Any, lines: Iterable[str]) -> None:
        """Print the result on standard output: the document with `--json`, the lines without it.

        Args:
            document: The result, as `json.dumps` accepts it.
            lines: The result for people. Not consumed with `--json`.
        """

    def warn(self, message: str) -> None:
        """Print a message on standard error, prefixed with the program's name.

        Secrets are masked.
        """

    def confirm(self, question: str) -> bool:
        """Ask a yes-or-no question on the terminal.

        Raises:
            ConfigError: Standard input is closed.
        """

    def mask(self, message: str) -> str:
        """Return a string with the values of config providers masked."""

    def worker(self) -> WorkerClient | None:
        """Return a client of the worker that the command line names.

        None if the command was not declared with `worker=True`.

        Raises:
            ConfigError: The options that name the worker are not valid.
        """

    def services(self) -> SharedServices:
        """Return shared services without the settings of a worker."""

    def resolve(self, connector: Mapping[str, str], worker: Path) -> dict[str, str]:
        """Replace the placeholders of config providers, as a worker does for its tasks.

        Args:
            connector: A configuration with placeholders such as `${env:TOKEN}`. Placeholders of
                unknown providers stay unchanged.
            worker: The worker's properties file, which configures the providers.

        Raises:
            ConfigError: A provider is not available, or does not have a value.
        """

    def pipelines(
        self, connector: Mapping[str, str], worker: Path | None = None
    ) -> PipelineFactory:
        """Return the factory of a connector's record pipelines.

        Args:
            connector: The resolved configuration.
            worker: The worker's properties file: default converters, and `plugin.path`.
        """

    def sink_host(
        self, connector: Mapping[str, str], worker: Path | None, settings: Mapping[str, str]
    ) -> SinkHost:
        """Return the environment of a sink task, for commands that do the work of tasks.

        Args:
            connector: The resolved configuration, with its name.
            worker: The worker's properties file.
            settings: Worker properties that override the file.

        Raises:
            ConfigError: The configuration is not valid.
        """
